//! Exported function table of an RNIC.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::super::keep::Kept;
use super::super::types::Sized32;
use super::super::{codes, events, grow, memory, net, qp, types as c};
use super::{meaningless, objects, path, queues, take_back, ud, verbs};
use crate::{
    Access, AsyncEvent, AsyncHandler, CqHandler, CqId, CqInit, EventSource, MwId, PdId, QpId, Rnic,
    SrqId, Stag, VpError, VpStatus,
};

const OPS: c::RnicOps = c::RnicOps {
    size: c::RnicOps::SIZE,
    reserved: 0,
    close: Some(close),
    attrs: Some(attrs),
    ports: Some(ports),
    set_async_handler: Some(set_async_handler),
    alloc_pd: Some(alloc_pd),
    dealloc_pd: Some(dealloc_pd),
    create_cq: Some(create_cq),
    destroy_cq: Some(destroy_cq),
    create_srq: Some(create_srq),
    destroy_srq: Some(destroy_srq),
    create_qp: Some(create_qp),
    destroy_qp: Some(destroy_qp),
    register_mr: Some(register_mr),
    reregister_mr: Some(reregister_mr),
    register_shared_mr: Some(register_shared_mr),
    alloc_stag: Some(alloc_stag),
    query_mr: Some(query_mr),
    dealloc_stag: Some(dealloc_stag),
    alloc_mw: Some(alloc_mw),
    query_mw: Some(query_mw),
    dealloc_mw: Some(dealloc_mw),
    native_cm: Some(native_cm),
    datagrams: Some(datagrams),
    vendor_calls: Some(vendor_calls),
    lead: Some(lead),
    paths: Some(paths),
};

pub(super) fn hand_out(rnic: Arc<dyn Rnic>) -> c::RnicMade {
    c::RnicMade { rnic: super::hand_out(rnic), ops: &OPS, ..c::RnicMade::blank() }
}

unsafe extern "C" fn close(rnic: *mut c_void) {
    // SAFETY: the host's last use of the handle.
    unsafe { take_back::<dyn Rnic>(rnic) };
}

unsafe extern "C" fn attrs(rnic: *mut c_void, out: *mut c::RnicAttrs) {
    _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the host has not closed the RNIC, so the strings stay good.
        let rnic = unsafe { super::object::<dyn Rnic>(rnic) };
        // SAFETY: the place is as the header demands.
        unsafe { grow::write(out, &net::attrs_to(rnic.attrs())) };
    }));
}

unsafe extern "C" fn ports(rnic: *mut c_void, receiver: *mut c_void, f: Option<c::PortFn>) {
    _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the host has not closed the RNIC.
        let rnic = unsafe { super::object::<dyn Rnic>(rnic) };
        // The C function cannot return an error, so the list is empty.
        for port in rnic.ports().unwrap_or_default() {
            net::lend_port(&port, |lent| {
                if let Some(f) = f {
                    // SAFETY: the host's function, with its receiver.
                    unsafe { f(receiver, lent) };
                }
            });
        }
    }));
}

/// The host's handler of asynchronous events.
struct OnEvent {
    f: unsafe extern "C" fn(*mut c_void, *const c::AsyncEvent),
    kept: Kept,
}

impl AsyncHandler for OnEvent {
    fn on_event(&self, source: EventSource, event: AsyncEvent) {
        // SAFETY: the host's function with the context that is kept.
        unsafe { (self.f)(self.kept.context(), &events::to(source, event)) };
    }
}

unsafe extern "C" fn set_async_handler(rnic: *mut c_void, handler: *const c::AsyncHandler) {
    _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the host has not closed the RNIC.
        let rnic = unsafe { super::object::<dyn Rnic>(rnic) };
        // SAFETY: a handler as the header demands, or none.
        let handler = (!handler.is_null()).then(|| unsafe { grow::read(handler) });
        let handler = handler.and_then(|h| {
            // SAFETY: the same.
            h.call.map(|f| OnEvent { f, kept: unsafe { Kept::new(h.keep) } })
        });
        rnic.set_async_handler(handler.map(|h| Arc::new(h) as Arc<dyn AsyncHandler>));
    }));
}

/// The host's handler of completions.
struct OnCompletion {
    f: unsafe extern "C" fn(*mut c_void, u32),
    kept: Kept,
}

impl CqHandler for OnCompletion {
    fn on_completion(&self, cq: CqId) {
        // SAFETY: the host's function with the context that is kept.
        unsafe { (self.f)(self.kept.context(), cq.0) };
    }
}

unsafe extern "C" fn lead(rnic: *mut c_void, until: i32, timeout: u64, ready: *mut u32) -> u32 {
    // SAFETY: the host has not closed the RNIC.
    let rnic = unsafe { super::object::<dyn Rnic>(rnic) };
    if until < 0 {
        return codes::status_code(VpStatus::InvalidModifier);
    }
    // SAFETY: the host's descriptor, open until the call returns; not negative.
    let until = unsafe { BorrowedFd::borrow_raw(until) };
    let timeout = (timeout != u64::MAX).then(|| Duration::from_nanos(timeout));
    queues::short(|| {
        let there = rnic.lead(until, timeout)?;
        // SAFETY: the place for the result is as the header demands.
        unsafe { ready.write(there.into()) };
        Ok(())
    })
}

verbs! {
    alloc_pd(rnic: dyn Rnic => *mut u32) { rnic.alloc_pd().map(|pd| pd.0) }
    dealloc_pd(rnic: dyn Rnic, pd: u32) { rnic.dealloc_pd(PdId(pd)) }
    create_cq(rnic: dyn Rnic, init: *const c::CqInit => *mut c::CqMade) {
        let handler = init.call.map(|f| {
            // SAFETY: the host's keep.
            Arc::new(OnCompletion { f, kept: unsafe { Kept::new(init.keep) } }) as _
        });
        rnic.create_cq(&CqInit { depth: init.depth, handler }).map(queues::hand_out)
    }
    destroy_cq(rnic: dyn Rnic, cq: u32) { rnic.destroy_cq(CqId(cq)) }
    create_srq(rnic: dyn Rnic, init: *const c::SrqInit => *mut c::SrqMade) {
        rnic.create_srq(&qp::srq_init_from(&init)).map(objects::hand_out_srq)
    }
    destroy_srq(rnic: dyn Rnic, srq: u32) { rnic.destroy_srq(SrqId(srq)) }
    create_qp(rnic: dyn Rnic, init: *const c::QpInit => *mut c::QpMade) {
        let init = qp::init_from(&init).ok_or_else(|| meaningless("ri_qp_init"))?;
        rnic.create_qp(&init).map(queues::hand_out_qp)
    }
    destroy_qp(rnic: dyn Rnic, qp: u32) { rnic.destroy_qp(QpId(qp)) }
    register_mr(rnic: dyn Rnic, init: *const c::MrInit => *mut u32) {
        // SAFETY: memory as the header demands.
        let init = unsafe { memory::init_from(&init) }.ok_or_else(|| meaningless("ri_mr_init"))?;
        rnic.register_mr(&init).map(|stag| stag.0)
    }
    reregister_mr(rnic: dyn Rnic, stag: u32, init: *const c::MrInit => *mut u32) {
        // SAFETY: memory as the header demands.
        let init = unsafe { memory::init_from(&init) }.ok_or_else(|| meaningless("ri_mr_init"))?;
        rnic.reregister_mr(Stag(stag), &init).map(|stag| stag.0)
    }
    register_shared_mr(rnic: dyn Rnic, init: *const c::SharedMrInit => *mut u32) {
        let wrong = || meaningless("ri_shared_mr_init");
        let addressing = codes::addressing(init.addressing, init.base).ok_or_else(wrong)?;
        let access = Access::from_bits(init.access).ok_or_else(wrong)?;
        let key = u8::try_from(init.key).map_err(|_| wrong())?;
        let (original, pd) = (Stag(init.original), PdId(init.pd));
        rnic.register_shared_mr(original, pd, addressing, access, key).map(|stag| stag.0)
    }
    alloc_stag(rnic: dyn Rnic, pd: u32, remote: u32 => *mut u32) {
        rnic.alloc_stag(PdId(pd), remote != 0).map(|stag| stag.0)
    }
    query_mr(rnic: dyn Rnic, stag: u32 => *mut c::MrInfo) {
        rnic.query_mr(Stag(stag)).map(|info| memory::info_to(&info))
    }
    dealloc_stag(rnic: dyn Rnic, stag: u32) { rnic.dealloc_stag(Stag(stag)) }
    alloc_mw(rnic: dyn Rnic, pd: u32, kind: u32 => *mut u32) {
        let kind = codes::kind(kind).ok_or_else(|| meaningless("kind of window"))?;
        rnic.alloc_mw(PdId(pd), kind).map(|mw| mw.0)
    }
    query_mw(rnic: dyn Rnic, mw: u32 => *mut c::MwInfo) {
        rnic.query_mw(MwId(mw)).map(|info| memory::window_to(&info))
    }
    dealloc_mw(rnic: dyn Rnic, mw: u32) { rnic.dealloc_mw(MwId(mw)) }
    native_cm(rnic: dyn Rnic => *mut c::CmMade) {
        let none = || VpError::new(VpStatus::Unsupported, "there is no connection manager");
        rnic.native_cm().map(objects::hand_out_cm).ok_or_else(none)
    }
    datagrams(rnic: dyn Rnic => *mut c::UdMade) {
        let none = || VpError::new(VpStatus::Unsupported, "there are no datagrams");
        rnic.datagrams().map(ud::hand_out).ok_or_else(none)
    }
    paths(rnic: dyn Rnic => *mut c::PathsMade) {
        let none = || VpError::new(VpStatus::Unsupported, "there is no bring-up by path");
        rnic.paths().map(path::hand_out).ok_or_else(none)
    }
    vendor_calls(rnic: dyn Rnic, name: c::String => *mut c::VendorCalls) {
        rnic.vendor_calls(&name).map(|calls| c::VendorCalls {
            table: calls.table.as_ptr(),
            context: calls.context,
            ..c::VendorCalls::blank()
        })
    }
}
