//! Asynchronous events of an open device: the queue that `async_fd` counts.
//!
//! Owned by the context. An object that is destroyed takes back what is queued of it, then waits until what
//! was given is acknowledged.

use std::sync::{Arc, Mutex};

use kal_os::lock;
use vp_api::Rnic;

use crate::acks::Acks;
use crate::errno::Errno;
use crate::notify::{Item, Queue};

/// What an event is about.
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
    /// What it is about.
    pub element: Element,
    acks: Arc<Acks>,
}

impl Item for Event {
    fn taken(&self) {
        self.acks.given();
    }
}

/// See the module.
pub struct Events(Queue<Event>);

impl Events {
    pub(crate) fn new() -> Result<Self, Errno> {
        Queue::new().map(Self)
    }

    pub(crate) fn fd(&self) -> i32 {
        self.0.fd()
    }

    /// Tells of an object with these acknowledgements.
    pub(crate) fn push(&self, kind: u32, element: Element, acks: &Arc<Acks>) {
        self.0.push(Event { kind, element, acks: acks.clone() });
    }

    /// The next one.
    pub(crate) fn take(&self, rnic: &dyn Rnic) -> Result<Event, Errno> {
        self.0.take(|fd, timeout| rnic.lead(fd, timeout))
    }
}

/// An object that events are about. None is told of it before it has its handle, nor once it goes.
#[derive(Default)]
pub struct Source {
    /// Its address; 0: it has none yet, or none any more.
    handle: Mutex<usize>,
    acks: Arc<Acks>,
}

impl Source {
    /// It has its handle.
    pub(crate) fn begin(&self, handle: usize) {
        *lock(&self.handle) = handle;
    }

    pub(crate) fn acks(&self) -> &Acks {
        &self.acks
    }

    /// Tells of it.
    pub(crate) fn tell(&self, events: &Events, kind: u32) {
        let handle = lock(&self.handle);
        if *handle != 0 {
            events.push(kind, Element::Handle(*handle), &self.acks);
        }
    }

    /// It goes: so do its events, once those that were given are acknowledged.
    pub(crate) fn end(&self, events: &Events) {
        let handle = std::mem::take(&mut *lock(&self.handle));
        events.0.remove(|event| event.element == Element::Handle(handle));
        self.acks.wait();
    }
}
