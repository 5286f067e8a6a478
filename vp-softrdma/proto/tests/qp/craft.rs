//! Test helpers: FPDUs built by hand, valid and invalid, and parsing of what a QP sent.
//!
//! Owner of the state: none. The peer is the test.

use iwarp_proto::Stag;
use iwarp_proto::mpa::{Parsed, Rx, Tx};
use iwarp_proto::wire::ddp::{Control, Header, TaggedRepr, UntaggedRepr};
use iwarp_proto::wire::rdmap::{self, AtomicRequestRepr, Opcode, ReadRequestRepr};
use iwarp_proto::wire::terminate::TerminateRepr;

use crate::common::crc32c;

/// Wraps a ULPDU, CRC on, no markers.
pub(crate) fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    wrap(ulpdu, true)
}
/// Wraps a ULPDU.
pub(crate) fn wrap(ulpdu: &[u8], crc: bool) -> Vec<u8> {
    let plan = Tx::new(crc.then_some(crc32c), false).plan(ulpdu.len() as u16);
    let head = [&plan.length_field()[..], ulpdu].concat();
    let mut frame = vec![0; plan.wire_len()];
    plan.encode(&head, &mut frame, |_, _| Ok::<_, ()>(())).expect("no payload to copy");
    frame
}
pub(crate) fn tagged(opcode: Opcode, last: bool, stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    fpdu(&tagged_ulpdu(opcode, last, stag, to, payload))
}
pub(crate) fn tagged_ulpdu(
    opcode: Opcode,
    last: bool,
    stag: u32,
    to: u64,
    payload: &[u8],
) -> Vec<u8> {
    let header = TaggedRepr {
        control: Control::new(true, last),
        ulp: rdmap::Control::new(opcode).0,
        stag: Stag(stag),
        to,
    };
    [&header.emit()[..], payload].concat()
}
/// Header of an untagged segment on the opcode's own queue.
pub(crate) fn header(opcode: Opcode, msn: u32, mo: u32, last: bool) -> UntaggedRepr {
    UntaggedRepr {
        control: Control::new(false, last),
        ulp: rdmap::Control::new(opcode).0,
        ulp_word: 0,
        qn: opcode.queue().unwrap_or(0),
        msn,
        mo,
    }
}
pub(crate) fn untagged(header: UntaggedRepr, payload: &[u8]) -> Vec<u8> {
    fpdu(&[&header.emit()[..], payload].concat())
}
/// A whole Send.
pub(crate) fn send(msn: u32, payload: &[u8]) -> Vec<u8> {
    untagged(header(Opcode::Send, msn, 0, true), payload)
}
pub(crate) fn write(stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    tagged(Opcode::Write, true, stag, to, payload)
}
pub(crate) fn read_request(msn: u32, request: ReadRequestRepr) -> Vec<u8> {
    untagged(header(Opcode::ReadRequest, msn, 0, true), &request.emit())
}
/// A Read Request for `size` octets at `to` of `stag`.
pub(crate) fn read_of(stag: u32, to: u64, size: u32) -> ReadRequestRepr {
    let (source_stag, source_to) = (Stag(stag), to);
    ReadRequestRepr { sink_stag: Stag(0xbeef), sink_to: 0x9000, size, source_stag, source_to }
}
pub(crate) fn atomic_request(msn: u32, request: AtomicRequestRepr) -> Vec<u8> {
    untagged(header(Opcode::AtomicRequest, msn, 0, true), &request.emit())
}
/// FetchAdd of 1, request identifier 1.
pub(crate) fn add_at(stag: u32, to: u64) -> AtomicRequestRepr {
    AtomicRequestRepr {
        operation: rdmap::atomic::FETCH_ADD,
        request_id: 1,
        stag: Stag(stag),
        to,
        data: 1,
        mask: 0,
        compare: 0,
        compare_mask: u64::MAX,
    }
}

/// Header and payload of each FPDU, CRC on.
pub(crate) fn decode(octets: &[u8]) -> Vec<(Header, Vec<u8>)> {
    decode_with(&mut Rx::new(Some(crc32c), false), octets)
}
pub(crate) fn decode_with(rx: &mut Rx, mut octets: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let mut fpdus = Vec::new();
    while !octets.is_empty() {
        let Parsed::Fpdu(fpdu) = rx.parse(octets) else { panic!("a whole, valid FPDU") };
        let ulpdu: Vec<u8> = fpdu.pieces(0).flatten().copied().collect();
        let header = Header::parse(&ulpdu).expect("a header");
        fpdus.push((header, ulpdu[header.buffer_len()..].to_vec()));
        assert!(fpdu.wire_len() > 0, "an FPDU has octets");
        octets = &octets[fpdu.wire_len()..];
    }
    fpdus
}
/// Opcode of each FPDU.
pub(crate) fn opcodes(octets: &[u8]) -> Vec<Opcode> {
    decode(octets).iter().map(|(h, _)| opcode(h)).collect()
}
pub(crate) fn opcode(header: &Header) -> Opcode {
    rdmap::Control(header.ulp()).opcode().expect("an assigned opcode")
}
/// The Terminate that must be the only FPDU.
pub(crate) fn terminate(octets: &[u8]) -> TerminateRepr {
    let fpdus = decode(octets);
    let [(header, payload)] = &fpdus[..] else { panic!("one FPDU, not {fpdus:?}") };
    assert_eq!(opcode(header), Opcode::Terminate);
    let Header::Untagged(h) = header else { panic!("untagged") };
    // RFC 5040 4.8 [RDMAP-20]
    assert_eq!((h.qn, h.msn, h.mo, h.control.last()), (2, 1, 0, true));
    TerminateRepr::parse(payload).expect("a control word")
}
/// Layer, type and code as the first two octets, and M, D, R.
pub(crate) fn verdict(octets: &[u8]) -> (u16, u8) {
    let terminate = terminate(octets);
    let mdr = u8::from(terminate.segment_length.is_some()) << 2
        | u8::from(terminate.ddp.is_some()) << 1
        | u8::from(terminate.read_request.is_some());
    (terminate.code.word(), mdr)
}
/// FetchAdd bit by bit: a set mask bit is the top of a field, its carry is dropped (RFC 7306 5.1.1).
pub(crate) fn add_slowly(old: u64, add: u64, mask: u64) -> u64 {
    let (mut sum, mut carry) = (0u64, 0u64);
    for bit in 0..64 {
        let total = (old >> bit & 1) + (add >> bit & 1) + carry;
        sum |= (total & 1) << bit;
        carry = if mask >> bit & 1 == 1 { 0 } else { total >> 1 };
    }
    sum
}
