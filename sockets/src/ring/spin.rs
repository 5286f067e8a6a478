//! How long a wait looks at memory before it sleeps in the kernel.
//!
//! Owner of the state: static memory, set once; and a connection or a set, for how often it was in vain.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::tuning::{ASK_NS, AWAY_NS, CROWDED_NS, MOST_SKIPPED};

static SPIN_NS: AtomicU64 = AtomicU64::new(0);

/// Sets the longest time, in microseconds.
pub(crate) fn set(micros: u64) {
    SPIN_NS.store(micros.saturating_mul(1000), Relaxed);
}

/// How often it was in vain: then it is not tried for the next waits, twice as many each time.
pub(crate) struct Patience {
    skip: AtomicU32,
    skipped: AtomicU32,
    /// Others want the processors: nobody looks before this time.
    until: AtomicU64,
}

impl Patience {
    pub(crate) const fn new() -> Self {
        Self { skip: AtomicU32::new(0), skipped: AtomicU32::new(0), until: AtomicU64::new(0) }
    }

    pub(crate) fn clear(&self) {
        self.skip.store(0, Relaxed);
        self.skipped.store(0, Relaxed);
        self.until.store(0, Relaxed);
    }

    /// Whether this wait is one that looks.
    pub(crate) fn tries(&self) -> bool {
        if SPIN_NS.load(Relaxed) == 0 {
            return false;
        }
        let left = self.skip.load(Relaxed);
        if left > 0 {
            self.skip.store(left - 1, Relaxed);
        }
        left == 0 && (self.until.load(Relaxed) == 0 || now() >= self.until.load(Relaxed))
    }

    /// A wait sleeps: what [`Patience::wakes`] wants to know.
    pub(crate) fn falls_asleep(&self) -> u64 {
        match SPIN_NS.load(Relaxed) {
            0 => 0,
            _ => now(),
        }
    }

    /// It has slept since then: if not for long, to look would have been better.
    pub(crate) fn wakes(&self, begin: u64) {
        if begin != 0 && self.skip.load(Relaxed) > 0 && now() - begin < SPIN_NS.load(Relaxed) {
            self.skip_after(true);
        }
    }

    /// What came of it.
    pub(crate) fn learn(&self, seen: Seen) {
        let crowded = if seen == Seen::Crowd { now() + CROWDED_NS } else { 0 };
        self.until.store(crowded, Relaxed);
        self.skip_after(matches!(seen, Seen::Memory | Seen::Kernel));
    }

    fn skip_after(&self, found: bool) {
        let next = if found { 0 } else { (self.skipped.load(Relaxed) * 2 + 1).min(MOST_SKIPPED) };
        self.skipped.store(next, Relaxed);
        self.skip.store(next, Relaxed);
    }
}

/// Nanoseconds of the clock.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What ended a look.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// What was looked for.
    Memory,
    /// Something of the kernel's.
    Kernel,
    Nothing,
    /// Others want the processor.
    Crowd,
}

/// Looks until `memory` or `kernel` is true, of which the second costs a system call; at most `limit` nanoseconds. It does not
/// yield: since Linux 6.6 that costs a whole slice of time each, which this thread lacks when it has work.
pub(crate) fn look(
    limit: u64,
    mut memory: impl FnMut() -> bool,
    mut kernel: impl FnMut() -> bool,
) -> Seen {
    let begin = now();
    let end = begin + SPIN_NS.load(Relaxed).min(limit);
    let (mut ask, mut last) = (begin + ASK_NS, begin);
    loop {
        for _ in 0..16 {
            if memory() {
                return Seen::Memory;
            }
            std::hint::spin_loop();
        }
        let time = now();
        // Another ran here meanwhile, and has work for the time that this wait would take.
        if time - last >= AWAY_NS {
            return if memory() { Seen::Memory } else { Seen::Crowd };
        }
        last = time;
        if time >= end {
            return Seen::Nothing;
        }
        if time >= ask {
            if kernel() {
                return Seen::Kernel;
            }
            ask = time + ASK_NS;
        }
    }
}
