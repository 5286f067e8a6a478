//! Deadlines of streams, at most one of each kind. Owned by the engine; any thread sets them, the
//! engine's thread takes those that are due.
//!
//! A QP has many streams, one after the other. Each gets a generation when it begins, and its deadlines
//! are cancelled when it ends, however it ends. A deadline that is taken at that very moment names its
//! stream, so the QP sees, under its lock, that the deadline is not for the present stream. Cancelled
//! deadlines leave the heap when they reach its top, or all together when they are most of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::sync::{Mutex, lock};
use crate::tuning::{EXACT_TIMER_NS, KEPT_CANCELLED};

/// What a deadline is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// Bound on an orderly close.
    Close,
    /// Nothing has arrived since our first FPDU: send a zero-length kick.
    Kick,
    /// Check whether the peer still responds.
    Probe,
    /// Check whether deferred posts are overdue.
    Coalesce,
    /// A message has waited too long for a receive.
    Hold,
}

/// The deadline that replaces `at`: later by at most an eighth of the wait, so that the deadlines of
/// many idle QPs wake the engine once.
pub(super) fn shared(at: u64, now: u64) -> u64 {
    match at.saturating_sub(now) {
        wait if wait < EXACT_TIMER_NS => at,
        wait => at.checked_next_multiple_of(1 << (wait.ilog2() - 3)).unwrap_or(at),
    }
}

/// Kinds of deadlines.
const KINDS: usize = 5;
/// No deadline.
const NEVER: u64 = u64::MAX;

/// Deadlines in nanoseconds of the services' clock.
#[derive(Default)]
pub(crate) struct Timers {
    table: Mutex<DeadlineTable>,
}

#[derive(Default)]
struct DeadlineTable {
    heap: BinaryHeap<Reverse<(u64, u32, Timer)>>,
    streams: BTreeMap<u32, Deadlines>,
    /// The generation of the next stream.
    next: u32,
    /// Cancelled deadlines that are still in the heap.
    stale: usize,
}

/// The deadlines of a QP's present stream.
struct Deadlines {
    stream: u32,
    at: [u64; KINDS],
}

impl Timers {
    /// Makes room for the deadlines of this many streams, cancelled ones that are still in the heap
    /// included; false: there is no memory for that.
    pub(crate) fn reserve(&self, streams: usize) -> bool {
        let heap = &mut lock(&self.table).heap;
        let most = 2 * (KINDS * streams + KEPT_CANCELLED);
        heap.try_reserve(most.saturating_sub(heap.len())).is_ok()
    }

    /// The stream of `qp` continues as one of `own`, without its earlier deadlines. Returns the
    /// generation.
    pub(crate) fn replace(&self, qp: u32, own: u32) -> u32 {
        let mut table = lock(&self.table);
        table.end(qp);
        table.begin(own)
    }

    /// A stream of QP `qp` begins: returns its generation.
    pub(crate) fn begin(&self, qp: u32) -> u32 {
        lock(&self.table).begin(qp)
    }

    /// The stream ends, and its deadlines with it.
    pub(crate) fn end(&self, qp: u32) {
        lock(&self.table).end(qp);
    }

    /// Sets the deadline of this kind, replacing an earlier one; does nothing if the stream is over.
    pub(crate) fn set(&self, at: u64, qp: u32, stream: u32, timer: Timer) {
        lock(&self.table).set(at, qp, stream, timer);
    }

    /// Takes one deadline that has passed: the QP, the generation and the kind.
    pub(crate) fn take_due(&self, now: u64) -> Option<(u32, u32, Timer)> {
        let mut table = lock(&self.table);
        table.next().filter(|at| *at <= now)?;
        let Reverse((_, qp, timer)) = table.heap.pop()?;
        let deadlines = table.streams.get_mut(&qp)?;
        deadlines.at[timer as usize] = NEVER;
        Some((qp, deadlines.stream, timer))
    }

    /// The next deadline.
    pub(crate) fn next(&self) -> Option<u64> {
        lock(&self.table).next()
    }
}

impl DeadlineTable {
    fn begin(&mut self, qp: u32) -> u32 {
        self.next = self.next.wrapping_add(1);
        let deadlines = Deadlines { stream: self.next, at: [NEVER; KINDS] };
        let gone = self.streams.insert(qp, deadlines).map_or(0, |before| before.count());
        self.cancelled(gone);
        self.next
    }

    fn end(&mut self, qp: u32) {
        let gone = self.streams.remove(&qp).map_or(0, |deadlines| deadlines.count());
        self.cancelled(gone);
    }

    fn set(&mut self, at: u64, qp: u32, stream: u32, timer: Timer) {
        let deadlines = self.streams.get_mut(&qp).filter(|deadlines| deadlines.stream == stream);
        let Some(deadlines) = deadlines else { return };
        let before = std::mem::replace(&mut deadlines.at[timer as usize], at);
        if before != at {
            if at != NEVER {
                self.heap.push(Reverse((at, qp, timer)));
            }
            self.cancelled(usize::from(before != NEVER));
        }
    }

    /// The next deadline, which is then the first of the heap.
    fn next(&mut self) -> Option<u64> {
        while let Some(Reverse(first)) = self.heap.peek() {
            if is_set(&self.streams, first) {
                return Some(first.0);
            }
            self.heap.pop();
            self.stale = self.stale.saturating_sub(1);
        }
        None
    }

    /// This many more of the heap are cancelled. They are removed when they are most of it.
    fn cancelled(&mut self, count: usize) {
        self.stale += count;
        if self.stale > KEPT_CANCELLED.max(self.heap.len() / 2) {
            let Self { heap, streams, .. } = self;
            heap.retain(|Reverse(deadline)| is_set(streams, deadline));
            self.stale = 0;
        }
    }
}

fn is_set(streams: &BTreeMap<u32, Deadlines>, (at, qp, timer): &(u64, u32, Timer)) -> bool {
    streams.get(qp).is_some_and(|deadlines| deadlines.at[*timer as usize] == *at)
}

impl Deadlines {
    fn count(&self) -> usize {
        self.at.iter().filter(|at| **at != NEVER).count()
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
        // The probes of ten seconds.
        assert!(at.len() <= 11, "{}", at.len());
        for wait in [0, 1, MS, 20 * MS, 10_000 * MS, u64::MAX / 2] {
            let late = shared(77 + wait, 77) - 77 - wait;
            assert!(late <= wait / 8, "{late} behind {wait}");
        }
        assert_eq!(shared(u64::MAX, 0), u64::MAX);
        // Short waits are exact.
        assert_eq!(shared(EXACT_TIMER_NS, 1), EXACT_TIMER_NS);
        assert_eq!(shared(EXACT_TIMER_NS + 1, 1), EXACT_TIMER_NS + EXACT_TIMER_NS / 8);
    }

    #[test]
    fn gives_what_is_due_in_order() {
        let timers = Timers::default();
        let streams = [1, 2, 3].map(|qp| timers.begin(qp));
        timers.set(30, 1, streams[0], Timer::Close);
        timers.set(10, 2, streams[1], Timer::Probe);
        timers.set(20, 3, streams[2], Timer::Kick);
        assert_eq!(timers.next(), Some(10));
        assert_eq!(timers.take_due(9), None);
        assert_eq!(timers.take_due(25), Some((2, streams[1], Timer::Probe)));
        assert_eq!(timers.take_due(25), Some((3, streams[2], Timer::Kick)));
        assert_eq!(timers.take_due(25), None);
        assert_eq!(timers.next(), Some(30));
    }

    #[test]
    fn one_deadline_of_a_kind() {
        let timers = Timers::default();
        let stream = timers.begin(1);
        for at in [30, 10, 20, 20] {
            timers.set(at, 1, stream, Timer::Close);
        }
        timers.set(15, 1, stream, Timer::Probe);
        assert_eq!(timers.take_due(100), Some((1, stream, Timer::Probe)));
        assert_eq!(timers.next(), Some(20));
        assert_eq!(timers.take_due(100), Some((1, stream, Timer::Close)));
        assert_eq!(timers.take_due(100), None);
        timers.set(40, 1, stream, Timer::Close);
        timers.set(NEVER, 1, stream, Timer::Close);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn deadlines_end_with_their_stream() {
        let timers = Timers::default();
        let first = timers.begin(1);
        timers.set(10, 1, first, Timer::Close);
        timers.end(1);
        assert_eq!(timers.next(), None);
        timers.set(10, 1, first, Timer::Close);
        assert_eq!(timers.take_due(10), None);
        let second = timers.begin(1);
        assert_ne!(first, second);
        timers.set(20, 1, first, Timer::Close);
        assert_eq!(timers.next(), None);
        timers.set(30, 1, second, Timer::Close);
        // Without an end in between: the QP was destroyed, and its stream lingers.
        let third = timers.begin(1);
        timers.set(40, 1, third, Timer::Kick);
        assert_eq!(timers.take_due(100), Some((1, third, Timer::Kick)));
        assert_eq!(timers.take_due(100), None);
    }

    #[test]
    fn room_is_made_for_those_that_are_cancelled_too() {
        let timers = Timers::default();
        assert!(timers.reserve(10));
        assert_eq!(lock(&timers.table).heap.capacity(), 2 * (KINDS * 10 + KEPT_CANCELLED));
    }

    #[test]
    fn cancelled_deadlines_are_removed_when_they_are_the_majority() {
        const LIVE: usize = 200;
        let timers = Timers::default();
        let state = || {
            let table = lock(&timers.table);
            (table.heap.len(), table.stale)
        };
        let streams: Vec<u32> = (0..LIVE as u32).map(|qp| timers.begin(qp)).collect();
        for (qp, stream) in (0..).zip(&streams[1..]) {
            timers.set(1000, qp + 1, *stream, Timer::Close);
        }
        timers.set(1000, 0, streams[0], Timer::Probe);
        for again in 1..=LIVE {
            assert_eq!(state(), (LIVE + again - 1, again - 1));
            timers.set(1000 + again as u64, 0, streams[0], Timer::Probe);
        }
        assert_eq!(state(), (2 * LIVE, LIVE), "half of them");
        timers.set(1, 0, streams[0], Timer::Probe);
        assert_eq!(state(), (LIVE, 0));
        // The deadlines of a stream are cancelled together.
        timers.set(2, 0, streams[0], Timer::Close);
        timers.set(3, 0, streams[0], Timer::Kick);
        timers.end(0);
        assert_eq!(state(), (LIVE + 2, 3));
    }

    #[test]
    fn cancelled_deadlines_take_no_room() {
        let timers = Timers::default();
        for at in 0..100_000 {
            let stream = timers.begin(1);
            timers.set(1_000_000 + at, 1, stream, Timer::Close);
            timers.end(1);
        }
        assert!(lock(&timers.table).heap.len() <= 2 * KEPT_CANCELLED);
        let stream = timers.begin(2);
        for at in 0..100_000 {
            timers.set(1_000_000 + at, 2, stream, Timer::Probe);
        }
        assert!(lock(&timers.table).heap.len() <= 2 * KEPT_CANCELLED);
        assert_eq!(timers.next(), Some(1_099_999));
    }
}
