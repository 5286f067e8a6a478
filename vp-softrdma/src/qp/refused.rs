//! Description of a refused segment for the consumer: its operation, octets and place, and the local
//! memory that it names. No state; used under the QP's lock when a stream ends.

use iwarp_proto::wire::ddp::Header;
use iwarp_proto::wire::rdmap::{AtomicRequestRepr, Control, Opcode};
use iwarp_proto::{Qp, TerminateCode};
use vp_api::{RefusedOperation, RefusedSegment, Stag, Terminate};

use crate::qp::context::Context;

/// The Terminate of a stream as the verbs name it.
pub(crate) fn terminate(
    proto: &Qp,
    sent: bool,
    code: TerminateCode,
    context: &Context,
) -> Terminate {
    let mut terminate = Terminate::new(sent, code.layer, code.etype, code.code);
    // The last Terminate is a different one if this one could not be sent.
    if proto.last_terminate() == Some((sent, code)) {
        terminate.refused = proto.refused_segment().map(|segment| {
            let mut refused = describe(&segment);
            refused.region = refused
                .target
                .filter(|_| sent)
                .and_then(|(stag, _)| context.table.describe(stag, &context.caller));
            refused
        });
    }
    terminate
}

/// The contents of the header.
fn describe(segment: &iwarp_proto::RefusedSegment) -> RefusedSegment {
    let header = segment.header;
    let payload = segment.segment_length.map_or(0, u32::from);
    let payload = payload.saturating_sub(header.buffer_len() as u32);
    let request = segment.read_request;
    let target = match header {
        Header::Tagged(h) => Some((Stag(h.stag.0), h.to)),
        Header::Untagged(_) => request
            .map(|read| (read.source_stag, read.source_to))
            .or(segment.atomic)
            .map(|(stag, to)| (Stag(stag.0), to)),
    };
    let operation = operation(&header);
    let all = match operation {
        // RFC 7306 5.2: 8 octets of memory, whatever the length of the request.
        RefusedOperation::Atomic if payload as usize >= AtomicRequestRepr::LEN => Some(8),
        _ => segment.request_octets.or(request.map(|read| read.size)),
    };
    // The last segment of a message is the whole message if it is also the first; a tagged header does
    // not say.
    let first = !matches!(header, Header::Untagged(h) if h.mo != 0);
    let whole = all.is_some() || (first && header.control().last());
    RefusedSegment { operation, octets: all.unwrap_or(payload), whole, target, region: None }
}

fn operation(header: &Header) -> RefusedOperation {
    match Control(header.ulp()).opcode() {
        Some(Opcode::Write) => RefusedOperation::Write,
        Some(Opcode::ReadRequest) => RefusedOperation::Read,
        Some(Opcode::ReadResponse) => RefusedOperation::ReadResponse,
        Some(Opcode::AtomicRequest) => RefusedOperation::Atomic,
        Some(Opcode::AtomicResponse) => RefusedOperation::AtomicResponse,
        Some(Opcode::Immediate | Opcode::ImmediateSolicited) => RefusedOperation::Immediate,
        Some(
            Opcode::Send
            | Opcode::SendInvalidate
            | Opcode::SendSolicited
            | Opcode::SendSolicitedInvalidate
            | Opcode::SendImmediate
            | Opcode::SendImmediateSolicited,
        ) => RefusedOperation::Send,
        Some(Opcode::Terminate) | None => RefusedOperation::Unknown,
    }
}
