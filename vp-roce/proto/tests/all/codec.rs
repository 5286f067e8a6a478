//! Tests of the codec: parsing returns what was encoded, and any octets are refused or parsed without a panic.

use proptest::prelude::*;
use roce_proto::cm::addresses::{Addresses, Pair};
use roce_proto::cm::mad::{LEN, Mad, MadError};
use roce_proto::cm::message::{ConnectionIds, Gid, Message, Private, RejectReason, Rejected, Req};
use roce_proto::psn::Psn;
use roce_proto::wire::WireError;
use roce_proto::wire::aeth::{Aeth, Syndrome};
use roce_proto::wire::bth::{Bth, Opcode};
use roce_proto::wire::extended::{AtomicEth, Deth, Reth};
use roce_proto::wire::packet::{Extended, Headers, Packet};

fn headers() -> impl Strategy<Value = Headers> {
    let opcode = any::<u8>().prop_filter_map("an opcode", |octet| Opcode::parse(octet).ok());
    let bth = (opcode, any::<(bool, bool, bool, u16, u8, u32, u32)>()).prop_map(
        |(opcode, (solicited, migrated, ack_request, pkey, congestion, destination, psn))| Bth {
            opcode,
            solicited,
            migrated,
            pad: 0,
            pkey,
            congestion,
            destination: destination & 0xff_ffff,
            ack_request,
            psn: Psn::new(psn),
        },
    );
    (bth, any::<([u64; 5], [u32; 8], u8)>()).prop_map(|(bth, (long, short, octet))| {
        let all = Extended {
            deth: Some(Deth { qkey: short[0], source: short[1] & 0xff_ffff }),
            reth: Some(Reth { address: long[0], rkey: short[2], length: short[3] }),
            atomic: Some(AtomicEth {
                address: long[1],
                rkey: short[4],
                swap_or_add: long[2],
                compare: long[3],
            }),
            aeth: Some(Aeth { syndrome: Syndrome::parse(octet), msn: Psn::new(short[5]) }),
            original: Some(long[4]),
            immediate: Some(short[6]),
            invalidate: Some(short[7]),
        };
        Headers { bth, extended: all }
    })
}

proptest! {
    // [ROCE-01, ROCE-02, ROCE-03]
    #[test]
    fn headers_survive_encoding(headers in headers(), payload in proptest::collection::vec(any::<u8>(), 0..40)) {
        // Headers that the opcode does not have are not encoded.
        let (once, len) = Headers::parse(headers.emit().as_slice()).unwrap();
        prop_assert_eq!(len, headers.emit().as_slice().len());
        prop_assert_eq!(once.bth, headers.bth);
        prop_assert_eq!(once.emit(), headers.emit());

        let pad = payload.len().wrapping_neg() & 3;
        let padded = Headers { bth: Bth { pad: pad as u8, ..once.bth }, ..once };
        let mut datagram = padded.emit().as_slice().to_vec();
        datagram.extend(&payload);
        datagram.extend([0; 7][..pad + 4].iter());
        let packet = Packet::parse(&datagram).unwrap();
        prop_assert_eq!((packet.headers, packet.payload), (padded, &payload[..]));
        // Truncated at any octet, it is refused, or it is a shorter packet.
        for end in 0..datagram.len() {
            let _ = Packet::parse(&datagram[..end]);
        }
    }

    #[test]
    fn any_octets_are_refused_or_read(octets in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(packet) = Packet::parse(&octets) {
            prop_assert!(packet.payload.len() + 16 <= octets.len());
        }
    }

    #[test]
    fn any_message_survives_encoding(attribute in 0x10u16..0x19, transaction: u64, body: [u8; 32], filler: u8) {
        let mut octets = vec![filler; LEN];
        octets[..4].copy_from_slice(&[1, 7, 2, 3]);
        octets[8..16].copy_from_slice(&transaction.to_be_bytes());
        octets[16..18].copy_from_slice(&attribute.to_be_bytes());
        octets[24..56].copy_from_slice(&body);
        let mad = Mad::parse(&octets).unwrap();
        let message = Message::parse(&mad).unwrap();
        let again = Mad::parse(&message.emit(transaction).emit()).unwrap();
        prop_assert_eq!(Message::parse(&again).unwrap(), message);
        prop_assert_eq!((again.transaction, again.attribute), (transaction, attribute));
    }
}

// [ROCE-04, ROCE-05]
#[test]
fn malformed_packets_are_named() {
    let truncated = |need, have| Err(WireError::Truncated { need, have });
    assert_eq!(Packet::parse(&[0; 3]), truncated(16, 3));
    assert_eq!(Packet::parse(&[0; 15]), truncated(16, 15));
    let mut write = [0; 30];
    write[0] = 0x0a;
    assert_eq!(Packet::parse(&write), truncated(32, 30));
    let mut padded = [0; 17];
    (padded[0], padded[1]) = (0x04, 0x30);
    assert_eq!(Packet::parse(&padded), Err(WireError::Pad { pad: 3, have: 1 }));
    padded[1] = 0x31;
    assert_eq!(Packet::parse(&padded), Err(WireError::Version(1)));
    padded[0] = 0x18;
    padded[1] = 0;
    assert_eq!(Packet::parse(&padded), Err(WireError::Opcode(0x18)));
}

// [IBCM-01]
#[test]
fn malformed_management_datagrams_are_named() {
    assert_eq!(Mad::parse(&[0; 255]), Err(MadError::Length(255)));
    let mut octets = [0; LEN];
    octets[..4].copy_from_slice(&[1, 3, 2, 3]);
    assert_eq!(Mad::parse(&octets), Err(MadError::Class { class: 3, version: 2, method: 3 }));
    octets[1] = 7;
    octets[17] = 0x19;
    assert_eq!(Message::parse(&Mad::parse(&octets).unwrap()), Err(MadError::Attribute(0x19)));
}

// [IBCM-02, IBCM-08]
/// Offsets of fields, from the kernel's `ibta_vol1_c12.h`.
#[test]
fn fields_of_a_request_are_where_they_belong() {
    let req = Req {
        local_id: 0x0102_0304,
        service: 0x0106_1c08,
        ca_guid: 5,
        qpn: 0x11_2233,
        responder_resources: 6,
        initiator_depth: 7,
        remote_response_timeout: 0x15,
        local_response_timeout: 0x0a,
        transport: 1,
        starting_psn: Psn::new(0x44_5566),
        retry_count: 5,
        rnr_retry_count: 6,
        pkey: 0xffff,
        mtu: 3,
        max_cm_retries: 15,
        srq: true,
        local_gid: Gid::of_ipv4([1, 2, 3, 4]),
        remote_gid: Gid::of_ipv4([5, 6, 7, 8]),
        flow_label: 0xabcde,
        rate: 0x2a,
        traffic_class: 8,
        hop_limit: 64,
        service_level: 9,
        ack_timeout: 14,
        private: Private::new(b"data").unwrap(),
    };
    let octets = Message::Req(req).emit(9).emit();
    let body = &octets[24..];
    assert_eq!(body[..4], [1, 2, 3, 4]);
    assert_eq!(body[32..36], [0x11, 0x22, 0x33, 6]);
    assert_eq!((body[39], body[43], body[47]), (7, 0x15 << 3 | 1 << 1, 0x0a << 3 | 5));
    assert_eq!(body[44..47], [0x44, 0x55, 0x66]);
    assert_eq!((body[50], body[51]), (3 << 4 | 6, 15 << 4 | 8));
    assert_eq!(body[66..72], [0xff, 0xff, 1, 2, 3, 4]);
    assert_eq!(body[88..92], [0xab, 0xcd, 0xe0, 0x2a]);
    assert_eq!((body[92], body[93], body[94], body[95]), (8, 64, 0x90, 14 << 3));
    assert_eq!(body[140..145], *b"data\0");
}

// [IBCM-07]
#[test]
fn addresses_survive_encoding_with_the_private_data_after_them() {
    let v4 = Pair::V4 { source: [10, 0, 0, 1], destination: [10, 0, 0, 2] };
    let v6 = Pair::V6 { source: [1; 16], destination: [2; 16] };
    for pair in [v4, v6] {
        let addresses = Addresses { source_port: 4660, pair };
        assert_eq!(Addresses::parse(&addresses.emit()), Some(addresses));
        let private: Private<92> = addresses.with(&[9; 56]).unwrap();
        assert_eq!(private.0[36..], [9; 56]);
        assert_eq!(addresses.with::<92>(&[9; 57]), None);
    }
    assert_eq!(Addresses::parse(&[0; 36]), None);
    assert_eq!(Addresses::parse(&[0; 35]), None);
}

#[test]
fn a_reject_has_its_reason() {
    let ids = ConnectionIds { local: 1, remote: 2 };
    let reason = RejectReason::INVALID_SERVICE_ID;
    let (of, private) = (Rejected::Req, Private::default());
    let mad = Message::Rej { ids, of, reason, private }.emit(3);
    assert_eq!(mad.emit()[24 + 10..24 + 12], [0, 8]);
    assert_eq!(reason.to_string(), "8 (invalid service id)");
}
