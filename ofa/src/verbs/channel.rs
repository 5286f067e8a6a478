//! Completion channels (ibv_create_comp_channel(3), ibv_get_cq_event(3)): a descriptor for any number of
//! completion queues.
//!
//! A queue is in the channel once for each time that it was armed. The channel can be destroyed when no
//! completion queue uses it.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ibv_sys::*;

use crate::acks::Acks;
use crate::errno::{self, EBUSY, Errno};
use crate::notify::{Item, Queue};
use crate::object::{self, Handle};
use crate::verbs::context::{Context, context_of};

/// A completion channel.
pub struct Channel {
    context: Arc<Context>,
    queue: Queue<Completed>,
    /// Completion queues that use it.
    users: AtomicU32,
}

impl Handle for ibv_comp_channel {
    type Whole = Self;
    type Private = Channel;
    const NAME: &'static str = "struct ibv_comp_channel";
}

/// A completion queue's notification fired.
struct Completed {
    /// Address of its handle.
    cq: usize,
    acks: Arc<Acks>,
}

impl Item for Completed {
    fn taken(&self) {
        self.acks.given();
    }
}

impl Channel {
    pub(crate) fn use_it(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn push(&self, cq: usize, acks: &Arc<Acks>) {
        self.queue.push(Completed { cq, acks: acks.clone() });
    }

    /// A completion queue is destroyed: removes its notifications, and waits until those that were
    /// returned are acknowledged.
    pub(crate) fn forget(&self, cq: usize, acks: &Acks) {
        self.queue.remove(|item| item.cq == cq);
        acks.wait();
        self.users.fetch_sub(1, Ordering::AcqRel);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    // SAFETY: the caller's context.
    let private = unsafe { context_of(context) };
    errno::pointer(private.and_then(|private| {
        private.adapter()?;
        let queue = Queue::new()?;
        let whole = ibv_comp_channel { context, fd: queue.fd(), refcnt: 0 };
        let channel = Channel { context: private.clone(), queue, users: AtomicU32::new(0) };
        Ok(object::new(whole, Arc::new(channel)))
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_destroy_comp_channel(
    channel: *mut ibv_comp_channel,
) -> c_int {
    // SAFETY: the caller's channel.
    let private = unsafe { object::with(channel) };
    errno::code(private.and_then(|private| {
        if private.users.load(Ordering::Acquire) != 0 {
            return Err(EBUSY);
        }
        // SAFETY: the caller gives it up.
        let private = unsafe { object::destroy(channel) }?;
        if private.queue.is_waited_at() {
            std::mem::forget(private);
        }
        Ok(())
    }))
}

fn next(channel: &Channel) -> Result<*mut ibv_cq, Errno> {
    let rnic = channel.context.adapter()?.rnic();
    let item = channel.queue.take(|fd, timeout| rnic.lead(fd, timeout))?;
    Ok(std::ptr::with_exposed_provenance_mut(item.cq))
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn warpline_ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's channel.
    let private = unsafe { object::with(channel) };
    errno::minus(private.and_then(|private| {
        let found = next(private)?;
        // SAFETY: it lives until this event is acknowledged.
        let context = unsafe { (*found).cq_context };
        // SAFETY: the caller's pointer.
        unsafe { cq.write(found) };
        // SAFETY: the caller's pointer.
        unsafe { cq_context.write(context) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_ack_cq_events(cq: *mut ibv_cq, events: c_uint) {
    // SAFETY: the caller's completion queue.
    if let Ok(cq) = unsafe { object::with(cq) } {
        cq.completion_acks().acked(events.into());
    }
}
