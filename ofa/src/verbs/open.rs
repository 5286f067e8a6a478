//! Opening a device: an `ibv_context` with the functions that the headers' inline ones call.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use ibv_sys::*;

use crate::adapter::Adapter;
use crate::errno::{self, Errno};
use crate::object;
use crate::verbs::context::Context;
use crate::verbs::{cq, cq_ex, device, mw, poll, post, qp, query, srq};

/// Makes a context of an adapter. `asked`: for ibv_open_device(3).
pub fn open(adapter: Arc<Adapter>, asked: bool) -> Result<*mut ibv_context, Errno> {
    let shown = device::shown(adapter.device());
    let context = Context::new(adapter, asked)?;
    let pointer = object::new(whole(shown, context.events().fd()), context.clone());
    context.set_handle(pointer);
    Ok(pointer)
}

fn whole(device: *mut ibv_device, async_fd: c_int) -> verbs_context {
    let context = ibv_context { device, ops: ops(), cmd_fd: -1, async_fd, num_comp_vectors: 1 };
    verbs_context {
        slots0: [null(); 6],
        query_port: Some(query::query_port_sized),
        slots7: [null(); 16],
        // Completion queues are not moderated.
        modify_cq: None,
        slots24: [null(); 6],
        query_rt_values: Some(query::query_rt_values),
        create_cq_ex: Some(cq_ex::create_cq_ex),
        priv_: null(),
        query_device_ex: Some(query::query_device_ex),
        slots34: [null(); 5],
        create_qp_ex: Some(qp::create_qp_ex),
        get_srq_num: None,
        create_srq_ex: Some(srq::create_srq_ex),
        slots42: [null(); 3],
        sz: VERBS_CONTEXT,
        context,
        mutex: [0; 5],
        abi_compat: usize::MAX,
        behind: [0; 128],
    }
}

fn ops() -> ibv_context_ops {
    let old = old_slot as *const c_void;
    ibv_context_ops {
        compat0: [old; 7],
        alloc_mw: Some(mw::alloc_mw),
        bind_mw: Some(mw::bind_mw),
        dealloc_mw: Some(mw::dealloc_mw),
        compat10: old,
        poll_cq: Some(poll::poll_cq),
        req_notify_cq: Some(cq::req_notify_cq),
        compat13: [old; 7],
        post_srq_recv: Some(post::post_srq_recv),
        compat21: [old; 4],
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        compat27: [old; 5],
    }
}

/// Slots that no program's inline functions have called for many years.
extern "C" fn old_slot() -> *mut c_void {
    eprintln!("warpline: a slot of ibv_context_ops was called that no header of rdma-core uses");
    errno::set(errno::EOPNOTSUPP);
    null_mut()
}
