//! Concurrency primitives: std's, or loom's when the crate is built for model checking
//! (`--cfg loom`).
//!
//! No state. All modelled code takes its atomics, cells, locks and gates from here and nowhere else.

#[cfg(loom)]
pub use loom::{
    cell::UnsafeCell,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    },
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};
#[cfg(not(loom))]
pub use std::{
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    },
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};

pub use crate::gate::{Gate, Slept};
#[cfg(not(loom))]
pub use crate::lock;

/// As [`crate::lock`].
#[cfg(loom)]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// std's cell with loom's interface: loom checks every access that goes through the closures.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// A cell that holds `value`.
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Shared access; the caller proves what it does with the pointer.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Exclusive access; the caller proves what it does with the pointer.
    #[inline(always)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Waits briefly for another thread that needs a few more instructions.
#[derive(Debug, Default)]
pub struct Patience {
    steps: u32,
}

impl Patience {
    /// About a second of short sleeps.
    const LIMIT: u32 = 20_000;

    /// One step: spins, later yields, then sleeps for 50 us; false when about one second is over.
    pub fn wait(&mut self) -> bool {
        self.steps += 1;
        pause(self.steps);
        self.steps < Self::LIMIT || cfg!(loom)
    }
}

#[cfg(not(loom))]
fn pause(step: u32) {
    match step {
        0..=64 => std::hint::spin_loop(),
        65..=1_000 => yield_now(),
        _ => std::thread::sleep(std::time::Duration::from_micros(50)),
    }
}

/// Under loom every other thread runs before this one continues; there is no time.
#[cfg(loom)]
fn pause(_: u32) {
    yield_now();
}
