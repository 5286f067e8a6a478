//! Parameters and events of a native connection manager, both ways. No state.

use super::types::Sized32;
use super::{codes, grow, net, text, types as c};
use crate::{NativeEvent, NativeParams, QpId};

/// Good as long as `params` is.
pub(super) fn params_to(params: &NativeParams) -> c::CmParams {
    c::CmParams {
        ird: params.ird.into(),
        ord: params.ord.into(),
        private_len: params.private_data.len() as u32,
        private_data: params.private_data.as_ptr(),
        ..c::CmParams::blank()
    }
}

/// # Safety
///
/// `params` is null, or points to parameters as the header demands.
pub(super) unsafe fn params_from(params: *const c::CmParams) -> NativeParams {
    if params.is_null() {
        return NativeParams { private_data: Vec::new(), ird: 0, ord: 0 };
    }
    // SAFETY: the caller's promise.
    let params = unsafe { grow::read(params) };
    let small = |number: u32| number.min(u16::MAX.into()) as u16;
    NativeParams {
        // SAFETY: the same.
        private_data: unsafe { text::octets(params.private_data, params.private_len.into()) },
        ird: small(params.ird),
        ord: small(params.ord),
    }
}

/// Calls `with` with the event as the header has it.
pub(super) fn lend_event(event: &NativeEvent, with: impl FnOnce(&c::CmEvent)) {
    let mut out = c::CmEvent::blank();
    let lent;
    match event {
        NativeEvent::Request { listener, request, peer, params } => {
            (out.kind, out.listener, out.request) = (codes::cm::REQUEST, *listener, *request);
            out.peer = net::address_to(Some(*peer));
            lent = params_to(params);
            out.params = &lent;
        }
        NativeEvent::Established { qp, params } => {
            (out.kind, out.qp) = (codes::cm::ESTABLISHED, qp.0);
            lent = params_to(params);
            out.params = &lent;
        }
        NativeEvent::Rejected { qp, private_data } => {
            (out.kind, out.qp) = (codes::cm::REJECTED, qp.0);
            lent = c::CmParams {
                private_len: private_data.len() as u32,
                private_data: private_data.as_ptr(),
                ..c::CmParams::blank()
            };
            out.params = &lent;
        }
        NativeEvent::Failed { qp, reason } => {
            (out.kind, out.qp) = (codes::cm::FAILED, qp.0);
            out.reason = text::lend(reason);
        }
        NativeEvent::Disconnected { qp } => {
            (out.kind, out.qp) = (codes::cm::DISCONNECTED, qp.0);
        }
    }
    with(&out);
}

/// `None`: an event that this version does not know.
///
/// # Safety
///
/// `event` points to one as the header demands.
pub(super) unsafe fn event_from(event: *const c::CmEvent) -> Option<NativeEvent> {
    // SAFETY: the caller's promise.
    let event = unsafe { grow::read(event) };
    // SAFETY: the same.
    let params = unsafe { params_from(event.params) };
    let qp = QpId(event.qp);
    Some(match event.kind {
        codes::cm::REQUEST => NativeEvent::Request {
            listener: event.listener,
            request: event.request,
            peer: net::address_from(&event.peer)?,
            params,
        },
        codes::cm::ESTABLISHED => NativeEvent::Established { qp, params },
        codes::cm::REJECTED => NativeEvent::Rejected { qp, private_data: params.private_data },
        codes::cm::FAILED => {
            // SAFETY: the same.
            NativeEvent::Failed { qp, reason: unsafe { text::copy(event.reason) } }
        }
        codes::cm::DISCONNECTED => NativeEvent::Disconnected { qp },
        _ => return None,
    })
}
