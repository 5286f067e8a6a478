//! Conversion of asynchronous events between Rust and C. No state.

use super::types as c;
use super::types::Sized32;
use crate::{AsyncEvent, CqId, EventSource, QpId, SrqId, Terminate};

pub(super) fn terminate_to(t: Terminate) -> c::Terminate {
    c::Terminate { sent: t.sent.into(), layer: t.layer, etype: t.etype, code: t.code }
}

pub(super) fn terminate_from(t: c::Terminate) -> Terminate {
    Terminate::new(t.sent != 0, t.layer, t.etype, t.code)
}

pub(super) fn to(source: EventSource, event: AsyncEvent) -> c::AsyncEvent {
    let mut out = c::AsyncEvent::blank();
    (out.source, out.id) = match source {
        EventSource::Qp(id) => (1, id.0),
        EventSource::Cq(id) => (2, id.0),
        EventSource::Srq(id) => (3, id.0),
        EventSource::Rnic => (4, 0),
        EventSource::Port(port) => (5, port),
    };
    out.event = match event {
        AsyncEvent::Established => 1,
        AsyncEvent::CloseComplete => 2,
        AsyncEvent::TerminateReceived(t) => {
            out.terminate = terminate_to(t);
            3
        }
        AsyncEvent::TerminateSent(t) => {
            out.terminate = terminate_to(t);
            4
        }
        AsyncEvent::ConnectionReset => 5,
        AsyncEvent::ConnectionLost => 6,
        AsyncEvent::BadClose => 7,
        AsyncEvent::CqOverrun => 8,
        AsyncEvent::SrqLimit => 9,
        AsyncEvent::RecvLimit => 10,
        AsyncEvent::PortState { online } => {
            out.online = online.into();
            11
        }
        AsyncEvent::Catastrophic => 12,
        // It has no number in C, because no provider reports it.
        AsyncEvent::ListenShortage { .. } => 0,
    };
    out
}

/// `None` for an event that this version does not know.
pub(super) fn from(event: &c::AsyncEvent) -> Option<(EventSource, AsyncEvent)> {
    let source = match event.source {
        1 => EventSource::Qp(QpId(event.id)),
        2 => EventSource::Cq(CqId(event.id)),
        3 => EventSource::Srq(SrqId(event.id)),
        4 => EventSource::Rnic,
        5 => EventSource::Port(event.id),
        _ => return None,
    };
    let what = match event.event {
        1 => AsyncEvent::Established,
        2 => AsyncEvent::CloseComplete,
        3 => AsyncEvent::TerminateReceived(terminate_from(event.terminate)),
        4 => AsyncEvent::TerminateSent(terminate_from(event.terminate)),
        5 => AsyncEvent::ConnectionReset,
        6 => AsyncEvent::ConnectionLost,
        7 => AsyncEvent::BadClose,
        8 => AsyncEvent::CqOverrun,
        9 => AsyncEvent::SrqLimit,
        10 => AsyncEvent::RecvLimit,
        11 => AsyncEvent::PortState { online: event.online != 0 },
        12 => AsyncEvent::Catastrophic,
        _ => return None,
    };
    Some((source, what))
}
