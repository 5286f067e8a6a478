//! Parses messages of the peer. Pure functions.

use iwarp_proto::TerminateCode;
use iwarp_proto::wire::ddp::Header;
use iwarp_proto::wire::rdmap::{Control, Opcode, ReadRequestRepr};
use iwarp_proto::wire::terminate::TerminateRepr;

/// The kind of a message.
pub(super) fn kind(ulpdu: &[u8]) -> Option<Opcode> {
    Control(*ulpdu.get(1)?).opcode()
}

/// Everything after the DDP header.
pub(super) fn payload(ulpdu: &[u8]) -> &[u8] {
    let length = Header::parse(ulpdu).map_or(ulpdu.len(), |header| header.buffer_len());
    &ulpdu[length..]
}

/// The last segment of its message.
pub(super) fn last(ulpdu: &[u8]) -> bool {
    Header::parse(ulpdu).is_ok_and(|header| header.control().last())
}

/// An RDMA Read Request.
pub(super) fn read_request(ulpdu: &[u8]) -> Option<ReadRequestRepr> {
    (kind(ulpdu)? == Opcode::ReadRequest).then(|| ReadRequestRepr::parse(payload(ulpdu)).ok())?
}

/// STag, TO and payload of a tagged segment.
pub(super) fn tagged(ulpdu: &[u8]) -> Option<(u32, u64, &[u8])> {
    match Header::parse(ulpdu) {
        Ok(Header::Tagged(header)) => Some((header.stag.0, header.to, payload(ulpdu))),
        _ => None,
    }
}

/// A Terminate as received, and as sent by a peer that uses C bit-fields on a little-endian machine: layer and
/// type are swapped, and so are the flags [IOP-10].
#[derive(Clone, Debug)]
pub(super) struct Terminate {
    pub(super) repr: TerminateRepr,
    pub(super) swapped: TerminateRepr,
    /// Octets of its payload.
    pub(super) length: usize,
}

pub(super) fn terminate(ulpdu: &[u8]) -> Option<Terminate> {
    if kind(ulpdu)? != Opcode::Terminate {
        return None;
    }
    let octets = payload(ulpdu);
    let repr = TerminateRepr::parse(octets).ok()?;
    let mut other = octets.to_vec();
    other[0] = other[0].rotate_left(4);
    other[2] = other[2].reverse_bits();
    let swapped = TerminateRepr::parse(&other).ok()?;
    Some(Terminate { repr, swapped, length: octets.len() })
}

/// Layer, type and code as text.
pub(super) fn triple(code: TerminateCode) -> String {
    format!("{}/{}/{:x}", code.layer, code.etype, code.code)
}

/// A ULPDU as text.
pub(super) fn describe(ulpdu: &[u8]) -> String {
    match (kind(ulpdu), terminate(ulpdu)) {
        (_, Some(terminate)) => format!("Terminate {}", terminate.repr.code),
        (Some(opcode), None) => opcode.name().into(),
        (None, None) => "a message with an unassigned opcode".into(),
    }
}
