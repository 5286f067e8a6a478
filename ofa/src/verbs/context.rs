//! Open devices, `ibv_context`: the functions that the headers' inline ones call, and the queue of
//! asynchronous events.
//!
//! Each ibv_open_device makes one; all of a device share its adapter. Owned by the application until
//! ibv_close_device; objects made from it hold it.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Weak};

use ibv_sys::*;
use vp_api::AsyncEvent;

use crate::acks::Acks;
use crate::adapter::Adapter;
use crate::directory::Listener;
use crate::errno::{EIO, Errno};
use crate::events::{Element, Events};
use crate::object::{self, Handle};
use crate::verbs::{cq, cq_ex, device, mw, poll, post, qp, query, srq};

/// The one port.
pub(crate) const PORT: u8 = 1;

/// An open device.
pub struct Context {
    adapter: Arc<Adapter>,
    events: Events,
    /// Of events that are about no object.
    acks: Arc<Acks>,
    handle: AtomicPtr<ibv_context>,
}

impl Handle for ibv_context {
    type Whole = verbs_context;
    type Private = Context;
    const OFFSET: usize = std::mem::offset_of!(verbs_context, context);
    const NAME: &'static str = "struct ibv_context";
}

impl Context {
    /// The device's adapter.
    ///
    /// # Errors
    /// EIO in a process that inherited the context by fork.
    pub fn adapter(&self) -> Result<&Arc<Adapter>, Errno> {
        if self.adapter.is_ours() { Ok(&self.adapter) } else { Err(EIO) }
    }

    /// Where asynchronous events of its objects go.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// What the application knows it by.
    pub fn handle(&self) -> *mut ibv_context {
        self.handle.load(Ordering::Acquire)
    }
}

impl Listener for Context {
    fn hear(&self, event: AsyncEvent) {
        let port = Element::Port(PORT.into());
        match event {
            AsyncEvent::PortState { online } => {
                let kind = if online { IBV_EVENT_PORT_ACTIVE } else { IBV_EVENT_PORT_ERR };
                self.events.push(kind, port, &self.acks);
                if online {
                    self.events.push(IBV_EVENT_GID_CHANGE, port, &self.acks);
                }
            }
            AsyncEvent::Catastrophic => {
                self.events.push(IBV_EVENT_DEVICE_FATAL, port, &self.acks);
            }
            _ => {}
        }
    }
}

/// Makes a context of an adapter.
pub fn open(adapter: Arc<Adapter>) -> Result<*mut ibv_context, Errno> {
    let (handle, acks) = (AtomicPtr::new(null_mut()), Arc::default());
    let context = Arc::new(Context { adapter, events: Events::new()?, acks, handle });
    let listener: Weak<Context> = Arc::downgrade(&context);
    context.adapter.directory().add_context(listener);
    let shown = device::shown(context.adapter.device());
    let pointer = object::new(whole(shown, context.events.fd()), context.clone());
    context.handle.store(pointer, Ordering::Release);
    Ok(pointer)
}

/// What is behind a context.
///
/// # Safety
/// As [`object::with`].
pub unsafe fn context_of<'a>(context: *mut ibv_context) -> Result<&'a Arc<Context>, Errno> {
    // SAFETY: the caller's promise.
    unsafe { object::with(context) }
}

fn whole(device: *mut ibv_device, async_fd: c_int) -> verbs_context {
    let context = ibv_context { device, ops: ops(), cmd_fd: -1, async_fd, num_comp_vectors: 1 };
    verbs_context {
        slots0: [null(); 6],
        query_port: Some(query::query_port_sized),
        slots7: [null(); 16],
        modify_cq: Some(cq_ex::modify_cq),
        slots24: [null(); 7],
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
    crate::errno::set(crate::errno::EOPNOTSUPP);
    null_mut()
}
