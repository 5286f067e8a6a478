//! Test vectors: packets of other implementations are parsed, and their invariant CRCs computed.

use crate::common::crc32;
use roce_proto::cm::addresses::{Addresses, Pair};
use roce_proto::cm::mad::{self, Mad};
use roce_proto::cm::message::{Gid, Message};
use roce_proto::cm::{QKEY, tcp_service};
use roce_proto::icrc::{Envelope, Ip, identify, of_datagram};
use roce_proto::psn::Psn;
use roce_proto::ud;
use roce_proto::wire::aeth::Syndrome;
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
    assert_eq!(packet.payload, []);
    assert_eq!(packet.headers.emit().as_slice(), &datagram[..28]);
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

const RXE: [u8; 4] = [10, 0, 3, 15];
const OURS: [u8; 4] = [10, 0, 3, 2];

/// Packets of Linux 6.1's rxe over IPv4, one after the other: their identifications count, and are found.
// [ROCE-06, ROCE-07, ROCE-08, ROCE-09]
#[test]
fn packets_of_rxe() {
    let read = "0c00ffff 001a1ecf 805923b8 00007f54 1d0a9000 662b653a 0000ea60 d064eb31";
    let send = "0400ffff 001a1ecf 805923c7 00000000 00000000 00000000 00000000 f8c4d527";
    let ack = "1100ffff 001a1ecf 00e7f6f2 1f000001 383e9b27";
    for (hex, id) in [(ack, 0x8575), (read, 0x8577), (send, 0x8578)] {
        let datagram = octets(hex);
        let packet = Packet::parse(&datagram).unwrap();
        let (bth, head) = (packet.headers.bth, packet.headers.emit());
        assert_eq!((bth.migrated, bth.destination), (false, 0x1a1ecf));
        assert!(datagram.starts_with(head.as_slice()));
        let at = datagram.len() - 4;
        assert_eq!(
            of_datagram(crc32, &v4(RXE, OURS, id, 52_116), &datagram).unwrap(),
            datagram[at..]
        );
        assert_eq!(identify(crc32, &v4(RXE, OURS, 0, 52_116), &datagram), Some(id));
    }
    let datagram = octets(read);
    let packet = Packet::parse(&datagram).unwrap();
    let reth = packet.headers.extended.reth.unwrap();
    assert_eq!((reth.address, reth.rkey, reth.length), (0x7f54_1d0a_9000, 0x662b_653a, 60_000));
    assert!(packet.headers.bth.ack_request);
    assert_eq!(packet.headers.bth.opcode, Opcode::Transport(Service::Rc, Operation::ReadRequest));
    let datagram = octets(ack);
    let aeth = Packet::parse(&datagram).unwrap().headers.extended.aeth.unwrap();
    assert!(matches!(aeth.syndrome, Syndrome::Ack { .. }), "{aeth:?}");
    assert_eq!(aeth.msn, Psn::new(1));
}

/// An acknowledgement of rxe over IPv6.
// [ROCE-06]
#[test]
fn an_acknowledgement_of_rxe_over_ipv6() {
    let datagram = octets("1100ffff 00b6d57d 00e00b50 1f000001 22151fdb");
    let end = |last| std::net::Ipv6Addr::new(0xfd00, 3, 0, 0, 0, 0, 0, last).octets();
    let ip = Ip::V6 { source: end(0x15), destination: end(2) };
    let envelope = Envelope { ip, source_port: 55_449, destination_port: 4791 };
    assert_eq!(of_datagram(crc32, &envelope, &datagram).unwrap(), datagram[16..]);
}

/// The connection request of Linux's rdma_cm, which rping sent over rxe.
// [IBCM-07]
#[test]
fn a_connection_request_of_rdma_cm() {
    let mut datagram = octets(
        "6400ffff00000001800000028001000000000001010702030000000000000002ff0bc43a00100000000000003ac40bff \
         000000000000000001068000505400fffe12345700000000000000000000120100000001000000a0423bd7a7ffff57f0 \
         ffffffff00000000000000000000ffff0a00030f00000000000000000000ffff0a0003028193f0000040009800000000 \
         000000000000000000000000000000000000000000000000000000000000000000000000000000000040c2e100000000 \
         00000000000000000a00030f0000000000000000000000000a000302",
    );
    // rping sends no private data.
    datagram.resize(276, 0);
    datagram.extend(octets("407fb9fc"));
    let envelope = v4(RXE, OURS, 0x8d84, 55_410);
    assert_eq!(of_datagram(crc32, &envelope, &datagram).unwrap(), datagram[276..]);
    let packet = Packet::parse(&datagram).unwrap();
    let mad = Mad::parse(ud::accept(&packet, QKEY, mad::LEN).unwrap().payload).unwrap();
    let Message::Req(req) = Message::parse(&mad).unwrap() else { panic!("{mad:?}") };
    assert_eq!(
        (req.service, req.qpn, req.starting_psn),
        (tcp_service(0x8000), 0x12, Psn::new(0x42_3bd7))
    );
    assert_eq!((req.responder_resources, req.initiator_depth), (1, 1));
    // rdma_cm's time-out, 2.1 s.
    assert_eq!((req.mtu, req.ack_timeout, req.retry_count, req.rnr_retry_count), (5, 0x13, 7, 7));
    assert_eq!((req.local_gid, req.remote_gid), (Gid::of_ipv4(RXE), Gid::of_ipv4(OURS)));
    let addresses = Addresses::parse(&req.private.0).unwrap();
    assert_eq!(addresses.pair, Pair::V4 { source: RXE, destination: OURS });
    assert_eq!(addresses.source_port, 0xc2e1);
}
