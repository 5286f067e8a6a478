//! Exported function tables of shared receive queues and native connection managers.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::super::types::Sized32;
use super::super::{cm, codes, net, qp, text, types as c};
use super::{RESULT, fixed, object, present, queues, report, take_back, verbs};
use crate::{NativeCm, QpId, Srq, VpError, VpStatus};

const SRQ: c::SrqOps = c::SrqOps {
    size: c::SrqOps::SIZE,
    reserved: 0,
    release: Some(release_srq),
    post_recv: Some(queues::post_srq_recv),
    modify: Some(modify),
    query: Some(query),
};

const CM: c::CmOps = c::CmOps {
    size: c::CmOps::SIZE,
    reserved: 0,
    release: Some(release_cm),
    listen: Some(listen),
    unlisten: Some(unlisten),
    connect: Some(connect),
    accept: Some(accept),
    reject: Some(reject),
    disconnect: Some(disconnect),
    poll_event: Some(poll_event),
    wait_event: Some(wait_event),
};

pub(super) fn hand_out_srq(srq: Arc<dyn Srq>) -> c::SrqMade {
    c::SrqMade { id: srq.id().0, srq: super::hand_out(srq), ops: &SRQ, ..c::SrqMade::blank() }
}

pub(super) fn hand_out_cm(cm: Arc<dyn NativeCm>) -> c::CmMade {
    c::CmMade { cm: super::hand_out(cm), ops: &CM, ..c::CmMade::blank() }
}

unsafe extern "C" fn release_srq(srq: *mut c_void) {
    // SAFETY: the host's last use of the handle.
    unsafe { take_back::<dyn Srq>(srq) };
}

unsafe extern "C" fn release_cm(cm: *mut c_void) {
    // SAFETY: the host's last use of the handle.
    unsafe { take_back::<dyn NativeCm>(cm) };
}

verbs! {
    modify(srq: dyn Srq, which: u32, depth: u32, limit: u32 => *mut c::SrqInfo) {
        let depth = (which & codes::flag::SRQ_DEPTH != 0).then_some(depth);
        let limit = (which & codes::flag::SRQ_LIMIT != 0).then_some(limit);
        srq.modify(depth, limit).map(|info| qp::srq_info_to(&info))
    }
    query(srq: dyn Srq => *mut c::SrqInfo) { srq.query().map(|info| qp::srq_info_to(&info)) }
    unlisten(cm: dyn NativeCm, listener: u64) { cm.unlisten(listener) }
    disconnect(cm: dyn NativeCm, qp: u32) { cm.disconnect(QpId(qp)) }
    wait_event(cm: dyn NativeCm, timeout: u64 => *mut u32) {
        let timeout = (timeout != u64::MAX).then(|| Duration::from_nanos(timeout));
        cm.wait_event(timeout).map(u32::from)
    }
}

pub(super) fn no_address() -> VpError {
    VpError::new(VpStatus::InvalidAddress, "ri_address.family is neither 4 nor 6")
}

unsafe extern "C" fn listen(
    handle: *mut c_void,
    address: *const c::Address,
    backlog: u32,
    listener: *mut u64,
    bound: *mut c::Address,
    error: *mut c::Error,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let cm = unsafe { object::<dyn NativeCm>(handle) };
    let verb = || {
        // SAFETY: the host's address, or null.
        let address = unsafe { fixed("address", address) }?;
        let address = net::address_from(&address).ok_or_else(no_address)?;
        present(RESULT, listener)?;
        present(RESULT, bound)?;
        let (id, real) = cm.listen(address, backlog)?;
        // SAFETY: the place for the id is as the header demands.
        unsafe { listener.write(id) };
        // SAFETY: the place for the address, too.
        unsafe { bound.write(net::address_to(Some(real))) };
        Ok(())
    };
    // SAFETY: the host's error is as the header demands.
    unsafe { report(error, verb) }
}

unsafe extern "C" fn connect(
    handle: *mut c_void,
    qp: u32,
    peer: *const c::Address,
    params: *const c::CmParams,
    error: *mut c::Error,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let cm = unsafe { object::<dyn NativeCm>(handle) };
    let verb = || {
        // SAFETY: the host's address, or null.
        let peer = unsafe { fixed("peer", peer) }?;
        let peer = net::address_from(&peer).ok_or_else(no_address)?;
        // SAFETY: parameters as the header demands.
        cm.connect(QpId(qp), peer, unsafe { cm::params_from(params) })
    };
    // SAFETY: the host's error is as the header demands.
    unsafe { report(error, verb) }
}

unsafe extern "C" fn accept(
    handle: *mut c_void,
    request: u64,
    qp: u32,
    params: *const c::CmParams,
    error: *mut c::Error,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let cm = unsafe { object::<dyn NativeCm>(handle) };
    // SAFETY: parameters as the header demands.
    let params = unsafe { cm::params_from(params) };
    // SAFETY: the host's error is as the header demands.
    unsafe { report(error, || cm.accept(request, QpId(qp), params)) }
}

unsafe extern "C" fn reject(
    handle: *mut c_void,
    request: u64,
    data: *const u8,
    len: u32,
    error: *mut c::Error,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let cm = unsafe { object::<dyn NativeCm>(handle) };
    // SAFETY: the host's octets.
    let data = unsafe { text::octets(data, len.into()) };
    // SAFETY: the host's error is as the header demands.
    unsafe { report(error, || cm.reject(request, &data)) }
}

unsafe extern "C" fn poll_event(
    handle: *mut c_void,
    receiver: *mut c_void,
    f: Option<c::CmEventFn>,
) {
    // SAFETY: the host has not released the handle.
    let cm = unsafe { object::<dyn NativeCm>(handle) };
    _ = catch_unwind(AssertUnwindSafe(|| {
        let (Some(event), Some(f)) = (cm.poll_event(), f) else { return };
        // SAFETY: the host's function, with its receiver.
        cm::lend_event(&event, |lent| unsafe { f(receiver, lent) });
    }));
}
