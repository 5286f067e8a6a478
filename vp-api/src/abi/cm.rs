//! Conversion of a native connection manager's parameters and events between Rust and C. No state.

use super::types::Sized32;
use super::{codes, grow, net, text, types as c};
use crate::{NativeEvent, NativeParams, QpId, RnicAttrs};

/// Octets of private data assumed for a device that does not declare how many it carries.
const MPA: u32 = 512;

/// Converts parameters; the result is valid as long as `params` is.
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

/// Calls `with` with the event in its C form.
pub(super) fn lend_event(event: &NativeEvent, with: impl FnOnce(&c::CmEvent)) {
    let mut out = c::CmEvent::blank();
    let lent;
    match event {
        NativeEvent::Request { listener, request, peer, local, params } => {
            (out.kind, out.listener, out.request) = (codes::cm::REQUEST, *listener, *request);
            (out.peer, out.local) = (net::address_to(Some(*peer)), net::address_to(*local));
            lent = params_to(params);
            out.params = &lent;
        }
        NativeEvent::Established { qp, local, params } => {
            (out.kind, out.qp) = (codes::cm::ESTABLISHED, qp.0);
            out.local = net::address_to(*local);
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

/// Octets of private data that a device declares for each kind of message.
pub(super) struct Most {
    connect: u32,
    accept: u32,
    reject: u32,
}

/// The error for an event whose private data is longer than the device declares.
pub(super) struct Broken {
    pub(super) request: bool,
    pub(super) id: u64,
    pub(super) why: String,
}

impl Most {
    pub(super) fn of(attrs: &RnicAttrs) -> Self {
        let most = |says: u32| if says == 0 { MPA } else { says };
        Self {
            connect: most(attrs.max_private_connect),
            accept: most(attrs.max_private_accept),
            reject: most(attrs.max_private_reject),
        }
    }

    /// # Safety
    ///
    /// As for [`event_from`].
    unsafe fn check(&self, event: &c::CmEvent) -> Result<(), Broken> {
        let request = event.kind == codes::cm::REQUEST;
        let most = match event.kind {
            codes::cm::REQUEST => self.connect,
            codes::cm::REJECTED => self.reject,
            // The accepting side receives the request's private data.
            _ => self.accept.max(self.connect),
        };
        if event.params.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let params = unsafe { grow::read(event.params) };
        let len = params.private_len;
        if len <= most && (len == 0 || !params.private_data.is_null()) {
            return Ok(());
        }
        let why = match len > most {
            true => format!("{len} octets of private data, and the device declares {most}"),
            false => format!("{len} octets of private data, and no pointer to them"),
        };
        let why = format!("defect in the provider: its event of kind {} says {why}", event.kind);
        Err(Broken { request, id: if request { event.request } else { event.qp.into() }, why })
    }
}

/// An error means private data longer than declared; `None` an event that this version does not know.
///
/// # Safety
///
/// `event` points to one as the header demands.
pub(super) unsafe fn event_from(
    event: *const c::CmEvent,
    most: &Most,
) -> Result<Option<NativeEvent>, Broken> {
    // SAFETY: the caller's promise.
    let event = unsafe { grow::read(event) };
    // SAFETY: the same.
    unsafe { most.check(&event) }?;
    // SAFETY: the same.
    Ok(unsafe { known_event(&event) })
}

/// # Safety
///
/// `event` is one as the header demands.
unsafe fn known_event(event: &c::CmEvent) -> Option<NativeEvent> {
    // SAFETY: the caller's promise.
    let params = unsafe { params_from(event.params) };
    let (qp, local) = (QpId(event.qp), net::address_from(&event.local));
    Some(match event.kind {
        codes::cm::REQUEST => NativeEvent::Request {
            listener: event.listener,
            request: event.request,
            peer: net::address_from(&event.peer)?,
            local,
            params,
        },
        codes::cm::ESTABLISHED => NativeEvent::Established { qp, local, params },
        codes::cm::REJECTED => NativeEvent::Rejected { qp, private_data: params.private_data },
        codes::cm::FAILED => {
            // SAFETY: the same.
            NativeEvent::Failed { qp, reason: unsafe { text::line(event.reason) } }
        }
        codes::cm::DISCONNECTED => NativeEvent::Disconnected { qp },
        _ => return None,
    })
}
