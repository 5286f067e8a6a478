//! A lock whose holder also does what others wanted done while it was busy.
//!
//! Each QP has one. A thread that finds work for a QP (octets arrived, the socket has room) never
//! waits for another that holds the lock: it sets the service flag, and the holder serves it before it
//! leaves. The flag is set again and again while a peer sends; a holder that has used up its budget passes
//! it on, so that no thread stays with one QP for ever.

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};

/// How a visit ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Served {
    /// Nothing is left to do.
    Done,
    /// There is more, which has been reported to whoever looks next.
    More,
}

/// A value, its lock, and a flag: somebody wants it served.
pub(crate) struct CombiningLock<T> {
    value: Mutex<T>,
    wanted: AtomicBool,
}

impl<T> CombiningLock<T> {
    /// Nobody inside, nothing wanted.
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), wanted: AtomicBool::new(false) }
    }

    /// Waits for the lock. After unlocking the caller must call [`CombiningLock::serve_wanted`].
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        lock(&self.value)
    }

    /// Has `serve` run once more from now on, by this thread or by whoever is inside. `serve` gets
    /// the locked value and unlocks it.
    pub(crate) fn serve(&self, serve: impl Fn(MutexGuard<'_, T>) -> Served) {
        // Every access to the flag is a read-modify-write, so all of them have one order: a thread
        // that finds the lock taken has set the flag before the holder's last look at it.
        self.wanted.swap(true, Ordering::AcqRel);
        self.serve_wanted(serve);
    }

    /// Serves while the flag is set, until a visit ends with more to do.
    pub(crate) fn serve_wanted(&self, serve: impl Fn(MutexGuard<'_, T>) -> Served) {
        while self.wanted.fetch_or(false, Ordering::AcqRel) {
            // The holder looks at the flag after it has unlocked.
            let Some(value) = self.try_lock() else { return };
            self.wanted.swap(false, Ordering::AcqRel);
            if serve(value) == Served::More {
                return;
            }
        }
    }

    /// Before what is left is reported anew: what was wanted until now needs no serving of its own.
    /// Without the lock.
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
    fn a_holder_that_has_used_up_its_budget_leaves() {
        let (combining, turns) = (CombiningLock::new(()), Cell::new(0));
        let serve = |turn| {
            let (combining, turns) = (&combining, &turns);
            move |value: MutexGuard<'_, ()>| {
                turns.set(turns.get() + 1);
                // Wanted again while it is inside, every time but the third.
                if turns.get() < 3 {
                    combining.serve(|_| unreachable!("somebody is inside"));
                }
                drop(value);
                turn
            }
        };
        combining.serve(serve(Served::More));
        assert_eq!(turns.get(), 1);
        combining.serve_wanted(serve(Served::Done));
        assert_eq!(turns.get(), 3);
    }

    #[test]
    fn what_was_passed_on_is_not_served_again() {
        let combining = CombiningLock::new(());
        let inside = combining.lock();
        combining.serve(|_| unreachable!("somebody is inside"));
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
