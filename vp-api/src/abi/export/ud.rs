//! Exported function tables of datagrams and their queue pairs.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::super::keep::Kept;
use super::super::types::Sized32;
use super::super::{codes, grow, net, text, types as c, ud};
use super::objects::no_address;
use super::queues::{List, in_batches, post_receives, short};
use super::{RESULT, fixed, meaningless, object, present, report, take_back, verbs};
use crate::{
    AhId, Data, Datagrams, PdId, PostFailure, QpId, SendFlags, ServiceEvent, ServiceHandler,
    UdAddress, UdQp, UdSendWr, VpStatus,
};

/// Requests that are converted at a time, on the stack.
const BATCH: usize = 8;

const UD: c::UdOps = c::UdOps {
    size: c::UdOps::SIZE,
    reserved: 0,
    release: Some(release),
    attrs: Some(attrs),
    max_payload: Some(max_payload),
    create_qp: Some(create_qp),
    destroy_qp: Some(destroy_qp),
    create_ah: Some(create_ah),
    query_ah: Some(query_ah),
    destroy_ah: Some(destroy_ah),
    set_service_handler: Some(set_service_handler),
    listen: Some(listen),
    unlisten: Some(unlisten),
    resolve: Some(resolve),
    cancel: Some(cancel),
    accept: Some(accept),
    reject: Some(reject),
};

const QP: c::UdQpOps = c::UdQpOps {
    size: c::UdQpOps::SIZE,
    reserved: 0,
    release: Some(release_qp),
    address: Some(address),
    post_send: Some(post_send),
    post_recv: Some(post_recv),
    modify: Some(modify),
    query: Some(query),
    set_qkey: Some(set_qkey),
    reset: Some(reset),
};

pub(super) fn hand_out(ud: Arc<dyn Datagrams>) -> c::UdMade {
    c::UdMade { ud: super::hand_out(ud), ops: &UD, ..c::UdMade::blank() }
}

fn hand_out_qp(qp: Arc<dyn UdQp>) -> c::UdQpMade {
    c::UdQpMade { id: qp.id().0, qp: super::hand_out(qp), ops: &QP, ..c::UdQpMade::blank() }
}

unsafe extern "C" fn release(ud: *mut c_void) {
    // SAFETY: the host's last use of the handle.
    unsafe { take_back::<dyn Datagrams>(ud) };
}

unsafe extern "C" fn release_qp(qp: *mut c_void) {
    // SAFETY: the host's last use of the handle.
    unsafe { take_back::<dyn UdQp>(qp) };
}

unsafe extern "C" fn attrs(ud: *mut c_void, out: *mut c::UdAttrs) {
    _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the host has not released the handle.
        let ud = unsafe { object::<dyn Datagrams>(ud) };
        // SAFETY: the place is as the header demands.
        unsafe { grow::write(out, &ud::attrs_to(ud.attrs())) };
    }));
}

unsafe extern "C" fn address(qp: *mut c_void, out: *mut c::UdAddress) {
    _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the host has not released the handle.
        let qp = unsafe { object::<dyn UdQp>(qp) };
        // SAFETY: the place is as the header demands.
        unsafe { out.write(ud::address_to(qp.address())) };
    }));
}

verbs! {
    max_payload(ud: dyn Datagrams, port: u32 => *mut u32) { ud.max_payload(port) }
    create_qp(ud: dyn Datagrams, init: *const c::UdQpInit => *mut c::UdQpMade) {
        ud.create_qp(&ud::init_from(&init)).map(hand_out_qp)
    }
    destroy_qp(ud: dyn Datagrams, qp: u32) { ud.destroy_qp(QpId(qp)) }
    query_ah(ud: dyn Datagrams, ah: u32 => *mut c::AhInfo) {
        ud.query_ah(AhId(ah)).map(|info| ud::ah_info_to(&info))
    }
    destroy_ah(ud: dyn Datagrams, ah: u32) { ud.destroy_ah(AhId(ah)) }
    unlisten(ud: dyn Datagrams, token: u64) { ud.unlisten(token) }
    cancel(ud: dyn Datagrams, token: u64) { ud.cancel(token) }
    modify(qp: dyn UdQp, state: u32) {
        qp.modify(codes::ud_state(state).ok_or_else(|| meaningless("state"))?)
    }
    set_qkey(qp: dyn UdQp, qkey: u32) { qp.set_qkey(qkey) }
    reset(qp: dyn UdQp) { qp.reset() }
    query(qp: dyn UdQp => *mut c::UdQpInfo) { qp.query().map(|info| ud::info_to(&info)) }
}

unsafe extern "C" fn create_ah(
    handle: *mut c_void,
    pd: u32,
    path: *const c::UdPath,
    ah: *mut u32,
    error: *mut c::Error,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let ud = unsafe { object::<dyn Datagrams>(handle) };
    let verb = || {
        // SAFETY: the host's path, or null.
        let path = ud::path_from(&unsafe { fixed("path", path) }?);
        present(RESULT, ah)?;
        let AhId(made) = ud.create_ah(PdId(pd), &path)?;
        // SAFETY: the place for the id is as the header demands.
        unsafe { ah.write(made) };
        Ok(())
    };
    // SAFETY: the host's error is as the header demands.
    unsafe { report(error, verb) }
}

/// The host's handler of service events.
struct OnService {
    f: c::ServiceEventFn,
    kept: Kept,
}

impl ServiceHandler for OnService {
    fn on_service(&self, event: ServiceEvent) {
        // SAFETY: the host's function with the context that is kept.
        ud::lend_event(&event, |lent| unsafe { (self.f)(self.kept.context(), lent) });
    }
}

unsafe extern "C" fn set_service_handler(handle: *mut c_void, handler: *const c::ServiceHandler) {
    _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the host has not released the handle.
        let ud = unsafe { object::<dyn Datagrams>(handle) };
        // SAFETY: a handler as the header demands, or none.
        let handler = (!handler.is_null()).then(|| unsafe { grow::read(handler) });
        let handler = handler.and_then(|h| {
            // SAFETY: the same.
            h.call.map(|f| OnService { f, kept: unsafe { Kept::new(h.keep) } })
        });
        ud.set_service_handler(handler.map(|h| Arc::new(h) as Arc<dyn ServiceHandler>));
    }));
}

unsafe extern "C" fn listen(
    handle: *mut c_void,
    token: u64,
    address: *const c::Address,
    backlog: u32,
    bound: *mut c::Address,
    error: *mut c::Error,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let ud = unsafe { object::<dyn Datagrams>(handle) };
    let verb = || {
        // SAFETY: the host's address, or null.
        let address = unsafe { fixed("address", address) }?;
        let address = net::address_from(&address).ok_or_else(no_address)?;
        present(RESULT, bound)?;
        let real = ud.listen(token, address, backlog)?;
        // SAFETY: the place for the address is as the header demands.
        unsafe { bound.write(net::address_to(Some(real))) };
        Ok(())
    };
    // SAFETY: the host's error is as the header demands.
    unsafe { report(error, verb) }
}

unsafe extern "C" fn resolve(
    handle: *mut c_void,
    token: u64,
    peer: *const c::Address,
    data: *const u8,
    len: u32,
    error: *mut c::Error,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let ud = unsafe { object::<dyn Datagrams>(handle) };
    let verb = || {
        // SAFETY: the host's address, or null.
        let peer = unsafe { fixed("peer", peer) }?;
        let peer = net::address_from(&peer).ok_or_else(no_address)?;
        // SAFETY: the host's octets.
        ud.resolve(token, peer, &unsafe { text::octets(data, len.into()) })
    };
    // SAFETY: the host's error is as the header demands.
    unsafe { report(error, verb) }
}

unsafe extern "C" fn accept(
    handle: *mut c_void,
    request: u64,
    address: *const c::UdAddress,
    data: *const u8,
    len: u32,
    error: *mut c::Error,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let ud = unsafe { object::<dyn Datagrams>(handle) };
    let verb = || {
        // SAFETY: the host's address, or null.
        let address = ud::address_from(&unsafe { fixed("answer", address) }?);
        // SAFETY: the host's octets.
        ud.accept(request, address, &unsafe { text::octets(data, len.into()) })
    };
    // SAFETY: the host's error is as the header demands.
    unsafe { report(error, verb) }
}

unsafe extern "C" fn reject(
    handle: *mut c_void,
    request: u64,
    why: u32,
    data: *const u8,
    len: u32,
    error: *mut c::Error,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let ud = unsafe { object::<dyn Datagrams>(handle) };
    let verb = || {
        let why = codes::refusal(why).ok_or_else(|| meaningless("reason"))?;
        // SAFETY: the host's octets.
        ud.reject(request, why, &unsafe { text::octets(data, len.into()) })
    };
    // SAFETY: the host's error is as the header demands.
    unsafe { report(error, verb) }
}

const EMPTY: UdSendWr<'static> = UdSendWr {
    wr_id: 0,
    data: Data::Sgl(&[]),
    flags: SendFlags::empty(),
    solicited: false,
    immediate: None,
    ah: AhId(0),
    to: UdAddress { qpn: 0, qkey: 0 },
};

/// Posts some requests of the list.
fn send_some(
    qp: &dyn UdQp,
    list: &List<c::UdSendWr>,
    from: u32,
    count: u32,
) -> Result<usize, PostFailure> {
    let n = (count - from).min(BATCH as u32) as usize;
    let mut wrs = [EMPTY; BATCH];
    let mut good = 0;
    while good < n {
        let Some(wr) = list.get(from + good as u32) else { break };
        // SAFETY: a request as the header demands, until the host's call returns.
        let Some(wr) = (unsafe { ud::send_from(&wr) }) else { break };
        wrs[good] = wr;
        good += 1;
    }
    qp.post_send(&wrs[..good])?;
    match good < n {
        true => Err(PostFailure { posted: good, status: VpStatus::InvalidWr }),
        false => Ok(n),
    }
}

unsafe extern "C" fn post_send(
    qp: *mut c_void,
    wrs: *const c::UdSendWr,
    count: u32,
    posted: *mut u32,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let qp = unsafe { object::<dyn UdQp>(qp) };
    // SAFETY: a list as the header demands.
    let list = unsafe { List::new(wrs, count) };
    let mut done = 0;
    let code = short(|| in_batches(count, &mut done, |from| send_some(qp, &list, from, count)));
    // SAFETY: the place for the count is as the header demands.
    unsafe { posted.write(done) };
    code
}

unsafe extern "C" fn post_recv(
    qp: *mut c_void,
    wrs: *const c::RecvWr,
    count: u32,
    posted: *mut u32,
) -> u32 {
    // SAFETY: the host has not released the handle.
    let qp = unsafe { object::<dyn UdQp>(qp) };
    // SAFETY: list and place are as the header demands.
    unsafe { post_receives(&|list| qp.post_recv(list), wrs, count, posted) }
}
