//! Deadlines of queue pairs.
//!
//! Owner: the engine. Under its own lock nothing is called. A queue pair that needs an earlier time adds one; one that
//! needs a later time lets the earlier one come and adds its own then. It ignores all but the last that it added.

use std::collections::BTreeSet;
use std::sync::Mutex;

use kal_os::lock;

/// Times in microseconds, with the numbers of queue pairs.
#[derive(Default)]
pub(super) struct Timers(Mutex<BTreeSet<(u64, u32)>>);

impl Timers {
    /// Adds one; true if it is the first now.
    pub(super) fn set(&self, at: u64, number: u32) -> bool {
        let mut all = lock(&self.0);
        all.insert((at, number));
        all.first() == Some(&(at, number))
    }

    /// Takes one that is due.
    pub(super) fn due(&self, now: u64) -> Option<(u64, u32)> {
        let mut all = lock(&self.0);
        let first = all.first().copied().filter(|(at, _)| *at <= now)?;
        all.remove(&first);
        Some(first)
    }

    /// The time of the first.
    pub(super) fn next(&self) -> Option<u64> {
        lock(&self.0).first().map(|(at, _)| *at)
    }
}
