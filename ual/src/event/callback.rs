//! The callback of a dispatcher: attached or not, running or not.
//!
//! The dispatcher owns it; the dispatch thread runs it, one call at a time, without locks held.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::error::{Error, Result};

/// The function that an application attaches.
pub(super) type Function<T> = dyn Fn(&Arc<T>) + Send + Sync;

/// The callback of a `T`, if one is attached.
pub(super) struct Callback<T> {
    slot: Mutex<Slot<T>>,
    ended: Condvar,
}

struct Slot<T> {
    function: Option<Arc<Function<T>>>,
    running: Option<ThreadId>,
}

impl<T> Callback<T> {
    pub(super) fn new() -> Self {
        let slot = Slot { function: None, running: None };
        Self { slot: Mutex::new(slot), ended: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Slot<T>> {
        // Nothing panics while the lock is held.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_attached(&self) -> bool {
        self.lock().function.is_some()
    }

    pub(super) fn attach(&self, function: Box<Function<T>>) -> Result<()> {
        let mut slot = self.lock();
        if slot.function.is_some() {
            return Err(Error::CallbackExists);
        }
        slot.function = Some(function.into());
        Ok(())
    }

    /// Calls it, if there is one.
    pub(super) fn run(&self, of: &Arc<T>) {
        let function = {
            let mut slot = self.lock();
            let Some(function) = slot.function.clone() else { return };
            slot.running = Some(thread::current().id());
            function
        };
        if catch_unwind(AssertUnwindSafe(|| function(of))).is_err() {
            tracing::error!("the callback of an event dispatcher panicked; it stays attached");
        }
        // Before the end is reported: afterwards nothing of the application's is left here.
        drop(function);
        self.lock().running = None;
        self.ended.notify_all();
    }

    /// Detaches it and waits until it is not running, unless the caller is inside it.
    pub(super) fn detach(&self) {
        let mut slot = self.lock();
        let function = slot.function.take();
        while slot.running.is_some_and(|runner| runner != thread::current().id()) {
            slot = self.ended.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
        drop(slot);
        drop(function);
    }
}
