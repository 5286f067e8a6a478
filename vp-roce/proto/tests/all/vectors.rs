//! Test vectors: packets of other implementations are parsed, and their invariant CRCs computed.

use crate::common::crc32;
use roce_proto::icrc::{Envelope, Ip, identify, of_datagram};
use roce_proto::psn::Psn;
use roce_proto::wire::bth::{Opcode, Operation, Position, Rider, Service};
use roce_proto::wire::packet::Packet;

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn v4(source: [u8; 4], destination: [u8; 4], id: u16, source_port: u16) -> Envelope {
    let ip = Ip::V4 { source, destination, id, dont_fragment: true };
    Envelope { ip, source_port, destination_port: 4791 }
}

/// A congestion notification that a ConnectX-4 Lx sent.
// [ROCE-06, ROCE-07, ROCE-10]
#[test]
fn a_congestion_notification_of_an_adapter() {
    let datagram =
        octets("8100ffff 40000118 00000000 00000000 00000000 00000000 00000000 82fd002a");
    let envelope = v4([10, 0, 17, 1], [10, 0, 18, 1], 0x718c, 0);
    let packet = Packet::parse(&datagram).unwrap();
    let bth = packet.headers.bth;
    assert_eq!((bth.opcode, bth.destination, bth.congestion), (Opcode::Cnp, 0x118, 0x40));
    assert_eq!(packet.payload, [0; 16]);
    assert_eq!(packet.headers.emit().as_slice(), &datagram[..12]);
    assert_eq!(of_datagram(crc32, &envelope, &datagram).unwrap(), datagram[28..]);
    let unknown = v4([10, 0, 17, 1], [10, 0, 18, 1], 0, 0);
    assert_eq!(identify(crc32, &unknown, &datagram), Some(0x718c));
}

/// A Send Only on an unreliable connection of an adapter with itself.
#[test]
fn a_send_of_an_adapter() {
    let datagram =
        octets("2460ffff 000000d3 00cf1710 4630818b e28935d9 0e9a9550 5401be88 5e500000 78f353f3");
    let envelope = v4([192, 168, 0, 7], [192, 168, 0, 7], 1144, 49152);
    let packet = Packet::parse(&datagram).unwrap();
    let bth = packet.headers.bth;
    let send = Operation::Send(Position::Only, Rider::None);
    assert_eq!(bth.opcode, Opcode::Transport(Service::Uc, send));
    assert_eq!((bth.migrated, bth.pad, bth.destination), (true, 2, 211));
    assert_eq!((bth.psn, bth.pkey), (Psn::new(13_571_856), 0xffff));
    assert_eq!(packet.payload.len(), 18);
    assert_eq!(of_datagram(crc32, &envelope, &datagram).unwrap(), datagram[32..]);
    let unknown = v4([192, 168, 0, 7], [192, 168, 0, 7], 0, 49152);
    assert_eq!(identify(crc32, &unknown, &datagram), Some(1144));
}
