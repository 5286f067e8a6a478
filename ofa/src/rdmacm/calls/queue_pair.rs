//! Queue pairs and shared receive queues of identifiers: rdma_create_qp(3), rdma_destroy_qp(3),
//! rdma_create_srq(3), rdma_destroy_srq(3), rdma_init_qp_attr(3).
//!
//! Completion queues that the application does not pass are created here, each with a channel, and
//! belong to the identifier: the helpers of `rdma/rdma_verbs.h` use them.

use std::any::Any;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::sync::Arc;

use ibv_sys::*;
use vp_api::{PathTerms, Transport};

use super::id::id_of;
use crate::adapter::Adapter;
use crate::caps;
use crate::errno::{self, EINVAL, Errno};
use crate::qp::Qp;
use crate::rdmacm::datagrams::RDMA_UDP_QKEY;
use crate::rdmacm::endpoint::Connects;
use crate::record;
use crate::verbs::channel::{warpline_ibv_create_comp_channel, warpline_ibv_destroy_comp_channel};
use crate::verbs::context::PORT;
use crate::verbs::cq::{warpline_ibv_create_cq, warpline_ibv_destroy_cq};
use crate::verbs::qp::{create_extended, warpline_ibv_destroy_qp, warpline_ibv_modify_qp};
use crate::verbs::srq::{create_srq_ex, warpline_ibv_create_srq, warpline_ibv_destroy_srq};

/// Rights of peers on a queue pair: what their memory regions grant.
const ACCESS: u32 = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// What to connect: the identifier's queue pair. Without one the number is only carried, whatever it names; except on
/// iWARP, where a connection is the only way to the peer, a queue pair that the application has brought to INIT
/// (rdma_init_qp_attr(3), rping -q).
pub(super) unsafe fn of(id: *mut rdma_cm_id, number: Option<u32>) -> Result<Connects, Errno> {
    // SAFETY: the caller's identifier.
    let private = unsafe { id_of(id) }?;
    // SAFETY: as above.
    let own = unsafe { (*id).qp };
    if !own.is_null() {
        // SAFETY: the identifier's queue pair, which lives as long as it is there.
        return unsafe { Qp::of(own) }.map(Connects::Qp);
    }
    let number = number.ok_or(EINVAL)?;
    let adapter = private.view().adapter.ok_or(EINVAL)?;
    if adapter.device().transport() == Transport::InfiniBand {
        return Ok(Connects::Number(number));
    }
    let found: Option<Arc<dyn Any + Send + Sync>> =
        adapter.directory().numbered(number).map(|qp| qp as _);
    let found = found.and_then(|qp| qp.downcast::<Qp>().ok());
    let ready = found.filter(|qp| qp.init().kind == IBV_QPT_RC && qp.state() == IBV_QPS_INIT);
    Ok(ready.map_or(Connects::Number(number), Connects::Qp))
}

/// The error that a function of libibverbs left in `errno`.
fn left() -> Errno {
    std::io::Error::last_os_error().into()
}

fn some<T>(pointer: *mut T) -> Result<*mut T, Errno> {
    if pointer.is_null() { Err(left()) } else { Ok(pointer) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's.
    errno::minus(record::call("rdma_create_qp", unsafe { create_plain(id, pd, attr) }))
}

pub(super) unsafe fn create_plain(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<(), Errno> {
    // SAFETY: NULL, or the caller's structure.
    let attr = unsafe { attr.as_mut() }.ok_or(EINVAL)?;
    let mut whole = ibv_qp_init_attr_ex {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
        comp_mask: if pd.is_null() { 0 } else { IBV_QP_INIT_ATTR_PD },
        pd,
        xrcd: null_mut(),
        create_flags: 0,
        max_tso_header: 0,
        rwq_ind_tbl: null_mut(),
        rx_hash_conf: [0; 3],
        source_qpn: 0,
        send_ops_flags: 0,
    };
    // SAFETY: the caller's identifier.
    unsafe { create(id, &mut whole) }?;
    (attr.send_cq, attr.recv_cq, attr.srq) = (whole.send_cq, whole.recv_cq, whole.srq);
    attr.cap = whole.cap;
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    // SAFETY: NULL, or the caller's structure.
    let attr = unsafe { attr.as_mut() }.ok_or(EINVAL);
    // SAFETY: the caller's identifier.
    errno::minus(attr.and_then(|attr| unsafe { create(id, attr) }))
}

unsafe fn create(id: *mut rdma_cm_id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    // SAFETY: the caller's identifier.
    unsafe { id_of(id) }?;
    // SAFETY: the structure is written in calls of its owner only; no other reference to it exists.
    let public = unsafe { &mut *id };
    if !public.qp.is_null() || public.verbs.is_null() {
        return Err(EINVAL);
    }
    if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
        attr.pd = public.pd;
    }
    // SAFETY: NULL, or the caller's protection domain.
    let context = unsafe { attr.pd.as_ref() }.ok_or(EINVAL)?.context;
    let other = |mine: *mut ibv_cq, given: *mut ibv_cq| {
        !mine.is_null() && !given.is_null() && mine != given
    };
    if context != public.verbs
        || other(public.send_cq, attr.send_cq)
        || other(public.recv_cq, attr.recv_cq)
    {
        return Err(EINVAL);
    }
    // SAFETY: as above.
    let made = unsafe { with_queues(id, public, attr) };
    if made.is_err() {
        // SAFETY: as above.
        unsafe { destroy_queues(public) };
    }
    made
}

unsafe fn with_queues(
    id: *mut rdma_cm_id,
    public: &mut rdma_cm_id,
    attr: &mut ibv_qp_init_attr_ex,
) -> Result<(), Errno> {
    let context = public.verbs;
    if attr.recv_cq.is_null() {
        let queue = (&mut public.recv_cq_channel, &mut public.recv_cq);
        // SAFETY: the identifier's context.
        attr.recv_cq = unsafe { make_queue(context, id, attr.cap.max_recv_wr, queue) }?;
    }
    if attr.send_cq.is_null() {
        let queue = (&mut public.send_cq_channel, &mut public.send_cq);
        // SAFETY: as above.
        attr.send_cq = unsafe { make_queue(context, id, attr.cap.max_send_wr, queue) }?;
    }
    if attr.srq.is_null() {
        attr.srq = public.srq;
    }
    // SAFETY: as above, with the caller's objects.
    let qp = unsafe { create_extended(context, attr, false) }?;
    // SAFETY: made just now.
    match unsafe { prepare(qp, attr.qp_type) } {
        0 => {
            (public.qp, public.pd) = (qp, attr.pd);
            Ok(())
        }
        errno => {
            // SAFETY: made just now, and not shared yet.
            unsafe { warpline_ibv_destroy_qp(qp) };
            Err(Errno(errno))
        }
    }
}

/// To INIT; for datagrams, which have no connection, to RTS. Returns an error number.
unsafe fn prepare(qp: *mut ibv_qp, kind: u32) -> c_int {
    let known = ibv_qp_attr {
        port_num: 1,
        qp_access_flags: ACCESS,
        qkey: RDMA_UDP_QKEY,
        ..ibv_qp_attr::default()
    };
    let path = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    let steps: &[_] = match kind {
        IBV_QPT_UD => {
            &[(IBV_QPS_INIT, path | IBV_QP_QKEY), (IBV_QPS_RTR, 0), (IBV_QPS_RTS, IBV_QP_SQ_PSN)]
        }
        _ => &[(IBV_QPS_INIT, path | IBV_QP_ACCESS_FLAGS)],
    };
    let mut step = |(qp_state, mask): &(u32, c_int)| {
        let mut attr = ibv_qp_attr { qp_state: *qp_state, ..known };
        // SAFETY: the caller's queue pair.
        unsafe { warpline_ibv_modify_qp(qp, &raw mut attr, IBV_QP_STATE | mask) }
    };
    steps.iter().map(&mut step).find(|errno| *errno != 0).unwrap_or(0)
}

/// Creates a completion queue with a channel in their places of the identifier.
unsafe fn make_queue(
    context: *mut ibv_context,
    id: *mut rdma_cm_id,
    entries: u32,
    (channel, queue): (&mut *mut ibv_comp_channel, &mut *mut ibv_cq),
) -> Result<*mut ibv_cq, Errno> {
    if queue.is_null() {
        // SAFETY: the identifier's context.
        *channel = some(unsafe { warpline_ibv_create_comp_channel(context) })?;
        let entries = c_int::try_from(entries.max(1)).map_err(|_| EINVAL)?;
        // SAFETY: as above, with the channel made just now.
        let made = unsafe { warpline_ibv_create_cq(context, entries, id.cast(), *channel, 0) };
        *queue = some(made)?;
    }
    Ok(*queue)
}

/// Destroys those that were created here.
unsafe fn destroy_queues(public: &mut rdma_cm_id) {
    for queue in [&mut public.recv_cq, &mut public.send_cq] {
        let queue = std::mem::replace(queue, null_mut());
        if !queue.is_null() {
            // SAFETY: the identifier's.
            unsafe { warpline_ibv_destroy_cq(queue) };
        }
    }
    for channel in [&mut public.recv_cq_channel, &mut public.send_cq_channel] {
        let channel = std::mem::replace(channel, null_mut());
        if !channel.is_null() {
            // SAFETY: the identifier's.
            unsafe { warpline_ibv_destroy_comp_channel(channel) };
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: NULL, or the caller's identifier.
    if let Some(public) = unsafe { id.as_mut() } {
        let qp = std::mem::replace(&mut public.qp, null_mut());
        if !qp.is_null() {
            // SAFETY: the identifier's queue pair.
            unsafe { warpline_ibv_destroy_qp(qp) };
        }
        // SAFETY: the identifier's.
        unsafe { destroy_queues(public) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    // SAFETY: the caller's attributes, and a good protection domain.
    let make = |pd| unsafe { warpline_ibv_create_srq(pd, attr) };
    // SAFETY: the caller's.
    errno::minus(unsafe { add_srq(id, pd, make) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    // SAFETY: NULL, or the caller's structure.
    let Some(given) = (unsafe { attr.as_mut() }) else { return errno::minus(Err(EINVAL)) };
    let has_pd = given.comp_mask & IBV_SRQ_INIT_ATTR_PD != 0;
    let pd = if has_pd { given.pd } else { null_mut() };
    let make = |pd: *mut ibv_pd| {
        given.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        given.pd = pd;
        // SAFETY: a good protection domain.
        let context = unsafe { (*pd).context };
        // SAFETY: its context, and the caller's attributes.
        unsafe { create_srq_ex(context, given) }
    };
    // SAFETY: the caller's.
    errno::minus(unsafe { add_srq(id, pd, make) })
}

unsafe fn add_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    make: impl FnOnce(*mut ibv_pd) -> *mut ibv_srq,
) -> Result<(), Errno> {
    // SAFETY: the caller's identifier.
    unsafe { id_of(id) }?;
    // SAFETY: as in `create`.
    let public = unsafe { &mut *id };
    if !public.srq.is_null() || public.verbs.is_null() {
        return Err(EINVAL);
    }
    let pd = if pd.is_null() { public.pd } else { pd };
    // SAFETY: NULL, or a protection domain.
    if unsafe { pd.as_ref() }.ok_or(EINVAL)?.context != public.verbs {
        return Err(EINVAL);
    }
    public.srq = some(make(pd))?;
    public.pd = pd;
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_destroy_srq(id: *mut rdma_cm_id) {
    // SAFETY: NULL, or the caller's identifier.
    if let Some(public) = unsafe { id.as_mut() } {
        let srq = std::mem::replace(&mut public.srq, null_mut());
        if !srq.is_null() {
            // SAFETY: the identifier's.
            unsafe { warpline_ibv_destroy_srq(srq) };
        }
    }
}

/// The attributes for the state in `attr` of a queue pair that the application creates itself. On iWARP the
/// connection changes it to RTR and RTS, so for those the mask is without the state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    // SAFETY: the caller's identifier.
    let private = unsafe { id_of(id) };
    // SAFETY: NULL, or the caller's structure.
    let attr = unsafe { attr.as_mut() };
    // SAFETY: NULL, or the caller's number.
    let mask = unsafe { mask.as_mut() };
    errno::minus(private.and_then(|private| {
        let view = private.view();
        let adapter = view.adapter.as_ref().ok_or(EINVAL)?;
        let (attr, mask) = attr.zip(mask).ok_or(EINVAL)?;
        let by_path = adapter.device().transport() == Transport::InfiniBand;
        *mask = match attr.qp_state {
            // On iWARP a queue pair that is connected already is past it.
            IBV_QPS_INIT if private.is_joined() && !by_path => IBV_QP_ACCESS_FLAGS,
            IBV_QPS_INIT => {
                (attr.port_num, attr.pkey_index) = (PORT, 0);
                IBV_QP_ACCESS_FLAGS | IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX
            }
            IBV_QPS_RTR | IBV_QPS_RTS if !by_path => IBV_QP_ACCESS_FLAGS,
            IBV_QPS_RTR => {
                let ends = view.local.zip(view.remote).ok_or(EINVAL)?;
                receives(attr, &private.terms()?, adapter, ends)?
            }
            IBV_QPS_RTS => sends(attr, &private.terms()?),
            _ => return Err(EINVAL),
        };
        attr.qp_access_flags = ACCESS;
        Ok(())
    }))
}

/// To RTR: the path to the peer, and how its requests are served.
fn receives(
    attr: &mut ibv_qp_attr,
    terms: &PathTerms,
    adapter: &Adapter,
    (local, remote): (SocketAddr, SocketAddr),
) -> Result<c_int, Errno> {
    let (index, dgid) = adapter.device().gids()?.path(local.ip(), remote.ip()).ok_or(EINVAL)?;
    let grh = ibv_global_route {
        dgid: ibv_gid { raw: dgid },
        sgid_index: index as u8,
        hop_limit: u8::MAX,
        ..ibv_global_route::default()
    };
    attr.ah_attr = ibv_ah_attr { grh, is_global: 1, port_num: PORT, ..ibv_ah_attr::default() };
    // The packets of loopback may be larger than those of the address that stands for it.
    let most = caps::port(adapter, &adapter.device().ports()?).active_mtu;
    let mtu = u32::from(terms.mtu_code);
    attr.path_mtu = if local.ip().to_canonical().is_loopback() { mtu.min(most) } else { mtu };
    (attr.dest_qp_num, attr.rq_psn) = (terms.qpn, terms.receive_psn);
    (attr.max_dest_rd_atomic, attr.min_rnr_timer) = (few(terms.ird), terms.min_rnr_timer);
    Ok(IBV_QP_STATE
        | IBV_QP_AV
        | IBV_QP_PATH_MTU
        | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_MIN_RNR_TIMER)
}

/// To RTS: how this end sends.
fn sends(attr: &mut ibv_qp_attr, terms: &PathTerms) -> c_int {
    (attr.sq_psn, attr.timeout) = (terms.send_psn, terms.ack_timeout);
    (attr.retry_cnt, attr.rnr_retry) = (terms.retry_count, terms.rnr_retry);
    attr.max_rd_atomic = few(terms.ord);
    IBV_QP_STATE
        | IBV_QP_SQ_PSN
        | IBV_QP_TIMEOUT
        | IBV_QP_RETRY_CNT
        | IBV_QP_RNR_RETRY
        | IBV_QP_MAX_QP_RD_ATOMIC
}

fn few(reads: u16) -> u8 {
    u8::try_from(reads).unwrap_or(u8::MAX)
}
