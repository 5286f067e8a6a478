//! Delivery of a QP's asynchronous events: which thread delivers, so that they come in order and one at a time.
//! The events wait under the QP's lock. A thread that unlocks it and finds that no other delivers them does so
//! until there are none. The state that an event is about can be seen before the event: a thread that begins a
//! new stream on the QP therefore waits here until the consumer's handler has returned from the last event of
//! the earlier stream; otherwise the consumer would take that event for one of the new stream. A handler that blocks
//! delays only that caller.

use std::sync::PoisonError;
use std::thread::{ThreadId, current};

use crate::sync::{Condvar, Mutex, lock};

/// The thread that delivers, and those that wait for it.
pub(crate) struct EventDelivery {
    by: Mutex<Option<ThreadId>>,
    over: Condvar,
}

impl EventDelivery {
    pub(crate) fn new() -> Self {
        Self { by: Mutex::new(None), over: Condvar::new() }
    }

    /// The calling thread delivers from now on; false if another one does. Under the QP's lock.
    pub(crate) fn begin(&self) -> bool {
        let mut by = lock(&self.by);
        let free = by.is_none();
        if free {
            *by = Some(current().id());
        }
        free
    }

    /// All events are delivered. Under the QP's lock.
    pub(crate) fn end(&self) {
        *lock(&self.by) = None;
        self.over.notify_all();
    }

    /// Whether no other thread is delivering.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.by).is_none_or(|by| by == current().id())
    }

    /// Waits until no thread delivers; false if the calling thread does, from whose handler this is
    /// called.
    pub(crate) fn wait(&self) -> bool {
        let mut by = lock(&self.by);
        while let Some(thread) = *by {
            if thread == current().id() {
                return false;
            }
            by = self.over.wait(by).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}
