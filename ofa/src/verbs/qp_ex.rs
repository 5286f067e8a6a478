//! Extended queue pair: work requests built call by call between ibv_wr_start and ibv_wr_complete
//! (ibv_wr_post(3)). All functions exist; an unsupported one makes the list fail.

use std::ffi::{c_int, c_void};

use ibv_sys::*;
use vp_api::{SendOp, Sge, Stag};

use crate::errno::{self, EINVAL, EOPNOTSUPP, Errno};
use crate::object;
use crate::qp::{Qp, takes_sends};
use crate::send::{self, Op};
use crate::verbs::post::{Elements, Inline};
use crate::verbs::{datagrams, mw};

/// The operations of queue pairs for datagrams that may be requested.
pub(super) const DATAGRAMS: u64 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

/// The operations that may be requested. Sends with Immediate are only for the rendezvous.
pub(super) const fn served(meets: bool) -> u64 {
    if meets {
        IBV_QP_EX_WITH_ALL_RC
    } else {
        IBV_QP_EX_WITH_ALL_RC & !IBV_QP_EX_WITH_SEND_WITH_IMM
    }
}

/// The private part of an extended queue pair.
unsafe fn of<'a>(qp: *mut ibv_qp_ex) -> Option<&'a Qp> {
    // SAFETY: the caller's queue pair.
    unsafe { object::with(qp.cast::<ibv_qp>()) }.ok().map(|qp| &**qp)
}

/// Adds a request, with the id and flags that the application has set.
unsafe fn add(qp: *mut ibv_qp_ex, op: impl FnOnce(u32) -> Result<SendOp, Errno>) {
    // SAFETY: the caller's queue pair.
    let Some(private) = (unsafe { of(qp) }) else { return };
    // SAFETY: the caller's structure.
    let wr_id = unsafe { (*qp).wr_id };
    // SAFETY: as above.
    let flags = unsafe { (*qp).wr_flags };
    let modifiers = send::flags(flags, private.init().signal_all);
    private.wr_list().add(wr_id, modifiers, op(flags));
}

/// The same for an operation on the peer's memory.
unsafe fn add_op(qp: *mut ibv_qp_ex, op: Op, rkey: u32, to: u64) {
    // SAFETY: the caller's queue pair.
    unsafe { add(qp, |flags| Ok(send::op(op, to, rkey, flags))) }
}

/// Unsupported operations.
unsafe fn refuse(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's queue pair.
    if let Some(private) = unsafe { of(qp) } {
        private.wr_list().refuse(EOPNOTSUPP);
    }
}

macro_rules! operations {
    ($($name:ident($($arg:ident: $ty:ty),*) = ($op:expr, $rkey:expr, $to:expr);)*) => {$(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex, $($arg: $ty),*) {
            // SAFETY: the caller's queue pair.
            unsafe { add_op(qp, $op, $rkey, $to) }
        }
    )*};
}

operations! {
    atomic_cmp_swp(rkey: u32, to: u64, compare: u64, swap: u64) = (Op::CmpSwap { compare, swap }, rkey, to);
    atomic_fetch_add(rkey: u32, to: u64, add: u64) = (Op::FetchAdd { add }, rkey, to);
    local_inv(rkey: u32) = (Op::LocalInv(rkey), 0, 0);
    rdma_read(rkey: u32, to: u64) = (Op::Read, rkey, to);
    rdma_write(rkey: u32, to: u64) = (Op::Write, rkey, to);
    rdma_write_imm(rkey: u32, to: u64, imm: u32) = (Op::WriteImm(imm), rkey, to);
    send() = (Op::Send, 0, 0);
    send_inv(rkey: u32) = (Op::SendInv(rkey), 0, 0);
}

macro_rules! unserved {
    ($($name:ident($($ty:ty),*);)*) => {$(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex, $(_: $ty),*) {
            // SAFETY: the caller's queue pair.
            unsafe { refuse(qp) }
        }
    )*};
}

unserved! {
    send_tso(*mut c_void, u16, u16);
    set_xrc_srqn(u32);
    atomic_write(u32, u64, *const c_void);
    flush(u32, u64, usize, u8, u8);
}

unsafe extern "C" fn send_imm(qp: *mut ibv_qp_ex, imm: u32) {
    // SAFETY: the caller's queue pair.
    if unsafe { of(qp) }.is_some_and(|qp| qp.datagrams().is_some() || qp.sends_immediates()) {
        // SAFETY: as above.
        unsafe { add_op(qp, Op::SendImm(imm), 0, 0) }
    } else {
        // SAFETY: as above.
        unsafe { refuse(qp) }
    }
}

unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp_ex,
    window: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: the caller's structure.
    let bind =
        unsafe { info.as_ref() }.map(|info| wr_bind_mw { mw: window, rkey, bind_info: *info });
    let op = bind.ok_or(EINVAL).and_then(|bind| {
        // SAFETY: the caller's window and region.
        unsafe { mw::bind_op(bind) }.map_err(Errno::from)
    });
    // SAFETY: the caller's queue pair.
    unsafe { add(qp, |_| op) }
}

unsafe extern "C" fn set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: the caller's queue pair.
    let Some(private) = (unsafe { of(qp) }) else { return };
    let Some(own) = private.datagrams() else { return private.wr_list().refuse(EOPNOTSUPP) };
    // SAFETY: the caller's address handle.
    match unsafe { object::with(ah) } {
        Ok(ah) => {
            let to = datagrams::destination(&**own, qpn, qkey);
            private.wr_list().set_destination(ah.id(), to);
        }
        Err(_) => private.wr_list().refuse(EINVAL),
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let buffer = ibv_data_buf { addr, length };
    // SAFETY: the caller's octets.
    unsafe { set_inline_data_list(qp, 1, &buffer) }
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut ibv_qp_ex,
    num: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: the caller's queue pair.
    let Some(private) = (unsafe { of(qp) }) else { return };
    let mut inline = Inline::new();
    for at in 0..num {
        // SAFETY: the caller's list of `num` buffers.
        let buffer = unsafe { list.wrapping_add(at).read() };
        // SAFETY: the caller's octets.
        if let Err(status) = unsafe { inline.append(buffer.addr.cast(), buffer.length) } {
            return private.wr_list().refuse(status.into());
        }
    }
    if inline.octets().len() > private.init().cap.max_inline_data as usize {
        return private.wr_list().refuse(EINVAL);
    }
    private.wr_list().set_octets(inline.octets());
}

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: the caller's queue pair.
    if let Some(private) = unsafe { of(qp) } {
        private.wr_list().set_elements(&[Sge { stag: Stag(lkey), len: length, to: addr }]);
    }
}

unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, num: usize, list: *const ibv_sge) {
    // SAFETY: the caller's queue pair.
    let Some(private) = (unsafe { of(qp) }) else { return };
    if num > private.init().cap.max_send_sge.max(1) as usize {
        return private.wr_list().refuse(EINVAL);
    }
    let mut elements = Elements::new();
    // SAFETY: the caller's list of `num` elements.
    match unsafe { elements.take(list, num) } {
        Ok(elements) => private.wr_list().set_elements(elements),
        Err(status) => private.wr_list().refuse(status.into()),
    }
}

unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's queue pair.
    if let Some(private) = unsafe { of(qp) } {
        private.wr_list().start();
    }
}

unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the caller's queue pair.
    let Some(private) = (unsafe { of(qp) }) else { return libc::EINVAL };
    let ready = private.adapter().and(takes_sends(private.state()).map_err(Errno::from));
    let most = private.init().cap.max_send_wr.max(1);
    errno::code(private.wr_list().complete(ready, most, |list| match private.datagrams() {
        Some(own) => list.post_datagrams(&**own),
        None => list.post(|wrs| private.post_whole(wrs)),
    }))
}

unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's queue pair.
    if let Some(private) = unsafe { of(qp) } {
        private.wr_list().abort();
    }
}

/// A queue pair's structure. `ops`: the operations that the application asked for; 0: it does not use
/// these calls.
pub(super) fn whole(head: ibv_qp, ops: u64) -> ibv_qp_ex {
    let base = whole_qp { head, mutex: [0; 5], cond: [0; 6], events_completed: 0 };
    ibv_qp_ex {
        base,
        comp_mask: ops,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp: Some(atomic_cmp_swp),
        wr_atomic_fetch_add: Some(atomic_fetch_add),
        wr_bind_mw: Some(bind_mw),
        wr_local_inv: Some(local_inv),
        wr_rdma_read: Some(rdma_read),
        wr_rdma_write: Some(rdma_write),
        wr_rdma_write_imm: Some(rdma_write_imm),
        wr_send: Some(send),
        wr_send_imm: Some(send_imm),
        wr_send_inv: Some(send_inv),
        wr_send_tso: Some(send_tso),
        wr_set_ud_addr: Some(set_ud_addr),
        wr_set_xrc_srqn: Some(set_xrc_srqn),
        wr_set_inline_data: Some(set_inline_data),
        wr_set_inline_data_list: Some(set_inline_data_list),
        wr_set_sge: Some(set_sge),
        wr_set_sge_list: Some(set_sge_list),
        wr_start: Some(start),
        wr_complete: Some(complete),
        wr_abort: Some(abort),
        wr_atomic_write: Some(atomic_write),
        wr_flush: Some(flush),
    }
}
