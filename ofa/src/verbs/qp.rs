//! Queue pairs: creating, changing, querying and destroying them (ibv_create_qp(3), ibv_modify_qp(3)).
//! The logic is in [`crate::qp`].

use std::ffi::c_int;
use std::sync::Arc;

use ibv_sys::*;

use crate::errno::{self, EINVAL, EOPNOTSUPP, Errno};
use crate::object::{self, Handle};
use crate::qp::{Init, Qp};
use crate::record;

impl Handle for ibv_qp {
    /// All of them have room for the extended interface.
    type Whole = ibv_qp_ex;
    type Private = Qp;
    const NAME: &'static str = "struct ibv_qp";
}

impl Qp {
    /// The private part of a handle.
    ///
    /// # Safety
    /// As [`object::with`].
    pub unsafe fn of(qp: *mut ibv_qp) -> Result<Arc<Self>, Errno> {
        // SAFETY: the caller's promise.
        unsafe { object::with(qp) }.cloned()
    }
}

/// Octets that a send may always carry inline: programs post a few without having asked for it, because
/// every device of rdma-core accepts them.
const LEAST_INLINE: u32 = 64;

/// Creates a queue pair, and returns its real limits. `meets`: it may use the rendezvous.
unsafe fn create(
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
    send_ops: u64,
    meets: bool,
) -> Result<*mut ibv_qp, Errno> {
    attr.cap.max_inline_data = attr.cap.max_inline_data.max(LEAST_INLINE);
    // SAFETY: the caller's protection domain.
    let domain = unsafe { object::with(pd) }?;
    // SAFETY: the caller's completion queue.
    let send_cq = unsafe { object::with(attr.send_cq) }?;
    // SAFETY: the caller's completion queue.
    let recv_cq = unsafe { object::with(attr.recv_cq) }?;
    // SAFETY: NULL, or the caller's shared receive queue.
    let srq = (!attr.srq.is_null()).then(|| unsafe { object::with(attr.srq) }).transpose()?;
    if srq.is_some() {
        (attr.cap.max_recv_wr, attr.cap.max_recv_sge) = (0, 0);
    }
    let private = Qp::create(Init {
        pd: domain.clone(),
        send_cq: send_cq.clone(),
        recv_cq: recv_cq.clone(),
        srq: srq.cloned(),
        cap: attr.cap,
        kind: attr.qp_type,
        signal_all: attr.sq_sig_all != 0,
        meets,
    })?;
    let head = ibv_qp {
        context: domain.context.handle(),
        qp_context: attr.qp_context,
        pd,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        handle: private.vp().id().0,
        qp_num: private.number(),
        state: IBV_QPS_RESET,
        qp_type: attr.qp_type,
    };
    let qp = object::new::<ibv_qp>(super::qp_ex::whole(head, send_ops), private.clone());
    private.set_handle(qp.expose_provenance());
    if let Ok(adapter) = private.adapter() {
        record::line("queue-pair", adapter.device().name());
    }
    // SAFETY: made just now.
    let state = unsafe { &raw mut (*qp).state };
    // SAFETY: the structure lives until `destroy`, which ends this before.
    unsafe { private.mirror().begin(state) };
    Ok(qp)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: the caller's structure.
    let attr = unsafe { attr.as_mut() }.ok_or(EINVAL);
    // SAFETY: the caller's arguments.
    let made = attr.and_then(|attr| unsafe { create(pd, attr, 0, true) });
    errno::pointer(record::call("ibv_create_qp", made))
}

pub(super) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller's structure.
    let attr = unsafe { attr.as_mut() }.ok_or(EINVAL);
    // SAFETY: the caller's arguments.
    let made = attr.and_then(|attr| unsafe { create_extended(context, attr, true) });
    errno::pointer(record::call("ibv_create_qp_ex", made))
}

/// As [`create`], from the extended attributes.
pub(crate) unsafe fn create_extended(
    context: *mut ibv_context,
    attr: &mut ibv_qp_init_attr_ex,
    meets: bool,
) -> Result<*mut ibv_qp, Errno> {
    let has = |flag| attr.comp_mask & flag != 0;
    let known =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let flags = has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr.create_flags != 0;
    let ops = if has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) { attr.send_ops_flags } else { 0 };
    let served = match attr.qp_type {
        IBV_QPT_UD => super::qp_ex::DATAGRAMS,
        _ => super::qp_ex::served(meets),
    };
    if attr.comp_mask & !known != 0 || flags || ops & !served != 0 {
        return Err(EOPNOTSUPP);
    }
    if !has(IBV_QP_INIT_ATTR_PD) {
        return Err(EINVAL);
    }
    let mut plain = ibv_qp_init_attr {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
    };
    // SAFETY: the caller's protection domain.
    if unsafe { object::with(attr.pd) }?.context.handle() != context {
        return Err(EINVAL);
    }
    // SAFETY: the caller's arguments.
    let qp = unsafe { create(attr.pd, &mut plain, ops, meets) }?;
    attr.cap = plain.cap;
    Ok(qp)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the caller's queue pair.
    let private = unsafe { object::with(qp) };
    // SAFETY: the caller's structure.
    let attr = unsafe { attr.as_ref() }.ok_or(EINVAL);
    let changed = private.and_then(|private| private.modify(attr?, mask));
    errno::code(record::call("ibv_modify_qp", changed))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's queue pair.
    let private = unsafe { object::with(qp) };
    errno::code(private.and_then(|private| {
        private.adapter()?;
        let (known, cap) = private.query();
        // SAFETY: the caller's structure.
        unsafe { attr.write(known) };
        let made = private.init();
        // SAFETY: the caller's queue pair.
        let head = unsafe { &*qp };
        let was = ibv_qp_init_attr {
            qp_context: head.qp_context,
            send_cq: head.send_cq,
            recv_cq: head.recv_cq,
            srq: head.srq,
            cap,
            qp_type: made.kind,
            sq_sig_all: made.signal_all.into(),
        };
        // SAFETY: the caller's structure.
        unsafe { init.write(was) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller's queue pair.
    let private = unsafe { object::with(qp) };
    errno::code(private.and_then(|private| {
        private.destroy()?;
        // SAFETY: the caller gives it up.
        unsafe { object::destroy(qp) }.map(drop)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the caller's queue pair.
    errno::pointer(unsafe { object::with(qp) }.and_then(|_| {
        let extended: *mut ibv_qp_ex = qp.cast();
        // SAFETY: the structure of every queue pair is that of the extended interface.
        let ops = unsafe { (*extended).comp_mask };
        if ops != 0 { Ok(extended) } else { Err(EOPNOTSUPP) }
    }))
}

/// 0: octets of a message may be placed in any order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _op: c_int,
    _flags: u32,
) -> c_int {
    0
}
