//! Concurrency primitives: std's, or loom's when the crate is built for model checking
//! (`--cfg loom`).
//!
//! Owns no state. What is modelled (the dispatchers' queues, their pump, the turn from direct to
//! staged, the connection thread's rest) takes its atomics, locks and gates from here.

#[cfg(not(loom))]
pub(crate) use kal_shim::Gate;
pub(crate) use kal_shim::Slept;
#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};
#[cfg(loom)]
pub(crate) use modelled::Gate;
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

/// Locks a mutex whose holders never leave it half changed, so a poisoned one is as good as new.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The gate with loom's parts. There is no time and there are no signals.
#[cfg(loom)]
mod modelled {
    use std::time::Duration;

    use loom::sync::{Condvar, Mutex};

    use super::{Slept, lock};

    #[derive(Debug, Default)]
    pub(crate) struct Gate {
        opened: Mutex<u32>,
        changed: Condvar,
    }

    impl Gate {
        pub(crate) fn ticket(&self) -> u32 {
            *lock(&self.opened)
        }

        pub(crate) fn wait(&self, ticket: u32, _timeout: Option<Duration>) -> Slept {
            let mut opened = lock(&self.opened);
            while *opened == ticket {
                opened = self.changed.wait(opened).unwrap_or_else(|e| e.into_inner());
            }
            Slept::Woken
        }

        pub(crate) fn open(&self) {
            *lock(&self.opened) += 1;
            self.changed.notify_all();
        }
    }
}
