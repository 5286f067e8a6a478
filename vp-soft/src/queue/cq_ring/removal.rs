//! Removing a QP's completions from a CQ that other QPs share: when it is destroyed, or reset.
//!
//! The ring must not have holes, so completions of other QPs move to a list beside it. While the list is not empty,
//! the oldest ring is held: poppers take the lock and pop from the list first. Pushers are not affected. Owner: a
//! [`CqRing`], under a separate lock. When the list is empty, the ring is released, and poppers take no lock any
//! more.
//!
//! If a pusher was stopped half way, or if there is no memory for the list, completions stay in the ring; then a
//! thread that pops one checks whether it was removed.

use std::collections::VecDeque;

use vp_api::{QpId, WorkCompletion};

use super::CqRing;
use crate::queue::ring::Ring;
use crate::sync::lock;

/// The completions beside the ring.
#[derive(Default)]
pub(super) struct SideList {
    /// Completions that were in the ring, each with its position there.
    list: VecDeque<(u64, WorkCompletion)>,
    /// QPs whose completions are removed, each with the position after the last of them. A QP that is not destroyed
    /// adds others from there on.
    removed: Vec<(QpId, u64)>,
}

/// What fills a ring.
pub(super) enum Filling {
    /// Completions that are removed, perhaps.
    Removed,
    /// Only completions that are to be polled.
    Valid,
    /// It is not full any more.
    NoMore,
}

impl SideList {
    fn is_removed(&self, qp: QpId, place: u64) -> bool {
        self.removed.iter().any(|(removed, end)| *removed == qp && place < *end)
    }
}

impl CqRing {
    /// Removes the completions of a QP, which adds none meanwhile: a pop that begins afterwards finds none of them, and
    /// they use no room. Those of other QPs stay, and keep their order and positions.
    /// RDMAC 6.1.4 [VERBS-20]
    pub fn remove(&self, qp: QpId) {
        let mut side = lock(&self.side);
        side.list.retain(|(_, completion)| completion.qp != qp);
        let end = self.newest().pushed();
        match side.removed.iter_mut().find(|(removed, _)| *removed == qp) {
            // It was reset before, and its completions of then are still in the ring.
            Some((_, before)) => *before = end,
            None => side.removed.push((qp, end)),
        }
        self.move_aside(end, &mut side);
        self.release_if_empty(&mut side);
    }

    /// Moves completions before a position from the rings to the list, as far as they can be popped.
    fn move_aside(&self, end: u64, side: &mut SideList) {
        if side.list.try_reserve(self.in_rings().0).is_err() {
            return;
        }
        while self.hold_oldest().popped() < end
            && let Some((place, completion)) = self.take_held(side)
        {
            side.list.push_back((place, completion));
        }
    }

    /// The oldest completion in the rings that is not removed.
    fn take_held(&self, side: &SideList) -> Option<(u64, WorkCompletion)> {
        loop {
            let (place, completion) = self.hold_oldest().pop_held()?;
            if !side.is_removed(completion.qp, place) {
                return Some((place, completion));
            }
        }
    }

    /// Holds the ring that the next completion comes from: only the owner of the lock pops from it.
    fn hold_oldest(&self) -> &Ring {
        let mut ring = self.oldest();
        ring.hold();
        while let Some(next) = ring.is_finished_held().then(|| self.next_after(ring)).flatten() {
            // The ring is held first: otherwise other threads could pop completions that come after those in the
            // list.
            next.hold();
            ring = self.advance(ring, next);
        }
        ring
    }

    fn release_if_empty(&self, side: &mut SideList) -> bool {
        let ring = self.hold_oldest();
        let popped = ring.popped();
        side.removed.retain(|(_, end)| *end > popped);
        let empty = side.list.is_empty() && side.removed.is_empty();
        if empty {
            ring.release();
        }
        empty
    }

    /// Pops completions while the ring is held.
    #[cold]
    pub(super) fn pop_held(&self, out: &mut [WorkCompletion]) -> usize {
        let mut side = lock(&self.side);
        let mut popped = 0;
        for place in &mut *out {
            let next = side.list.pop_front().or_else(|| self.take_held(&side));
            let Some((_, completion)) = next else { break };
            *place = completion;
            popped += 1;
        }
        let released = self.release_if_empty(&mut side);
        drop(side);
        if popped == 0 && released { self.pop(out) } else { popped }
    }

    /// The position before which all completions were popped, while the ring is held.
    #[cold]
    pub(super) fn taken_held(&self) -> u64 {
        let side = lock(&self.side);
        side.list.front().map_or_else(|| self.oldest().popped(), |(place, _)| *place)
    }

    /// The number of completions in the list.
    #[cold]
    pub(super) fn side_len(&self) -> usize {
        lock(&self.side).list.len()
    }

    /// What a ring is full of that was found full. Poppers may have made room since; whoever forgets which completions are removed
    /// has made room before, under this lock.
    #[cold]
    pub(super) fn filling(&self, ring: &Ring) -> Filling {
        let side = lock(&self.side);
        match (ring.is_full_now(), side.removed.is_empty()) {
            (false, _) => Filling::NoMore,
            (true, false) => Filling::Removed,
            (true, true) => Filling::Valid,
        }
    }
}

#[cfg(test)]
impl CqRing {
    /// For tests: acts as if a QP's completions could not be moved.
    fn keep_in_ring(&self, qp: QpId) {
        self.hold_oldest();
        lock(&self.side).removed.push((qp, self.newest().pushed()));
    }
}

#[cfg(test)]
#[path = "removal_tests.rs"]
mod tests;
