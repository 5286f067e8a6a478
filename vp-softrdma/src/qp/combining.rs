//! Combining lock: its holder also does what other threads asked for while it was locked.
//!
//! Each QP has one. A thread that finds work for a QP (octets arrived, the socket has room) never waits for
//! another that holds the lock: it sets the service flag, and the holder serves the QP once more before it
//! leaves. While a peer sends, the flag is set again and again; a holder that has used its budget passes it on,
//! so that no thread stays with one QP without end.
//!
//! The flag is in the word of the lock: every change of the word has its place in one order, so a holder that has
//! unlocked needs only to load the word. With a flag of its own beside a mutex, each visit needed a fence more. A thread
//! that waits for the lock spins for a moment and then sleeps at a gate. A child made by fork(2) must not use a lock
//! that another thread of its parent held.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::sync::{AtomicU32, Gate, Ordering, UnsafeCell};
use crate::tuning::LOCK_SPINS;

const LOCKED: u32 = 1;
/// The service flag.
const WANTED: u32 = 2;
/// Threads may sleep at the gate.
const SLEEPERS: u32 = 4;

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
    /// Of [`LOCKED`], [`WANTED`] and [`SLEEPERS`].
    word: AtomicU32,
    gate: Gate,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that holds the lock reaches the value, which `T: Send` allows.
unsafe impl<T: Send> Sync for CombiningLock<T> {}

/// The locked value; dropped, it unlocks.
pub(crate) struct Guard<'a, T> {
    lock: &'a CombiningLock<T>,
    /// Neither `Send` nor `Sync`: it gives access to the value.
    _here: PhantomData<*mut T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held until the guard is dropped, and exclusive access needs `&mut` of the only guard.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and this guard is borrowed exclusively.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.word.fetch_sub(LOCKED, Ordering::Release) & SLEEPERS != 0 {
            self.lock.wake();
        }
    }
}

impl<T> CombiningLock<T> {
    /// Unlocked, without a request.
    pub(crate) fn new(value: T) -> Self {
        Self { word: AtomicU32::new(0), gate: Gate::default(), value: UnsafeCell::new(value) }
    }

    /// The lock, if it is free. Afterwards as for [`CombiningLock::lock`].
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let mut word = 0;
        // First as if there were no flag, so that the cache line is fetched once.
        while let Err(now) =
            self.word.compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed)
        {
            if now & LOCKED != 0 {
                return None;
            }
            word = now;
        }
        Some(Guard { lock: self, _here: PhantomData })
    }

    /// Waits for the lock. After unlocking the caller must call [`CombiningLock::serve_wanted`].
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_in_time(),
        }
    }

    #[cold]
    fn lock_in_time(&self) -> Guard<'_, T> {
        // loom has no time: its threads sleep at once.
        let spins = if cfg!(loom) { 0 } else { LOCK_SPINS };
        for _ in 0..spins {
            if self.word.load(Ordering::Relaxed) & LOCKED == 0
                && let Some(guard) = self.try_lock()
            {
                return guard;
            }
            std::hint::spin_loop();
        }
        loop {
            // The ticket is drawn before the flag is set: a thread that unlocks and finds the flag opens the gate, and
            // a thread with an older ticket does not sleep.
            let ticket = self.gate.ticket();
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            if self.announce_sleeper() {
                self.gate.wait(ticket, None);
            }
        }
    }

    /// Has the holder open the gate when it unlocks. False: the word has changed, and perhaps nobody holds the lock.
    fn announce_sleeper(&self) -> bool {
        let (word, relaxed) = (self.word.load(Ordering::Relaxed), Ordering::Relaxed);
        let set = || self.word.compare_exchange(word, word | SLEEPERS, relaxed, relaxed);
        word & LOCKED != 0 && set().is_ok()
    }

    /// Wakes those who wait for the lock; the first of them to run takes it.
    #[cold]
    fn wake(&self) {
        // Before the gate opens: what is set afterwards is for the next thread that unlocks.
        self.word.fetch_and(!SLEEPERS, Ordering::Relaxed);
        self.gate.open();
    }

    /// Has `serve` run once more from now on, by this thread or by the holder. `serve` gets the locked
    /// value and unlocks it.
    pub(crate) fn serve(&self, serve: impl Fn(Guard<'_, T>) -> Served) {
        if self.word.fetch_or(WANTED, Ordering::AcqRel) & LOCKED == 0 {
            self.serve_wanted(serve);
        }
    }

    /// Serves while the flag is set, until a call of `serve` ends with more to do. Returns whether it was
    /// set.
    #[inline]
    pub(crate) fn serve_wanted(&self, serve: impl Fn(Guard<'_, T>) -> Served) -> bool {
        // A thread that found the lock taken set the flag before this thread unlocked, in the order of the word.
        let mut wanted = false;
        while self.word.load(Ordering::Acquire) & WANTED != 0 {
            wanted = true;
            // The holder loads the word after it has unlocked.
            let Some(value) = self.try_lock() else { break };
            self.pass_on();
            if serve(value) == Served::More {
                break;
            }
        }
        wanted
    }

    /// Clears the flag before the rest of the work is reported anew: requests until now are part of it.
    pub(crate) fn pass_on(&self) {
        self.word.fetch_and(!WANTED, Ordering::AcqRel);
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
            move |value: Guard<'_, ()>| {
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
    fn threads_that_wait_get_the_lock_one_by_one() {
        const THREADS: usize = 4;
        const EACH: usize = 20_000;
        let combining = CombiningLock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for turn in 0..EACH {
                        let mut sum = combining.lock();
                        *sum += 1;
                        if turn % 64 == 0 {
                            // Others sleep meanwhile.
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        assert_eq!(*combining.lock(), THREADS * EACH);
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

    /// One holds the lock while the others wait, at last asleep.
    #[test]
    fn loom_no_thread_sleeps_at_a_free_lock() {
        let mut model = loom::model::Builder::new();
        // One that sleeps, one that wakes it late, and one that takes the lock in between.
        model.preemption_bound = Some(3);
        model.check(|| {
            let combining = Arc::new(CombiningLock::new(0));
            let add = |combining: &CombiningLock<i32>| *combining.lock() += 1;
            let others = [(); 2].map(|()| {
                let combining = combining.clone();
                thread::spawn(move || add(&combining))
            });
            add(&combining);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(*combining.lock(), 3);
        });
    }
}
