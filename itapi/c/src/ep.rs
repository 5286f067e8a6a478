//! Endpoints for connections: creation, attributes, reset. `any_ep` has the calls that endpoints for
//! datagrams have, too.
//!
//! The object owns the access layer's endpoint, what C posted on it ([`Ring`]), and what it was granted.
//! Any thread; a lock per queue and one for the attributes, none of them shared with other endpoints.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use kal_os::lock;
use ual::vp_api::{Capabilities, QpId, VpStatus};
use ual::{ConnEvent, EpState, Ia, Stream};

use super::attr::Attributes;
use super::evd::dispatcher;
use super::failure::{Failure, Outcome};
use super::object::{CloseOrder, Kind, Object, Ref};
use super::ptr::{self, Out};
use super::pz::PzObject;
use super::ring::Ring;
use super::srq::SrqObject;
use super::status::{self, Status};
use super::types::*;
use super::{boundary, check_bits, object, path};

/// The object behind the handle of an endpoint.
pub(crate) struct EpObject {
    pub(crate) inner: Arc<ual::Ep>,
    /// Its own handle.
    pub(crate) handle: u64,
    /// Its slot in the table of handles: part of the ids of its work requests.
    pub(crate) slot: u32,
    pub(crate) qp: QpId,
    /// The request that it accepted, until it is reset; else 0.
    pub(crate) cn_est_id: AtomicU64,
    /// The send queue's requests.
    pub(crate) sends: Ring,
    /// The receive queue's requests.
    pub(crate) receives: Ring,
    attributes: Mutex<Attributes>,
    /// Segments that a send, a receive, and an RDMA Write may have.
    pub(crate) segments: [u32; 3],
    /// Octets that a request may move.
    pub(crate) payload: AtomicU64,
    /// The handle of its adapter.
    pub(crate) ia: u64,
    pub(crate) request_sevd: u64,
    pub(crate) recv_sevd: u64,
    connect_sevd: u64,
    /// The connection event that was dequeued last, for its text.
    last_event: Mutex<Option<Box<ConnEvent>>>,
}

impl Object for EpObject {
    fn kind() -> &'static Kind {
        &Kind { number: IT_HANDLE_TYPE_EP, name: "endpoint", wrong: status::IT_ERR_INVALID_EP }
    }

    fn ia(&self) -> Arc<Ia> {
        self.inner.ia().clone()
    }

    fn close_order(&self) -> CloseOrder {
        CloseOrder::Endpoints
    }

    fn close(&self) -> ual::Result<()> {
        self.inner.close()
    }
}

impl EpObject {
    /// May link regions.
    pub(crate) fn is_privileged(&self) -> bool {
        lock(&self.attributes).is_privileged()
    }

    /// Remembers the connection event that was dequeued last.
    pub(crate) fn set_last_event(&self, event: Box<ConnEvent>) {
        *lock(&self.last_event) = Some(event);
    }

    /// The connection event that was dequeued last.
    pub(crate) fn last_event(&self) -> Option<Box<ConnEvent>> {
        lock(&self.last_event).clone()
    }
}

/// The shared receive queue of the attributes, if the flags enable it.
fn shared_queue(
    flags: it_ep_rc_creation_flags_t,
    attr: &it_ep_attributes_t,
    ia: &Arc<Ia>,
) -> Outcome<Option<Ref<SrqObject>>> {
    if flags & IT_EP_SRQ == 0 {
        return Ok(None);
    }
    if !ia.attrs().capabilities.contains(Capabilities::SRQ) {
        let text = format!("{} has no shared receive queues", ia.device());
        return Err(Failure::new(status::IT_ERR_SRQ_NOT_SUPPORTED, text));
    }
    // SAFETY: plain data: every pattern of bits is a value.
    let rc = unsafe { attr.srv.rc };
    let srq = object::find::<SrqObject>(rc.srq.cast())?;
    if !Arc::ptr_eq(srq.inner.pz().ia(), ia) {
        let text = "the shared receive queue is of another interface adapter";
        return Err(Failure::new(status::IT_ERR_INVALID_SRQ, text));
    }
    Ok(Some(srq))
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ep_rc_create(
    pz_handle: it_pz_handle_t,
    request_sevd_handle: it_evd_handle_t,
    recv_sevd_handle: it_evd_handle_t,
    connect_sevd_handle: it_evd_handle_t,
    flags: it_ep_rc_creation_flags_t,
    ep_attr: *const it_ep_attributes_t,
    ep_handle: *mut it_ep_handle_t,
) -> Status {
    boundary::create(|| {
        let pz = object::find::<PzObject>(pz_handle.cast())?;
        let ia = pz.inner.ia();
        let dto = [Stream::Completion];
        let request = dispatcher(request_sevd_handle, ia, &dto, status::IT_ERR_INVALID_REQ_EVD)?;
        let recv = dispatcher(recv_sevd_handle, ia, &dto, status::IT_ERR_INVALID_RECV_EVD)?;
        // Some applications give the dispatcher of connection requests.
        let cm = [Stream::Connection, Stream::Request];
        let conn = dispatcher(connect_sevd_handle, ia, &cm, status::IT_ERR_INVALID_CONN_EVD)?;
        let known = IT_EP_REUSEADDR | IT_EP_SRQ;
        check_bits(flags, known, status::IT_ERR_INVALID_FLAGS, "flags")?;
        // SAFETY: contract of a C caller.
        let attr = unsafe { ptr::read(ep_attr, "ep_attr") }?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(ep_handle, "ep_handle") }?;
        let srq = shared_queue(flags, &attr, ia)?;
        let srq_handle = srq.as_ref().map(|srq| srq.inner.tag().get());
        let attributes = Attributes::grant(&attr, ia.attrs(), srq_handle)?;
        let mut init = attributes.init(&request.inner, &recv.inner, &conn.inner);
        init.srq = srq.as_ref().map(|srq| srq.inner.clone());
        let (sends, receives) = (Ring::new(attributes.requests)?, Ring::new(attributes.receives)?);
        let inner = pz.inner.create_ep(init);
        let inner = inner.map_err(Failure::by(status::IT_ERR_INVALID_EP_ATTR))?;
        let qp = inner.id();
        let raw = object::insert(|raw| {
            inner.tag().set(raw.number());
            EpObject {
                handle: raw.number(),
                slot: raw.slot().unwrap_or(0),
                qp,
                cn_est_id: AtomicU64::new(0),
                inner,
                sends,
                receives,
                attributes: Mutex::new(attributes),
                segments: attributes.segments(),
                payload: AtomicU64::new(attributes.payload()),
                ia: ia.tag().get(),
                request_sevd: request_sevd_handle.addr() as u64,
                recv_sevd: recv_sevd_handle.addr() as u64,
                connect_sevd: connect_sevd_handle.addr() as u64,
                last_event: Mutex::default(),
            }
        })?;
        if let Some(srq) = srq {
            srq.joined(qp);
        }
        out.write(object::handle(raw.number()));
        Ok(())
    })
}

/// `it_ep_free`.
pub(crate) fn free(ep: &EpObject) -> Outcome {
    ep.inner.close().map_err(Failure::by(status::IT_ERR_EP_BUSY))?;
    if let Some(srq) = ep.inner.srq() {
        let srq = object::find::<SrqObject>(object::handle(srq.tag().get()));
        srq.iter().for_each(|srq| srq.left(ep.qp));
    }
    object::forget(object::handle(ep.handle));
    Ok(())
}

/// `it_ep_reset`.
pub(crate) fn reset(ep: &EpObject) -> Outcome {
    // What is posted from here on belongs to the next connection.
    let sends = ep.sends.block_posts();
    let terminate = ep.inner.qp_info().ok().and_then(|qp| qp.terminate);
    let failed = ep.inner.reset().map_err(|error| not_reset(ep, error))?;
    sends.ended(failed, terminate.filter(|terminate| !terminate.sent));
    ep.cn_est_id.store(0, Ordering::Release);
    Ok(())
}

/// Nonoperational already, but the connection's last events are still to come: wait for a moment.
fn not_reset(ep: &EpObject, error: ual::Error) -> Failure {
    let over = ep.inner.state() == EpState::Nonoperational;
    let early = over && matches!(error, ual::Error::InvalidState { .. });
    let refused = Failure::of(error, status::IT_ERR_CANNOT_RESET);
    if early { Failure { status: status::IT_ERR_EP_TIMEWAIT, ..refused } } else { refused }
}

/// Members of `it_ep_attributes_t` that connected endpoints have.
pub(crate) const MODIFIABLE: it_ep_param_mask_t = IT_EP_PARAM_RDMA_RD_ENABLE
    | IT_EP_PARAM_RDMA_WR_ENABLE
    | IT_EP_PARAM_MAX_RDMA_READ_SEG
    | IT_EP_PARAM_MAX_RDMA_WRITE_SEG
    | IT_EP_PARAM_MAX_IRD
    | IT_EP_PARAM_MAX_ORD
    | IT_EP_PARAM_MAX_PAYLOAD
    | IT_EP_PARAM_MAX_REQ_DTO
    | IT_EP_PARAM_MAX_RECV_DTO
    | IT_EP_PARAM_MAX_SEND_SEG
    | IT_EP_PARAM_MAX_RECV_SEG
    | IT_EP_PARAM_SRQ
    | IT_EP_PARAM_SOFT_HI_WATERMARK
    | IT_EP_PARAM_HARD_HI_WATERMARK
    | IT_EP_PARAM_ATOMICS_ENABLE
    | IT_EP_PARAM_PRIV_OPS_ENABLE;

/// `it_ep_modify`, of members that are [`MODIFIABLE`].
pub(crate) fn modify(
    ep: &EpObject,
    mask: it_ep_param_mask_t,
    asked: &it_ep_attributes_t,
) -> Outcome {
    let mut attributes = lock(&ep.attributes);
    let (new, change) = attributes.modified(mask, asked, ep.inner.ia().attrs())?;
    let (sends, receives) = (ep.sends.block_posts(), ep.receives.block_posts());
    let depths = [
        (&sends, attributes.requests, new.requests),
        (&receives, attributes.receives, new.receives),
    ];
    let resized = depths.into_iter().filter(|(_, old, new)| old != new);
    for (ring, _, depth) in resized.clone() {
        if !ring.is_idle() {
            let text = "completions of the queue are not dequeued yet; it is resized when empty";
            return Err(Failure::new(status::IT_ERR_EP_BUSY, text));
        }
        ring.reserve(depth).map_err(Failure::of_verb(status::IT_ERR_RESOURCES))?;
    }
    ep.inner.modify(change).map_err(|error| match error.verb_status() {
        // Within the adapter's limits, which `modified` checks, but above the connection's.
        Some(VpStatus::InvalidIrdOrd) => Failure::of(error, status::IT_ERR_RESOURCE_ORD),
        _ => Failure::of(error, status::IT_ERR_INVALID_EP_ATTR),
    })?;
    resized.for_each(|(ring, _, depth)| ring.set_depth(depth));
    ep.payload.store(new.payload(), Ordering::Relaxed);
    *attributes = new;
    Ok(())
}

/// `it_ep_query`: everything that it may ask for.
pub(crate) fn describe(ep: &EpObject) -> it_ep_param_t {
    let ia = ep.inner.ia();
    let ends = ep.inner.ends();
    let dst_path = ends.map_or_else(ptr::Plain::zeroed, |ends| path::path_of(ia, &ends));
    it_ep_param_t {
        ia: object::handle(ia.tag().get()),
        spigot_id: dst_path.spigot_id,
        // The numbers are the specification's.
        ep_state: it_ep_state_t { rc: ep.inner.state() as u32 },
        service_type: IT_RC_SERVICE,
        dst_path,
        pz: object::handle(ep.inner.pz().tag().get()),
        request_sevd: object::handle(ep.request_sevd),
        recv_sevd: object::handle(ep.recv_sevd),
        connect_sevd: object::handle(ep.connect_sevd),
        attr: lock(&ep.attributes).to_c(),
    }
}
