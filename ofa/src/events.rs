//! Asynchronous events of an open device: the queue behind `async_fd`.
//!
//! Owned by the context. Destroying an object removes its queued events, then waits until those that
//! were returned are acknowledged.

use std::sync::{Arc, Mutex};

use kal_os::lock;
use vp_api::Rnic;

use crate::acks::Acks;
use crate::errno::Errno;
use crate::notify::{Item, Queue};

/// The object of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Element {
    /// The address of a queue pair's, completion queue's or shared receive queue's handle.
    Handle(usize),
    /// A port.
    Port(i32),
}

/// An event of libibverbs.
#[derive(Clone)]
pub struct Event {
    /// `IBV_EVENT_…`
    pub kind: u32,
    /// The object that it is about.
    pub element: Element,
    acks: Arc<Acks>,
}

impl Item for Event {
    fn taken(&self) {
        self.acks.given();
    }
}

/// The queue of one context.
pub struct Events(Queue<Event>);

impl Events {
    pub(crate) fn new() -> Result<Self, Errno> {
        Queue::new().map(Self)
    }

    pub(crate) fn fd(&self) -> i32 {
        self.0.fd()
    }

    /// Queues an event of an object with these acknowledgements.
    pub(crate) fn push(&self, kind: u32, element: Element, acks: &Arc<Acks>) {
        self.0.push(Event { kind, element, acks: acks.clone() });
    }

    /// The next event.
    pub(crate) fn take(&self, rnic: &dyn Rnic) -> Result<Event, Errno> {
        self.0.take(|fd, timeout| rnic.lead(fd, timeout))
    }
}

/// An object that events are about. No event of it is queued before it has its handle, or after its
/// destruction began.
#[derive(Default)]
pub struct Source {
    /// The address of its handle; 0: there is none yet, or no longer.
    handle: Mutex<usize>,
    acks: Arc<Acks>,
}

impl Source {
    /// Sets the handle.
    pub(crate) fn begin(&self, handle: usize) {
        *lock(&self.handle) = handle;
    }

    pub(crate) fn acks(&self) -> &Acks {
        &self.acks
    }

    /// Queues an event of it.
    pub(crate) fn raise(&self, events: &Events, kind: u32) {
        let handle = lock(&self.handle);
        if *handle != 0 {
            events.push(kind, Element::Handle(*handle), &self.acks);
        }
    }

    /// Destruction: removes its events, and waits until those that were returned are acknowledged.
    pub(crate) fn end(&self, events: &Events) {
        let handle = std::mem::take(&mut *lock(&self.handle));
        events.0.remove(|event| event.element == Element::Handle(handle));
        self.acks.wait();
    }
}
