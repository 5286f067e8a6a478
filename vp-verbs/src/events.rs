//! Events of an open device: CQ notifications and asynchronous events from the kernel, the handler of asynchronous
//! events, and the eventfds that end waits.
//!
//! Owner: the device; [`crate::thread`] reads them. An event is acknowledged first, because destroying its object
//! waits for the acknowledgement.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use vp_api::{AsyncEvent, AsyncHandler, EventSource};

use crate::device::Context;
use crate::map::{self, About};
use crate::owned::{Owned, done};
use ibv_sys::*;

/// The handler of asynchronous events; without one they are lost (RDMAC 9.2.12).
#[derive(Default)]
pub(crate) struct EventSink(RwLock<Option<Arc<dyn AsyncHandler>>>);

impl EventSink {
    pub(crate) fn set(&self, handler: Option<Arc<dyn AsyncHandler>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = handler;
    }

    pub(crate) fn emit(&self, source: EventSource, event: AsyncEvent) {
        let handler = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(handler) = handler {
            handler.on_event(source, event);
        }
    }
}

/// A completion channel, and its descriptor.
pub(crate) struct Channel {
    raw: Owned<ibv_comp_channel>,
}

impl Channel {
    pub(crate) fn new(context: &Arc<Context>) -> io::Result<Self> {
        let ibv = &context.api.ibv;
        // SAFETY: the context is open.
        let raw = unsafe { (ibv.ibv_create_comp_channel)(context.as_ptr()) };
        // SAFETY: just created; destroyed by its counterpart.
        let raw = unsafe { Owned::new(raw, ibv.ibv_destroy_comp_channel, context)? };
        Ok(Self { raw })
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_comp_channel {
        self.raw.as_ptr()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: alive; the field never changes.
        let fd = unsafe { (*self.raw.as_ptr()).fd };
        // SAFETY: the channel keeps the descriptor open.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

/// Makes a descriptor nonblocking.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?)
}

/// A descriptor that [`ring`] makes readable.
pub(crate) fn bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Makes it readable.
pub(crate) fn ring(bell: &OwnedFd) {
    // A write fails only if the counter is full, and then the descriptor is readable.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Makes it unreadable.
pub(crate) fn quiet(bell: &OwnedFd) {
    // A read fails only if the descriptor is unreadable already.
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

/// The id of the next CQ that has notified.
pub(crate) fn next_completion(context: &Context, channel: &Channel) -> Option<u32> {
    let ibv = &context.api.ibv;
    let mut cq: *mut ibv_cq = std::ptr::null_mut();
    let mut id: *mut c_void = std::ptr::null_mut();
    // SAFETY: the channel is alive, the results may be written.
    let got = unsafe { (ibv.ibv_get_cq_event)(channel.as_ptr(), &mut cq, &mut id) };
    done(got).ok()?;
    // SAFETY: the CQ lives until its event is acknowledged, which happens here.
    unsafe { (ibv.ibv_ack_cq_events)(cq, 1) };
    Some(id.addr() as u32)
}

/// The next event, if any: the kind of its object, the object's id, and what happened.
pub(crate) fn next_async(context: &Context) -> Option<(About, u64, Option<AsyncEvent>)> {
    let ibv = &context.api.ibv;
    let mut event =
        ibv_async_event { element: event_element { port_num: 0 }, event_type: u32::MAX };
    // SAFETY: the context is open, the event may be written.
    done(unsafe { (ibv.ibv_get_async_event)(context.as_ptr(), &mut event) }).ok()?;
    let about = map::about(event.event_type);
    let id = id_of(about, &event);
    // SAFETY: an event that was received and not yet acknowledged.
    unsafe { (ibv.ibv_ack_async_event)(&mut event) };
    Some((about, id, map::event(event.event_type)))
}

/// The id that was given as the object's context. The object lives until the acknowledgement.
fn id_of(about: About, event: &ibv_async_event) -> u64 {
    match about {
        About::Qp => {
            // SAFETY: the event's type says which member is set.
            let qp = unsafe { event.element.qp };
            // SAFETY: alive, see above.
            unsafe { (*qp).qp_context }.addr() as u64
        }
        About::Cq => {
            // SAFETY: as above.
            let cq = unsafe { event.element.cq };
            // SAFETY: as above.
            unsafe { (*cq).cq_context }.addr() as u64
        }
        About::Srq => {
            // SAFETY: as above.
            let srq = unsafe { event.element.srq };
            // SAFETY: as above.
            unsafe { (*srq).srq_context }.addr() as u64
        }
        About::Port => {
            // SAFETY: as above.
            let port: c_int = unsafe { event.element.port_num };
            map::count(port).into()
        }
        About::Device => 0,
    }
}

/// Makes the descriptors of both kinds of events nonblocking.
pub(crate) fn prepare(context: &Context, channel: &Channel) -> io::Result<()> {
    set_nonblocking(context.async_fd().as_fd())?;
    set_nonblocking(channel.fd())
}
