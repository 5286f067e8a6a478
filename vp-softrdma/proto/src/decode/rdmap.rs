//! Explains RDMAP: control octet and message headers (RFC 5040 section 4, RFC 7306).
//!
//! Owner of the state: none, pure functions. Any thread. Missing octets are reported.

use alloc::format;
use alloc::string::ToString;

use super::fields::Fields;
use super::{Layer, Violation};
use crate::ProtocolError;
use crate::wire::ddp;
use crate::wire::rdmap::{
    AtomicRequestRepr, AtomicResponseRepr, Control, ImmediateRepr, Opcode, ReadRequestRepr,
    VERSION, atomic,
};
use crate::wire::terminate::TerminateRepr;

/// What the headers of an untagged message said, for the checks of its payload.
pub(super) struct Untagged {
    pub(super) opcode: Option<Opcode>,
    pub(super) last: bool,
    /// Octets after the DDP header.
    pub(super) len: usize,
}

impl Untagged {
    /// Length of a message that is only a header, in one segment.
    const fn fixed_len(&self) -> Option<usize> {
        match self.opcode {
            Some(Opcode::ReadRequest) => Some(ReadRequestRepr::LEN),
            Some(Opcode::AtomicRequest) => Some(AtomicRequestRepr::LEN),
            Some(Opcode::AtomicResponse) => Some(AtomicResponseRepr::LEN),
            Some(Opcode::Immediate | Opcode::ImmediateSolicited) => Some(ImmediateRepr::LEN),
            _ => None,
        }
    }
}

/// RDMAP's control octet, which lies in DDP's header.
pub(super) fn control(fields: &mut Fields<'_>, ddp: ddp::Control) -> Option<Opcode> {
    let control = Control(*fields.rest().first()?);
    let opcode = control.opcode();
    let experimental = opcode.is_some_and(|opcode| opcode.experimental());
    fields.layer(Layer::Rdmap);
    fields.bits("RV", 0, 2);
    if control.version() != VERSION {
        // [RDMAP-01, ERR-06]
        fields.breaks(Violation::of("RDMAP-01", ProtocolError::RdmapVersion));
    }
    if fields.bits("RDMAP Rsv", 2, 2).is_some_and(|bits| bits != 0) && !experimental {
        fields.note("reserved, ignored");
    }
    fields.bits("Opcode", 4, 4);
    let name = opcode.map_or("unassigned", |opcode| opcode.name());
    match experimental {
        // The FPDU does not say whether the ends agreed on it, so it breaks no rule here.
        true => fields.note(format!("{name}, between ends that agreed on it")),
        false => fields.note(name),
    }
    if opcode.is_none_or(|opcode| opcode.tagged() != ddp.tagged()) {
        // [RDMAP-02, ERR-07]
        fields.breaks(Violation::of("RDMAP-02", ProtocolError::Opcode));
    }
    fields.advance();
    fields.layer(Layer::Ddp);
    opcode
}

/// A stream carries one Terminate, the first of its queue.
pub(super) fn judge_msn(fields: &mut Fields<'_>, message: &Untagged, msn: Option<u64>) {
    if message.opcode == Some(Opcode::Terminate) && msn.is_some_and(|msn| msn != 1) {
        // [RDMAP-20, ERR-10]
        fields.breaks(Violation::of("RDMAP-20", ProtocolError::MsnRange));
    }
}

/// Messages that are one segment begin at 0.
pub(super) fn judge_offset(fields: &mut Fields<'_>, message: &Untagged, mo: Option<u64>) {
    let single = message.fixed_len().is_some() || message.opcode == Some(Opcode::Terminate);
    if single && mo.is_some_and(|mo| mo != 0) {
        // [DDP-07, ERR-11]
        fields.breaks(Violation::of("DDP-07", ProtocolError::MessageOffset));
    }
}

/// The message's own header.
pub(super) fn payload(fields: &mut Fields<'_>, message: &Untagged) {
    judge_length(fields, message);
    fields.layer(Layer::Rdmap);
    match message.opcode {
        Some(Opcode::ReadRequest) => read_request(fields),
        Some(Opcode::AtomicRequest) => atomic_request(fields),
        Some(Opcode::AtomicResponse) => {
            fields.hex("Original Request Identifier", 4);
            fields.hex("Original Remote Data Value", 8);
        }
        Some(Opcode::Immediate | Opcode::ImmediateSolicited) => {
            fields.hex("Immediate Data", 8);
        }
        Some(Opcode::Terminate) => terminate(fields, message.len),
        _ => {}
    }
}

/// Checked at the field before the payload, which is present even if the payload is not.
fn judge_length(fields: &mut Fields<'_>, message: &Untagged) {
    if message.opcode == Some(Opcode::Terminate) && !message.last {
        // RFC 5040 4.8 [RDMAP-20]; nothing is sent for a Terminate [RDMAP-32].
        let text = "a terminate is one segment, but its l bit is 0".into();
        return fields.breaks(Violation::close("RDMAP-20", text));
    }
    let Some(due) = message.fixed_len() else { return };
    let violation = match message.opcode {
        Some(Opcode::Immediate | Opcode::ImmediateSolicited) if message.len != due => {
            // [EXT-02]
            Violation::of("EXT-02", ProtocolError::ImmediateLength)
        }
        Some(Opcode::AtomicResponse) if message.len != due => {
            // [EXT-10]
            Violation::of("EXT-10", ProtocolError::AtomicResponse)
        }
        // [RDMAP-04, EXT-04, ERR-21, ERR-22, ERR-23]
        opcode if message.len < due => {
            Violation::of(request_requirement(opcode), ProtocolError::RequestShort)
        }
        opcode if message.len > due => {
            Violation::of(request_requirement(opcode), ProtocolError::RequestLong)
        }
        opcode if !message.last => {
            Violation::of(request_requirement(opcode), ProtocolError::NotLast)
        }
        _ => return,
    };
    fields.breaks(violation);
}

fn request_requirement(opcode: Option<Opcode>) -> &'static str {
    match opcode {
        Some(Opcode::ReadRequest) => "RDMAP-04",
        Some(Opcode::AtomicRequest) => "EXT-04",
        Some(Opcode::AtomicResponse) => "EXT-10",
        _ => "EXT-02",
    }
}

fn read_request(fields: &mut Fields<'_>) {
    fields.hex("Sink STag", 4);
    fields.hex("Sink TO", 8);
    let size = fields.number("RDMA Read Message Size", 4);
    let stag = fields.hex("Source STag", 4);
    if size == Some(0) {
        fields.note("not checked: nothing is read");
    } else if stag == Some(0) {
        // [VERBS-23, ERR-18]
        fields.breaks(Violation::of("VERBS-23", ProtocolError::ReadStag));
    }
    let to = fields.hex("Source TO", 8);
    if let (Some(size @ 1..), Some(to)) = (size, to)
        && to.checked_add(size - 1).is_none()
    {
        // [RDMAP-07, ERR-18]
        fields.breaks(Violation::of("RDMAP-07", ProtocolError::ReadWrap));
    }
}

fn atomic_request(fields: &mut Fields<'_>) {
    fields.hex("Reserved", 3);
    fields.bits("Reserved", 0, 4);
    match fields.bits("AOpCode", 4, 4) {
        Some(atomic::FETCH_ADD) => fields.note("FetchAdd"),
        Some(atomic::CMP_SWAP) => fields.note("CmpSwap"),
        // [EXT-05]
        Some(_) => fields.breaks(Violation::of("EXT-05", ProtocolError::AtomicOpcode)),
        None => {}
    }
    fields.advance();
    fields.hex("Request Identifier", 4);
    if fields.hex("Remote STag", 4) == Some(0) {
        // [VERBS-23, EXT-15]
        fields.breaks(Violation::of("VERBS-23", ProtocolError::AtomicStag));
    }
    if fields.hex("Remote Tagged Offset", 8).is_some_and(|to| to.checked_add(7).is_none()) {
        // [EXT-15]
        fields.breaks(Violation::of("EXT-15", ProtocolError::AtomicWrap));
    }
    fields.hex("Add or Swap Data", 8);
    fields.hex("Add or Swap Mask", 8);
    fields.hex("Compare Data", 8);
    fields.hex("Compare Mask", 8);
}

fn terminate(fields: &mut Fields<'_>, len: usize) {
    let Ok(repr) = TerminateRepr::parse(fields.rest()) else {
        fields.octets("Terminate Control", 4);
        if len < 4 {
            // [RDMAP-32, ERR-26]
            fields.breaks(Violation::of("RDMAP-32", ProtocolError::MalformedTerminate));
        }
        return;
    };
    fields.bits("Layer", 0, 4);
    fields.bits("EType", 4, 4);
    fields.advance();
    fields.hex("Error Code", 1);
    match repr.swapped_code() {
        None => fields.note(repr.code.to_string()),
        Some(meant) => fields.note(format!("{}; nibbles swapped, means {meant}", repr.code)),
    }
    let m = fields.bits("M", 0, 1) == Some(1);
    let d = fields.bits("D", 1, 1) == Some(1);
    let r = fields.bits("R", 2, 1) == Some(1);
    let whole = fields.remaining() + 2 == len;
    if whole && ((r && repr.read_request.is_none()) || (d && repr.ddp.is_none())) {
        fields.note("announces a header that is not there");
    }
    fields.bits("Reserved", 3, 5);
    fields.advance();
    fields.octets("Reserved", 1);
    if !(m || d) {
        return;
    }
    fields.number("DDP Segment Length", 2);
    if let Some(header) = repr.ddp {
        fields.octets("Terminated DDP Header", header.buffer_len());
    }
    if repr.read_request.is_some() {
        fields.octets("Terminated RDMA Header", ReadRequestRepr::LEN);
    }
    fields.octets("cut-off header", fields.remaining());
}
