//! Which thread tells the asynchronous events of a QP, so that they come in order and one at a time.
//!
//! The events wait behind the QP's lock; who unlocks it and finds that nobody tells them does so until
//! there are none. The state that an event is about can be seen before it: a thread that has a QP begin
//! anew waits here until the consumer's handler has returned from the last event of the earlier stream,
//! which would else be taken for one of the next. A handler that blocks holds up that caller only.

use std::sync::PoisonError;
use std::thread::{ThreadId, current};

use crate::sync::{Condvar, Mutex, lock};

/// See the module.
pub(crate) struct Telling {
    by: Mutex<Option<ThreadId>>,
    over: Condvar,
}

impl Telling {
    pub(crate) fn new() -> Self {
        Self { by: Mutex::new(None), over: Condvar::new() }
    }

    /// The calling thread tells from now on; false if another one does. Under the QP's lock.
    pub(crate) fn begin(&self) -> bool {
        let mut by = lock(&self.by);
        let free = by.is_none();
        if free {
            *by = Some(current().id());
        }
        free
    }

    /// Everything is told. Under the QP's lock.
    pub(crate) fn end(&self) {
        *lock(&self.by) = None;
        self.over.notify_all();
    }

    /// Whether no other thread is telling.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.by).is_none_or(|by| by == current().id())
    }

    /// Waits until nobody tells; false if that is this very thread, from whose handler it is asked.
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
