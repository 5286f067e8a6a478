//! Open devices, `ibv_context`: the adapter, and the queue of asynchronous events.
//!
//! Each ibv_open_device makes one; all those of a device share its adapter. Owned by the application
//! until ibv_close_device; objects created from it hold a reference.

use std::ptr::null_mut;
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

/// The one port.
pub(crate) const PORT: u8 = 1;

/// An open device.
pub struct Context {
    adapter: Arc<Adapter>,
    events: Events,
    /// For events that are about no object.
    acks: Arc<Acks>,
    handle: AtomicPtr<ibv_context>,
    /// The program has opened it, not rdma_cm.
    asked: bool,
}

impl Handle for ibv_context {
    type Whole = verbs_context;
    type Private = Context;
    const OFFSET: usize = std::mem::offset_of!(verbs_context, context);
    const NAME: &'static str = "struct ibv_context";
}

impl Context {
    /// One more context of an adapter. It has no handle yet.
    pub(super) fn new(adapter: Arc<Adapter>, asked: bool) -> Result<Arc<Self>, Errno> {
        let (handle, acks) = (AtomicPtr::new(null_mut()), Arc::default());
        let context = Arc::new(Self { adapter, events: Events::new()?, acks, handle, asked });
        if asked {
            context.adapter.device().count_context();
        }
        let listener: Weak<Self> = Arc::downgrade(&context);
        context.adapter.directory().add_context(listener);
        Ok(context)
    }

    /// The program has closed it; objects may still refer to it.
    pub(super) fn closed(&self) {
        if self.asked {
            self.adapter.device().discount_context();
        }
    }

    pub(super) fn set_handle(&self, handle: *mut ibv_context) {
        self.handle.store(handle, Ordering::Release);
    }

    /// The device's adapter.
    ///
    /// # Errors
    /// EIO in a process that inherited the context by fork.
    pub fn adapter(&self) -> Result<&Arc<Adapter>, Errno> {
        if self.adapter.is_ours() { Ok(&self.adapter) } else { Err(EIO) }
    }

    /// The queue of its objects' asynchronous events.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// The application's handle.
    pub fn handle(&self) -> *mut ibv_context {
        self.handle.load(Ordering::Acquire)
    }
}

impl Listener for Context {
    fn on_event(&self, _number: u64, event: AsyncEvent) {
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

/// The private part of a context.
///
/// # Safety
/// As [`object::with`].
pub unsafe fn context_of<'a>(context: *mut ibv_context) -> Result<&'a Arc<Context>, Errno> {
    // SAFETY: the caller's promise.
    unsafe { object::with(context) }
}
