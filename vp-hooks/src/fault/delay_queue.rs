//! Delay queue of one CQ: completions that are delayed, repeated or lost. Owned by the CQ, under a lock;
//! any thread.

use std::collections::VecDeque;

use vp_api::{DatagramSource, QpId, VpStatus, WorkCompletion};

use super::spec::Fate;
use crate::hook::Polled;

struct Kept {
    completion: WorkCompletion,
    from: Option<DatagramSource>,
    /// Number of the first poll that may return it.
    due: u64,
}

/// Completions that were taken from the provider and not yet returned to the consumer.
#[derive(Default)]
pub(crate) struct DelayQueue {
    kept: VecDeque<Kept>,
    /// For [`DelayQueue::take`]: the QPs of completions that stay. Has room for all of them.
    blocked: Vec<QpId>,
    /// Number of polls so far.
    polls: u64,
    /// How often the CQ was armed.
    arms: u64,
    /// How often it had been armed when a poll began that found it empty. While this is less, what it holds came before
    /// the request, perhaps, and then no notification reports it. Nothing is delayed meanwhile.
    drained: u64,
}

impl DelayQueue {
    /// Counts a poll and moves due completions to `out`; returns how many.
    pub(super) fn poll(&mut self, out: &mut Polled<'_>) -> usize {
        self.polls += 1;
        self.take(out, 0)
    }

    /// Moves due completions to `out`, after the `before` completions that are there, and keeps the order of each
    /// QP; returns how many.
    pub(super) fn take(&mut self, out: &mut Polled<'_>, before: usize) -> usize {
        let (mut filled, now) = (before, self.polls);
        let Self { kept, blocked, .. } = self;
        blocked.clear();
        kept.retain(|kept| {
            let goes = kept.due <= now && !blocked.contains(&kept.completion.qp);
            match out.out.get_mut(filled) {
                Some(room) if goes => {
                    *room = kept.completion;
                    if let Some(from) = out.from.as_mut().and_then(|from| from.get_mut(filled)) {
                        *from = kept.from;
                    }
                    filled += 1;
                    false
                }
                _ => {
                    blocked.push(kept.completion.qp);
                    true
                }
            }
        });
        filled - before
    }

    /// Makes sure that there is memory for `more` completions, each of them twice. Called before they are polled.
    pub(super) fn make_room(&mut self, more: usize) -> Result<(), VpStatus> {
        let (more, none) = (2 * more, |_| VpStatus::InsufficientResources);
        self.kept.try_reserve(more).map_err(none)?;
        self.blocked.clear();
        self.blocked.try_reserve(self.kept.len() + more).map_err(none)
    }

    /// Adds a completion, as often and with the delay that its fate says, unless the CQ was armed and not found
    /// empty since.
    pub(super) fn put(
        &mut self,
        (completion, from): (&WorkCompletion, Option<DatagramSource>),
        fate: Fate,
    ) {
        let (copies, polls) = match fate {
            Fate::Pass => (1, 0),
            Fate::Drop => (0, 0),
            Fate::Twice => (2, 0),
            Fate::Later(polls) => (1, polls),
        };
        for _ in 0..copies {
            let polls = if self.drained < self.arms { 0 } else { polls };
            let due = self.polls.saturating_add(u64::from(polls));
            self.kept.push_back(Kept { completion: *completion, from, due });
        }
    }

    /// Makes everything due, and what the CQ holds now, too. Called after the CQ was armed.
    pub(super) fn armed(&mut self) {
        self.kept.iter_mut().for_each(|kept| kept.due = 0);
        self.arms += 1;
    }

    /// How often the CQ was armed so far.
    pub(super) fn arms(&self) -> u64 {
        self.arms
    }

    /// Called when a poll found the CQ empty that began after so many requests: it notifies of all that comes later.
    pub(super) fn drained(&mut self, arms: u64) {
        self.drained = self.drained.max(arms);
    }

    /// Removes the completions of a QP.
    pub(super) fn clear(&mut self, qp: QpId) {
        self.kept.retain(|kept| kept.completion.qp != qp);
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(qp: u32, wr_id: u64) -> WorkCompletion {
        WorkCompletion { qp: QpId(qp), wr_id, ..WorkCompletion::BLANK }
    }

    fn poll(queue: &mut DelayQueue, room: usize) -> Vec<u64> {
        let mut out = vec![WorkCompletion::BLANK; room];
        let filled = queue.poll(&mut Polled { out: &mut out, from: None });
        out[..filled].iter().map(|completion| completion.wr_id).collect()
    }

    #[test]
    fn a_delay_holds_up_its_own_qp_only() {
        let mut queue = DelayQueue::default();
        queue.put((&of(1, 1), None), Fate::Later(2));
        queue.put((&of(1, 2), None), Fate::Pass);
        queue.put((&of(2, 3), None), Fate::Pass);
        assert_eq!(poll(&mut queue, 8), [3]);
        assert_eq!(poll(&mut queue, 8), [1, 2]);
        assert!(queue.is_empty());
    }

    #[test]
    fn completions_with_room_are_kept_and_returned_without_memory() {
        let mut queue = DelayQueue::default();
        for round in 0..3 {
            queue.make_room(8).unwrap();
            let room = (queue.kept.capacity(), queue.blocked.capacity());
            (0..8).for_each(|n| queue.put((&of(round, n), None), Fate::Twice));
            poll(&mut queue, 3);
            assert_eq!((queue.kept.capacity(), queue.blocked.capacity()), room);
        }
        assert_eq!(queue.make_room(usize::MAX / 128), Err(VpStatus::InsufficientResources));
    }

    #[test]
    fn completions_without_room_come_next_time() {
        let mut queue = DelayQueue::default();
        queue.put((&of(1, 1), None), Fate::Twice);
        queue.put((&of(2, 2), None), Fate::Drop);
        queue.put((&of(2, 3), None), Fate::Pass);
        assert_eq!(poll(&mut queue, 1), [1]);
        assert_eq!(poll(&mut queue, 2), [1, 3]);
    }

    #[test]
    fn arming_releases_and_destroying_forgets() {
        let mut queue = DelayQueue::default();
        queue.put((&of(1, 1), None), Fate::Later(9));
        queue.put((&of(2, 2), None), Fate::Later(9));
        queue.armed();
        queue.clear(QpId(1));
        assert_eq!(poll(&mut queue, 8), [2]);
    }

    #[test]
    fn nothing_is_delayed_from_arming_until_the_cq_is_empty() {
        let mut queue = DelayQueue::default();
        queue.armed();
        queue.put((&of(1, 1), None), Fate::Later(9));
        assert_eq!(poll(&mut queue, 8), [1]);
        // By a poll that another thread began before the request.
        queue.drained(0);
        queue.put((&of(1, 2), None), Fate::Later(9));
        assert_eq!(poll(&mut queue, 8), [2]);
        queue.drained(queue.arms());
        queue.put((&of(1, 3), None), Fate::Later(9));
        assert_eq!(poll(&mut queue, 8), []);
    }
}
