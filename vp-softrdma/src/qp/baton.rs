//! A lock whose holder also does what others wanted done while it was busy.
//!
//! Each QP has one. A thread that finds work for a QP (octets arrived, the socket has room) never
//! waits for another that is inside: it leaves word, and the one inside sees to it before it goes.
//! Words keep coming while a peer sends; a holder whose turn is over passes them on, so that no
//! thread stays with one QP for ever.

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};

/// How serving ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Nothing is left to do.
    Done,
    /// There is more, which has been reported to whoever looks next.
    Over,
}

/// A value, its lock, and a note that somebody wants it served.
pub(crate) struct Baton<T> {
    value: Mutex<T>,
    wanted: AtomicBool,
}

impl<T> Baton<T> {
    /// Nobody inside, nothing wanted.
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), wanted: AtomicBool::new(false) }
    }

    /// Waits for the lock. After unlocking the caller must call [`Baton::serve_wanted`].
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        lock(&self.value)
    }

    /// Has `serve` run once more from now on, by this thread or by whoever is inside. `serve` gets
    /// the locked value and unlocks it.
    pub(crate) fn serve(&self, serve: impl Fn(MutexGuard<'_, T>) -> Turn) {
        // Every access to the note is a read-modify-write, so all of them have one order: a thread
        // that finds the lock taken has left its note before the holder's last look at it.
        self.wanted.swap(true, Ordering::AcqRel);
        self.serve_wanted(serve);
    }

    /// Serves if somebody left word, until there is none or a turn is over.
    pub(crate) fn serve_wanted(&self, serve: impl Fn(MutexGuard<'_, T>) -> Turn) {
        while self.wanted.fetch_or(false, Ordering::AcqRel) {
            // Whoever is inside looks at the note after it has unlocked.
            let Some(value) = self.try_lock() else { return };
            self.wanted.swap(false, Ordering::AcqRel);
            if serve(value) == Turn::Over {
                return;
            }
        }
    }

    /// Before what is left is reported anew: words left until now need no serving of their own.
    /// Without the lock.
    pub(crate) fn pass_on(&self) {
        self.wanted.swap(false, Ordering::AcqRel);
    }

    /// The lock, if it is free. Afterwards as for [`Baton::lock`].
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
    fn a_holder_whose_turn_is_over_leaves() {
        let (baton, turns) = (Baton::new(()), Cell::new(0));
        let serve = |turn| {
            let (baton, turns) = (&baton, &turns);
            move |value: MutexGuard<'_, ()>| {
                turns.set(turns.get() + 1);
                // Another word while it is inside, every time: but for the third.
                if turns.get() < 3 {
                    baton.serve(|_| unreachable!("somebody is inside"));
                }
                drop(value);
                turn
            }
        };
        baton.serve(serve(Turn::Over));
        assert_eq!(turns.get(), 1);
        baton.serve_wanted(serve(Turn::Done));
        assert_eq!(turns.get(), 3);
    }

    #[test]
    fn words_that_were_passed_on_are_not_served_again() {
        let baton = Baton::new(());
        let inside = baton.lock();
        baton.serve(|_| unreachable!("somebody is inside"));
        drop(inside);
        baton.pass_on();
        baton.serve_wanted(|_| unreachable!("it was passed on"));
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn loom_no_word_is_lost() {
        loom::model(|| {
            let baton = Arc::new(Baton::new(0));
            let other = {
                let baton = baton.clone();
                thread::spawn(move || {
                    baton.serve(|mut served| {
                        *served += 1;
                        Turn::Done
                    })
                })
            };
            drop(baton.lock());
            baton.serve_wanted(|mut served| {
                *served += 1;
                Turn::Done
            });
            other.join().unwrap();
            assert!(*baton.lock() >= 1);
        });
    }
}
