//! Tests of what a capture records of FPDUs, and of the split of received octets into FPDUs. Whole captures are
//! tested with processes.

use std::os::fd::AsFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::*;

fn open(payload: u32, skip: usize) -> Open {
    Open {
        facts: Facts::default(),
        qp: 1,
        ends: String::new(),
        announced: false,
        payload,
        position: 0,
        skip,
        front: Vec::new(),
        taken: 0,
        records: Vec::new(),
        count: 0,
    }
}

/// An FPDU with a payload of so many octets.
fn fpdu(tagged: bool, opcode: u8, payload: usize) -> Vec<u8> {
    let header = if tagged { 14 } else { 18 };
    let mut octets = ((header + payload) as u16).to_be_bytes().to_vec();
    octets.extend_from_slice(&[if tagged { 0xC1 } else { 0x41 }, 0x40 | opcode]);
    octets.resize(2 + header, 7);
    octets.extend((0..payload).map(|n| n as u8));
    octets.resize(mpa::fpdu_len((header + payload) as u16), 9);
    octets
}

fn all() -> Vec<Vec<u8>> {
    vec![
        fpdu(true, 0, 1000),
        fpdu(false, 3, 0),
        fpdu(false, 3, 1),
        fpdu(false, 1, 28),
        fpdu(true, 2, 64_000),
        fpdu(false, 7, 20),
        fpdu(false, 5, 33),
        fpdu(true, 0, 0),
    ]
}

/// Position, octets on the wire and content of each record.
fn records(of: &Open) -> Vec<(u64, u32, Vec<u8>)> {
    let mut rest = &of.records[..];
    let mut found = Vec::new();
    while let Some(record) = Record::take(&mut rest).unwrap() {
        found.push((record.position, record.octets, record.content.to_vec()));
    }
    assert!(rest.is_empty());
    found
}

/// The records of whole FPDUs, from a first position on.
fn expected(payload: u32, mut position: u64) -> Vec<(u64, u32, Vec<u8>)> {
    let mut due = Vec::new();
    for fpdu in all() {
        let kept = kept(&fpdu, fpdu.len(), payload);
        due.push((position, fpdu.len() as u32, fpdu[..kept].to_vec()));
        position += fpdu.len() as u64;
    }
    due
}

#[test]
fn headers_are_kept_and_as_much_payload_as_asked_for() {
    let kept = |fpdu: Vec<u8>, payload| kept(&fpdu, fpdu.len(), payload);
    // A Write and a Send: headers of 16 and 20 octets.
    assert_eq!([0, 1, 99].map(|payload| kept(fpdu(true, 0, 100), payload)), [16, 17, 115]);
    assert_eq!([0, 99].map(|payload| kept(fpdu(false, 3, 100), payload)), [20, 119]);
    assert_eq!(kept(fpdu(true, 0, 100), 100), fpdu(true, 0, 100).len());
    // These have no payload: a Read Request, a Terminate, an empty Send.
    for whole in [fpdu(false, 1, 28), fpdu(false, 7, 30), fpdu(false, 3, 0)] {
        assert_eq!(kept(whole.clone(), 0), whole.len());
    }
}

#[test]
fn octets_are_split_into_fpdus_wherever_they_are_cut() {
    let stream: Vec<u8> = all().concat();
    for payload in [0, 1, 40, 65_535] {
        for step in [1, 2, 3, 5, 19, 20, 21, 100, 999, 70_000] {
            // The end of an FPDU that had begun comes first.
            let mut open = open(payload, 11);
            let whole = [&[0; 11], &stream[..]].concat();
            whole.chunks(step).for_each(|octets| open.take(Kind::Received, octets));
            // Records after the first message were sent, and are not read.
            let (found, due) = (records(&open), expected(payload, 11));
            assert_eq!(found[..], due[due.len() - found.len()..], "{payload} {step}");
            assert_eq!(open.position, whole.len() as u64);
        }
    }
}

#[test]
fn payload_that_passes_elsewhere_counts() {
    let write = fpdu(true, 0, 60_000);
    let mut open = open(0, 0);
    for _ in 0..3 {
        open.take(Kind::Received, &write[..100]);
        open.pass(Kind::Received, 50_000);
        open.pass(Kind::Received, write.len() - 50_104);
        open.take(Kind::Received, &write[write.len() - 4..]);
    }
    let due = [0, 1, 2].map(|n| (n * write.len() as u64, write.len() as u32, write[..16].to_vec()));
    assert_eq!(records(&open), due);
}

#[test]
fn only_a_socket_of_the_right_kind_with_memory_is_taken() {
    let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (empty, _other) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
    for socket in [stream.as_fd(), empty.as_fd()] {
        assert_eq!(begin(socket, 0).unwrap_err().status, VpStatus::InvalidModifier);
    }
    assert_eq!(end(77).unwrap_err().status, VpStatus::InvalidModifier);
}
