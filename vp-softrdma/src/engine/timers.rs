//! Deadlines of QPs. Owned by the engine; any thread sets, the engine's thread takes what is due.
//!
//! A deadline is never cancelled: whoever gets it finds out that it no longer matters.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::sync::{Mutex, lock};

/// What a deadline is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// Bound on a graceful close.
    Close,
    /// Nothing has arrived since our first FPDU.
    Nudge,
    /// Look whether the peer still answers.
    Probe,
    /// Look whether posts that wait for more are overdue.
    Gather,
}

/// A wait shorter than this is kept to the nanosecond.
const EXACT_NS: u64 = 1 << 20;

/// The deadline that takes the place of `at`: at most an eighth of the wait later, so that those of
/// many idle QPs wake the engine once.
pub(super) fn shared(at: u64, now: u64) -> u64 {
    match at.saturating_sub(now) {
        wait if wait < EXACT_NS => at,
        wait => at.checked_next_multiple_of(1 << (wait.ilog2() - 3)).unwrap_or(at),
    }
}

/// A heap of deadlines, in nanoseconds of the services' clock.
#[derive(Default)]
pub(crate) struct Timers {
    heap: Mutex<BinaryHeap<Reverse<(u64, u32, Timer)>>>,
}

impl Timers {
    /// Adds a deadline of QP `qp`.
    pub(crate) fn set(&self, at: u64, qp: u32, timer: Timer) {
        lock(&self.heap).push(Reverse((at, qp, timer)));
    }

    /// Takes one deadline that has passed.
    pub(crate) fn take_due(&self, now: u64) -> Option<(u32, Timer)> {
        let mut heap = lock(&self.heap);
        if heap.peek().is_none_or(|Reverse((at, ..))| *at > now) {
            return None;
        }
        heap.pop().map(|Reverse((_, qp, timer))| (qp, timer))
    }

    /// The next deadline.
    pub(crate) fn next(&self) -> Option<u64> {
        lock(&self.heap).peek().map(|Reverse((at, ..))| *at)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn deadlines_of_many_fall_together() {
        const MS: u64 = 1_000_000;
        let at: std::collections::BTreeSet<u64> =
            (0..10_000).map(|n| shared((10_000 + n) * MS, n * MS)).collect();
        // Ten seconds' worth of probes.
        assert!(at.len() <= 11, "{}", at.len());
        for wait in [0, 1, MS, 20 * MS, 10_000 * MS, u64::MAX / 2] {
            let late = shared(77 + wait, 77) - 77 - wait;
            assert!(late <= wait / 8, "{late} behind {wait}");
        }
        assert_eq!(shared(u64::MAX, 0), u64::MAX);
    }

    #[test]
    fn gives_what_is_due_in_order() {
        let timers = Timers::default();
        timers.set(30, 1, Timer::Close);
        timers.set(10, 2, Timer::Probe);
        timers.set(20, 3, Timer::Nudge);
        assert_eq!(timers.next(), Some(10));
        assert_eq!(timers.take_due(9), None);
        assert_eq!(timers.take_due(25), Some((2, Timer::Probe)));
        assert_eq!(timers.take_due(25), Some((3, Timer::Nudge)));
        assert_eq!(timers.take_due(25), None);
        assert_eq!(timers.next(), Some(30));
    }
}
