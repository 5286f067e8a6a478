//! Combining lock: its holder also does what other threads asked for while it was locked.
//!
//! Each QP has one. A thread that finds work for a QP (octets arrived, the socket has room) never waits for
//! another that holds the lock: it sets the service flag, and the holder serves the QP once more before it
//! leaves. While a peer sends, the flag is set again and again; a holder that has used its budget passes it on,
//! so that no thread stays with one QP without end.

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};

/// How a visit ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Served {
    /// Nothing is left to do.
    Done,
    /// There is more to do, and the next thread that serves finds it reported.
    More,
}

/// A value, its lock, and the flag that asks the holder to serve it.
pub(crate) struct CombiningLock<T> {
    value: Mutex<T>,
    wanted: AtomicBool,
}

impl<T> CombiningLock<T> {
    /// Unlocked, without a request.
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), wanted: AtomicBool::new(false) }
    }

    /// Waits for the lock. After unlocking the caller must call [`CombiningLock::serve_wanted`].
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        lock(&self.value)
    }

    /// Has `serve` run once more from now on, by this thread or by the holder. `serve` gets the locked
    /// value and unlocks it.
    pub(crate) fn serve(&self, serve: impl Fn(MutexGuard<'_, T>) -> Served) {
        // Every access to the flag is a read-modify-write, so all of them have one order: a thread
        // that finds the lock taken has set the flag before the holder last reads it.
        self.wanted.swap(true, Ordering::AcqRel);
        self.serve_wanted(serve);
    }

    /// Serves while the flag is set, until a call of `serve` ends with more to do.
    pub(crate) fn serve_wanted(&self, serve: impl Fn(MutexGuard<'_, T>) -> Served) {
        while self.wanted.fetch_or(false, Ordering::AcqRel) {
            // The holder reads the flag after it has unlocked.
            let Some(value) = self.try_lock() else { return };
            self.wanted.swap(false, Ordering::AcqRel);
            if serve(value) == Served::More {
                return;
            }
        }
    }

    /// Clears the flag before the rest of the work is reported anew: requests until now are part of it.
    /// Called without the lock.
    pub(crate) fn pass_on(&self) {
        self.wanted.swap(false, Ordering::AcqRel);
    }

    /// The lock, if it is free. Afterwards as for [`CombiningLock::lock`].
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.value.try_lock() {
            Ok(value) => Some(value),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_lock_holder_leaves_after_its_budget() {
        let (combining, visits) = (CombiningLock::new(()), Cell::new(0));
        let serve = |guard| {
            let (combining, visits) = (&combining, &visits);
            move |value: MutexGuard<'_, ()>| {
                visits.set(visits.get() + 1);
                // Another request arrives while it is inside, each time but the third.
                if visits.get() < 3 {
                    combining.serve(|_| unreachable!("another thread is inside"));
                }
                drop(value);
                guard
            }
        };
        combining.serve(serve(Served::More));
        assert_eq!(visits.get(), 1);
        combining.serve_wanted(serve(Served::Done));
        assert_eq!(visits.get(), 3);
    }

    #[test]
    fn requests_that_were_passed_on_are_not_served_again() {
        let combining = CombiningLock::new(());
        let inside = combining.lock();
        combining.serve(|_| unreachable!("another thread is inside"));
        drop(inside);
        combining.pass_on();
        combining.serve_wanted(|_| unreachable!("it was passed on"));
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn loom_no_request_for_service_is_lost() {
        loom::model(|| {
            let combining = Arc::new(CombiningLock::new(0));
            let other = {
                let combining = combining.clone();
                thread::spawn(move || {
                    combining.serve(|mut served| {
                        *served += 1;
                        Served::Done
                    })
                })
            };
            drop(combining.lock());
            combining.serve_wanted(|mut served| {
                *served += 1;
                Served::Done
            });
            other.join().unwrap();
            assert!(*combining.lock() >= 1);
        });
    }
}
