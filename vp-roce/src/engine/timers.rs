//! Timers of queue pairs, ordered by deadline.
//!
//! Owner: the engine. Calls nothing while it holds its lock. A queue pair that needs an earlier time adds another
//! timer. One that needs a later time waits for the earlier timer, and adds the later one then. A queue pair
//! ignores all timers but the last that it added.

use std::collections::BTreeSet;
use std::sync::Mutex;

use kal_os::lock;

/// Times in microseconds, with the numbers of the queue pairs.
#[derive(Default)]
pub(super) struct Timers(Mutex<BTreeSet<(u64, u32)>>);

impl Timers {
    /// Adds a timer; returns true if it is now the earliest.
    pub(super) fn set(&self, at: u64, number: u32) -> bool {
        let mut all = lock(&self.0);
        all.insert((at, number));
        all.first() == Some(&(at, number))
    }

    /// Removes and returns a timer that is due.
    pub(super) fn due(&self, now: u64) -> Option<(u64, u32)> {
        let mut all = lock(&self.0);
        let first = all.first().copied().filter(|(at, _)| *at <= now)?;
        all.remove(&first);
        Some(first)
    }

    /// The earliest time.
    pub(super) fn next(&self) -> Option<u64> {
        lock(&self.0).first().map(|(at, _)| *at)
    }
}
