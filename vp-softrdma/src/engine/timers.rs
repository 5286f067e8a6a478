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
