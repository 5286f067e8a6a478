//! Tests of unreliable datagrams: queue keys, and the addresses in the receive.

use crate::common::ENVELOPE;
use roce_proto::icrc::{Envelope, Ip};
use roce_proto::psn::Psn;
use roce_proto::ud::{Dropped, Incoming, Outgoing, accept, grh};
use roce_proto::wire::packet::Packet;

// [IBUD-01]
#[test]
fn a_datagram_is_accepted_with_its_queue_key_only() {
    for immediate in [None, Some(0x0102_0304)] {
        let out = Outgoing {
            destination: 0x22,
            source: 0x11,
            qkey: 0x1111_1111,
            psn: Psn::new(5),
            immediate,
            solicited: true,
            len: 5,
        };
        let mut datagram = out.headers().emit().as_slice().to_vec();
        datagram.extend(b"hello");
        datagram.extend([0; 3 + 4]);
        let packet = Packet::parse(&datagram).unwrap();
        assert_eq!(packet.headers.bth.destination, 0x22);
        let taken = Incoming { source: 0x11, immediate, solicited: true, payload: b"hello" };
        assert_eq!(accept(&packet, 0x1111_1111, 256), Ok(taken));
        assert_eq!(accept(&packet, 1, 256), Err(Dropped::Qkey { came: 0x1111_1111 }));
    }
    let mut send = [0; 16];
    send[0] = 0x04;
    assert_eq!(accept(&Packet::parse(&send).unwrap(), 0, 256), Err(Dropped::Service));
}

// [IBUD-03]
#[test]
fn a_datagram_longer_than_the_path_mtu_is_dropped() {
    for (len, taken) in [(255, true), (256, true), (257, false)] {
        let out = Outgoing {
            destination: 0x22,
            source: 0x11,
            qkey: 7,
            psn: Psn::new(5),
            immediate: None,
            solicited: false,
            len,
        };
        let mut datagram = out.headers().emit().as_slice().to_vec();
        datagram.resize(datagram.len() + len.next_multiple_of(4) as usize + 4, 0);
        let accepted = accept(&Packet::parse(&datagram).unwrap(), 7, 256);
        match accepted {
            Ok(came) => assert!(taken && came.payload.len() == len as usize),
            Err(why) => assert!(!taken && why == Dropped::Length { len: len as usize }),
        }
    }
}

// [IBUD-02]
#[test]
fn the_grh_is_the_ip_header() {
    let v4 = grh(&ENVELOPE, 100, 0x20, 64);
    assert_eq!(v4[..20], [0; 20]);
    assert_eq!(v4[20..30], [0x45, 0x20, 0, 128, 0, 0, 0x40, 0, 64, 17]);
    assert_eq!(v4[32..], [127, 0, 0, 1, 127, 0, 0, 1]);
    // The ones' complement sum over a header with its checksum is all ones.
    let sum: u32 = v4[20..].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);

    let ip = Ip::V6 { source: [1; 16], destination: [2; 16] };
    let v6 = grh(&Envelope { ip, ..ENVELOPE }, 100, 0x23, 9);
    assert_eq!(v6[..8], [0x62, 0x30, 0, 0, 0, 108, 17, 9]);
    assert_eq!((&v6[8..24], &v6[24..]), (&[1; 16][..], &[2; 16][..]));
}
