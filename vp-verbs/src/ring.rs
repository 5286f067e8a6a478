//! Outstanding requests and queue slots. A completion of the device has the number of an entry here, which holds
//! the consumer's request; this is needed because a failed completion does not even have its operation. A request
//! occupies a slot until its completion is polled. If it ends without a completion, it occupies the slot until a
//! later completion of the queue is polled (RDMAC 6.3).
//!
//! Owner: a queue, under its lock; completions that wait in a CQ keep a count of their slots. Requests of a queue
//! end in order, those of a shared receive queue in any order. If the peer dies, flushed requests are treated like
//! others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vp_api::{VpResult, WcOpcode, room};

/// One posted work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Posted {
    pub(crate) wr_id: u64,
    pub(crate) opcode: WcOpcode,
    /// Signalled: a success is reported to the consumer, too.
    pub(crate) signaled: bool,
}

/// Counts the slots of completed requests whose completions wait to be polled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(Arc<AtomicU32>);

impl Waiting {
    /// Slots that are occupied.
    pub(crate) fn slots(&self) -> usize {
        self.0.load(Ordering::Acquire) as usize
    }

    /// Occupies this many more slots.
    pub(crate) fn add(&self, slots: u32) -> Untaken {
        self.0.fetch_add(slots, Ordering::AcqRel);
        Untaken { of: Some(self.clone()), slots }
    }
}

/// Slots that are freed when a completion is polled: dropping this frees them. The default has none.
#[derive(Debug, Default)]
pub(crate) struct Untaken {
    of: Option<Waiting>,
    slots: u32,
}

impl Untaken {
    /// Adds the slots of another value of the same queue.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.slots += std::mem::take(&mut other.slots);
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        if let Some(Waiting(count)) = &self.of {
            count.fetch_sub(self.slots, Ordering::AcqRel);
        }
    }
}

/// What to do with a completion of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// The consumer gets it from this poll.
    Now,
    /// It waits until the consumer polls.
    Later,
}

#[derive(Debug)]
struct Entry<P> {
    posted: P,
    /// The device is to report a success.
    completed: bool,
    ours: bool,
}

/// Work requests, which end in the order of posting.
#[derive(Debug)]
pub(crate) struct Ring<P = Posted> {
    /// Number of the oldest request.
    first: u32,
    posted: VecDeque<Entry<P>>,
    depth: usize,
    /// Entries that the provider posted for itself; they occupy no slots.
    ours: usize,
    /// Slots of requests that ended without a completion.
    silent: u32,
    waiting: Waiting,
}

impl<P> Ring<P> {
    /// Also has room for the provider's own entries: one at the beginning, one at the end.
    pub(crate) fn new(depth: u32) -> VpResult<Self> {
        let depth = depth as usize;
        let posted = room::list("requests of a queue", depth + 2)?.into();
        let waiting = Waiting::default();
        Ok(Self { first: 0, posted, depth, ours: 0, silent: 0, waiting })
    }

    /// Requests that the device has not reported as ended.
    pub(crate) fn len(&self) -> usize {
        self.posted.len()
    }

    /// The number of free slots.
    pub(crate) fn room(&self) -> usize {
        let occupied = self.posted.len() + self.silent as usize + self.waiting.slots();
        (self.depth + self.ours).saturating_sub(occupied)
    }

    /// The number of the next entry, and whether the device must report its completion: if the consumer wants it,
    /// or if the entry fills the queue, so that there is room in the queue to [ask](Ring::ends_quietly).
    pub(crate) fn next(&self, signaled: bool) -> (u32, bool) {
        let number = self.first.wrapping_add(self.posted.len() as u32);
        (number, signaled || self.room() <= 1)
    }

    /// Whether the device has not reported the entry with this number as ended.
    pub(crate) fn has(&self, number: u32) -> bool {
        (number.wrapping_sub(self.first) as usize) < self.posted.len()
    }

    /// Adds an entry that the device accepted; `completed` is the result of [`Ring::next`].
    pub(crate) fn push(&mut self, posted: P, completed: bool) {
        self.posted.push_back(Entry { posted, completed, ours: false });
    }

    /// Adds an entry of the provider's own, which occupies no slot.
    pub(crate) fn push_ours(&mut self, posted: P, completed: bool) {
        self.ours += 1;
        self.posted.push_back(Entry { posted, completed, ours: true });
    }

    /// Whether the newest entry ends without a completion if it succeeds.
    pub(crate) fn ends_quietly(&self) -> bool {
        self.posted.back().is_some_and(|entry| !entry.completed)
    }

    /// The newest entry.
    pub(crate) fn newest(&self) -> Option<&P> {
        self.posted.back().map(|entry| &entry.posted)
    }

    /// Removes the newest entry, which the device refused.
    pub(crate) fn unpush(&mut self) {
        let entry = self.posted.pop_back();
        self.ours -= usize::from(entry.is_some_and(|entry| entry.ours));
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.posted.clear();
        self.ours = 0;
    }

    /// Ends all entries up to `number`: returns that entry, and the slots of all. `None` if it ended before.
    pub(crate) fn end(&mut self, number: u32) -> Option<(P, u32)> {
        let ahead = number.wrapping_sub(self.first) as usize;
        if ahead >= self.posted.len() {
            return None;
        }
        let ours = self.posted.range(..=ahead).filter(|entry| entry.ours).count();
        let ended = self.posted.drain(..=ahead).next_back()?;
        self.ours -= ours;
        self.first = number.wrapping_add(1);
        Some((ended.posted, (ahead + 1 - ours) as u32))
    }

    /// Adds slots that were released without a completion.
    pub(crate) fn add_silent(&mut self, slots: u32) {
        self.silent += slots;
    }

    /// Occupies this many slots with completions of requests that are not in this ring.
    pub(crate) fn wait(&self, slots: u32) -> Untaken {
        self.waiting.add(slots)
    }

    /// The slots of a completion that ends this many entries, and of the unsignalled ones before it.
    pub(crate) fn complete(&mut self, slots: u32, taken: Taken) -> Untaken {
        let slots = slots + std::mem::take(&mut self.silent);
        match taken {
            Taken::Now => Untaken::default(),
            Taken::Later => self.waiting.add(slots),
        }
    }

    /// All work of the stream has ended: requests without a completion occupy no slots any more.
    pub(crate) fn forget_silent(&mut self) {
        self.silent = 0;
    }

    /// Ends all entries that are left; the device reports none of them any more. Unsignalled entries at the front
    /// have succeeded. All entries from the first one on that the device would have reported are passed to `flush`,
    /// in order; if the device has `flushed` some already, all entries are.
    pub(crate) fn end_all(&mut self, mut flushed: bool, mut flush: impl FnMut(P, Untaken)) {
        while let Some(Entry { posted, completed, ours }) = self.posted.pop_front() {
            self.first = self.first.wrapping_add(1);
            if ours {
                self.ours -= 1;
                continue;
            }
            flushed |= completed;
            match flushed {
                true => flush(posted, self.complete(1, Taken::Later)),
                false => self.silent += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(wr_id: u64, signaled: bool) -> Posted {
        Posted { wr_id, opcode: WcOpcode::Send, signaled }
    }

    fn posted(depth: u32, signaled: &[bool]) -> Ring {
        let mut ring = Ring::new(depth).unwrap();
        for (n, signaled) in signaled.iter().enumerate() {
            let (number, completed) = ring.next(*signaled);
            assert_eq!(number, n as u32);
            ring.push(send(n as u64, *signaled), completed);
        }
        ring
    }

    #[test]
    fn a_completion_ends_the_unsignalled_requests_before_it() {
        let mut ring = posted(8, &[false, false, true]);
        assert_eq!(ring.end(2), Some((send(2, true), 3)));
        drop(ring.complete(3, Taken::Now));
        assert_eq!((ring.len(), ring.room()), (0, 8));
        assert_eq!(ring.end(2), None);
        assert_eq!(ring.end(3), None);
    }

    #[test]
    fn a_slot_is_free_when_its_completion_was_taken() {
        let mut ring = posted(4, &[true, false, true]);
        assert_eq!(ring.end(0).map(|(_, slots)| slots), Some(1));
        let first = ring.complete(1, Taken::Later);
        assert_eq!((ring.len(), ring.room()), (2, 1));
        assert_eq!(ring.end(2).map(|(_, slots)| slots), Some(2));
        let second = ring.complete(2, Taken::Later);
        assert_eq!((ring.len(), ring.room()), (0, 1));
        drop(second);
        assert_eq!(ring.room(), 3);
        drop(first);
        assert_eq!(ring.room(), 4);
    }

    #[test]
    fn slots_of_unsignalled_requests_are_freed_by_the_next_completion() {
        let mut ring = posted(4, &[false, true]);
        assert_eq!(ring.end(0).map(|(_, slots)| slots), Some(1));
        ring.add_silent(1);
        assert_eq!(ring.room(), 2);
        assert_eq!(ring.end(1).map(|(_, slots)| slots), Some(1));
        let completed = ring.complete(1, Taken::Later);
        assert_eq!(ring.room(), 2);
        drop(completed);
        assert_eq!(ring.room(), 4);
        ring.add_silent(2);
        ring.forget_silent();
        assert_eq!(ring.room(), 4);
    }

    #[test]
    fn requests_that_a_device_does_not_report_end_in_order() {
        for (flushed, wanted) in [(false, vec![1, 2]), (true, vec![0, 1, 2])] {
            let mut ring = Ring::new(4).unwrap();
            ring.push_ours(send(9, false), false);
            for (wr_id, signaled) in [(0, false), (1, true), (2, false)] {
                ring.push(send(wr_id, signaled), signaled);
            }
            let mut completed = Vec::new();
            ring.end_all(flushed, |posted, untaken| completed.push((posted.wr_id, untaken)));
            let ids: Vec<_> = completed.iter().map(|(wr_id, _)| *wr_id).collect();
            assert_eq!((ids, ring.len(), ring.room()), (wanted, 0, 1));
            drop(completed);
            assert_eq!((ring.room(), ring.next(true)), (4, (4, true)));
        }
    }

    #[test]
    fn the_request_that_fills_the_queue_is_reported() {
        let mut ring = posted(3, &[false, false]);
        assert!(ring.ends_quietly());
        assert_eq!(ring.next(false), (2, true));
        ring.push(send(2, false), true);
        assert!(!ring.ends_quietly());
        ring.unpush();
        assert!(ring.ends_quietly());
        assert_eq!(ring.newest(), Some(&send(1, false)));
        assert!(Ring::<Posted>::new(1).unwrap().next(false).1);
    }

    #[test]
    fn requests_that_are_not_the_consumers_take_no_slot() {
        let mut ring = Ring::new(2).unwrap();
        ring.push_ours(send(0, false), false);
        for wr_id in 1..3 {
            assert_eq!(ring.room(), 3 - wr_id as usize);
            ring.push(send(wr_id, true), true);
        }
        assert_eq!(ring.end(1), Some((send(1, true), 1)));
        drop(ring.complete(1, Taken::Now));
        assert_eq!(ring.room(), 1);
        ring.push_ours(send(3, false), true);
        assert_eq!(ring.room(), 1);
        assert_eq!(ring.end(3), Some((send(3, false), 1)));
        ring.add_silent(1);
        assert_eq!(ring.room(), 1);
        ring.push_ours(send(4, false), true);
        ring.unpush();
        assert_eq!(ring.room(), 1);
    }
}
