//! Tests of the explainer: any octets, every field, violations.

use proptest::prelude::*;
use roce_proto::cm::addresses::{Addresses, Pair};
use roce_proto::cm::message::{ConnectionIds, Message, Private, RejectReason, Rejected};
use roce_proto::cm::{QKEY, QPN};
use roce_proto::decode::{Frame, Seal, Value, explain, explain_front};
use roce_proto::icrc::{Ip, of_datagram};
use roce_proto::psn::Psn;
use roce_proto::ud::Outgoing;

use crate::cm::req;
use crate::common::{ENVELOPE, crc32};

fn sealed(message: &Message) -> Vec<u8> {
    let out = Outgoing {
        destination: QPN,
        source: QPN,
        qkey: QKEY,
        psn: Psn::new(1),
        immediate: None,
        solicited: false,
        len: 256,
    };
    let mut datagram = out.headers().emit().as_slice().to_vec();
    datagram.extend(message.emit(7).emit());
    datagram.extend([0; 4]);
    let icrc = of_datagram(crc32, &ENVELOPE, &datagram).unwrap();
    datagram.splice(datagram.len() - 4.., icrc);
    datagram
}

const SEAL: Seal<'static> = Seal { kernel: crc32, envelope: &ENVELOPE };

fn note<'a>(frame: &'a Frame, name: &str) -> &'a str {
    &frame.fields.iter().find(|field| field.name == name).unwrap().note
}

fn violations(frame: &Frame) -> Vec<(&'static str, String)> {
    let all = frame.fields.iter().filter_map(|field| field.violation.as_ref());
    all.map(|violation| (violation.requirement, violation.text.clone())).collect()
}

#[test]
fn a_request_is_explained() {
    let pair = Pair::V4 { source: [10, 0, 0, 1], destination: [10, 0, 0, 2] };
    let private = Addresses { source_port: 4660, pair }.with(b"").unwrap();
    let mut req = req();
    req.private = private;
    let frame = explain(&sealed(&Message::Req(req)), Some(SEAL));
    assert_eq!((frame.what.as_str(), violations(&frame)), ("ConnectRequest", vec![]));
    assert_eq!(note(&frame, "ServiceID"), "rdma_cm, TCP port space, port 7174");
    assert_eq!(note(&frame, "PrivateData"), "rdma_cm: 10.0.0.1:4660 to 10.0.0.2");
    assert_eq!((note(&frame, "PathMTU"), note(&frame, "ICRC")), ("1024 octets", "correct"));
    // Fields do not overlap.
    for pair in frame.fields.windows(2) {
        let end = pair[0].offset + if pair[0].bits.is_some() { 0 } else { pair[0].length };
        assert!(pair[1].offset >= end, "{pair:?}");
    }
    let last = frame.fields.last().unwrap();
    assert_eq!(last.offset + last.length, frame.length);
}

#[test]
fn a_reject_names_its_reason() {
    let ids = ConnectionIds { local: 1, remote: 2 };
    let reason = RejectReason::INVALID_SERVICE_ID;
    let (of, private) = (Rejected::Req, Private::default());
    let frame = explain(&sealed(&Message::Rej { ids, of, reason, private }), None);
    assert_eq!(note(&frame, "Reason"), "invalid service id");
}

#[test]
fn violations_are_named_with_their_requirement() {
    let mut datagram = sealed(&Message::Req(req()));
    datagram[100] ^= 1;
    let frame = explain(&datagram, Some(SEAL));
    assert_eq!(violations(&frame)[0].0, "ROCE-06");
    datagram[1] = 5;
    assert_eq!(violations(&explain(&datagram, None))[0].0, "ROCE-04");
    datagram[0] = 0xff;
    datagram[1] = 0;
    assert_eq!(violations(&explain(&datagram, None))[0].0, "ROCE-05");
    let frame = explain(&[0x0c; 20], None);
    assert_eq!((frame.what.as_str(), violations(&frame)[0].0), ("undecodable", "ROCE-04"));
    let frame = explain(&[0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], None);
    assert_eq!((frame.full_length, violations(&frame)[0].0), (32, "ROCE-01"));
}

// [ROCE-10]
#[test]
fn a_congestion_notification_has_reserved_octets_before_its_crc() {
    let mut octets = vec![0x81, 0, 0xff, 0xff, 0x40, 0, 1, 0x18, 0, 0, 0, 0];
    octets.extend([0; 16]);
    octets.extend([0x82, 0xfd, 0, 0x2a]);
    let frame = explain(&octets, None);
    let last: Vec<_> = frame.fields.iter().rev().map(|f| (f.name, f.offset, f.length)).collect();
    assert_eq!(last[..2], [("ICRC", 28, 4), ("Reserved", 12, 16)]);
    assert_eq!(frame.fields.last().unwrap().value, Value::Hex(0x82fd_002a, 8));
}

// What was not captured is neither shown nor judged.
#[test]
fn the_front_of_a_packet_is_explained() {
    let whole = sealed(&Message::Req(req()));
    for len in 0..whole.len() {
        let frame = explain_front(&whole[..len], whole.len());
        assert_eq!((frame.length, frame.full_length), (len, whole.len()));
        assert_eq!(violations(&frame), [], "{len}");
        assert!(frame.fields.iter().all(|field| field.name != "ICRC"), "{len}");
    }
    let frame = explain_front(&whole[..40], whole.len());
    assert_eq!(frame.what, "UD Send Only");
    assert_eq!(frame.fields.last().map(|f| (f.name, f.length)), Some(("Payload", 20)));
    let mut wrong = whole;
    wrong[1] = 5;
    assert_eq!(violations(&explain_front(&wrong[..40], wrong.len()))[0].0, "ROCE-04");
}

#[test]
fn another_identification_is_found() {
    let other =
        Ip::V4 { source: [127, 0, 0, 1], destination: [127, 0, 0, 1], id: 5, dont_fragment: true };
    let envelope = roce_proto::icrc::Envelope { ip: other, ..ENVELOPE };
    let frame =
        explain(&sealed(&Message::Req(req())), Some(Seal { kernel: crc32, envelope: &envelope }));
    let (requirement, text) = violations(&frame).remove(0);
    assert_eq!(requirement, "ROCE-06");
    assert!(
        text.ends_with("it would be right for IPv4 identification 0x0000, here 0x0005"),
        "{text}"
    );
}

proptest! {
    #[test]
    fn any_octets_are_explained(octets in proptest::collection::vec(any::<u8>(), 0..320), known: bool) {
        let mut octets = octets;
        if known && octets.len() > 12 {
            octets[..12].copy_from_slice(&[0x64, 0, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 1]);
        }
        let frame = explain(&octets, Some(SEAL));
        for field in &frame.fields {
            prop_assert!(field.offset + field.length <= octets.len());
        }
    }
}
