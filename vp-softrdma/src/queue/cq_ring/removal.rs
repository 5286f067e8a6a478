//! Removing a destroyed QP's completions from a CQ that others complete in, too.
//!
//! The ring has no holes: what others have among them goes to a list beside it. While anything is
//! there, the oldest ring is held: poppers take the lock and take from the list first. Pushers notice
//! nothing. Owner: a [`CqRing`], under its lock for this. When the list is empty the ring is released,
//! and poppers take no lock any more.
//!
//! A pusher that was stopped half way, or want of memory for the list, keeps completions in the ring:
//! then a thread that takes one out of it looks whether its QP is gone.

use std::collections::VecDeque;

use vp_api::{QpId, WorkCompletion};

use super::CqRing;
use crate::queue::ring::Ring;
use crate::sync::lock;

/// What is beside the ring.
#[derive(Default)]
pub(super) struct Aside {
    /// Completions that were in the ring, each with its place there.
    list: VecDeque<(u64, WorkCompletion)>,
    /// QPs that are gone, each with the place behind the last completion that may be of it.
    gone: Vec<(QpId, u64)>,
}

impl Aside {
    fn has_lost(&self, qp: QpId) -> bool {
        self.gone.iter().any(|(gone, _)| *gone == qp)
    }
}

impl CqRing {
    /// Removes the completions of a QP that puts no more: no pop that begins afterwards finds one, and
    /// they take no room. Those of others stay, in their order, and keep their places.
    // RDMAC 6.1.4 [VERBS-20]
    pub fn remove(&self, qp: QpId) {
        let mut aside = lock(&self.aside);
        aside.list.retain(|(_, completion)| completion.qp != qp);
        let end = self.newest().pushed();
        aside.gone.push((qp, end));
        self.empty(end, &mut aside);
        self.release_if_empty(&mut aside);
    }

    /// Moves what is before a place from the rings to the list, as far as it can be popped.
    fn empty(&self, end: u64, aside: &mut Aside) {
        if aside.list.try_reserve(self.in_rings().0).is_err() {
            return;
        }
        while self.hold_oldest().popped() < end
            && let Some((place, completion)) = self.take_held(aside)
        {
            aside.list.push_back((place, completion));
        }
    }

    /// The oldest completion in the rings whose QP is not gone.
    fn take_held(&self, aside: &Aside) -> Option<(u64, WorkCompletion)> {
        loop {
            let (place, completion) = self.hold_oldest().pop_held()?;
            if !aside.has_lost(completion.qp) {
                return Some((place, completion));
            }
        }
    }

    /// The ring that the next completion comes from, where only the holder of the lock pops.
    fn hold_oldest(&self) -> &Ring {
        let mut ring = self.oldest();
        ring.hold();
        while let Some(next) = ring.is_finished_held().then(|| self.behind(ring)).flatten() {
            // First: else others pop there what came behind the list.
            next.hold();
            ring = self.go_on(ring, next);
        }
        ring
    }

    fn release_if_empty(&self, aside: &mut Aside) -> bool {
        let ring = self.hold_oldest();
        let popped = ring.popped();
        aside.gone.retain(|(_, end)| *end > popped);
        let empty = aside.list.is_empty() && aside.gone.is_empty();
        if empty {
            ring.release();
        }
        empty
    }

    /// Pops where the ring is held.
    #[cold]
    pub(super) fn pop_held(&self, out: &mut [WorkCompletion]) -> usize {
        let mut aside = lock(&self.aside);
        let mut popped = 0;
        for place in &mut *out {
            let next = aside.list.pop_front().or_else(|| self.take_held(&aside));
            let Some((_, completion)) = next else { break };
            *place = completion;
            popped += 1;
        }
        let released = self.release_if_empty(&mut aside);
        drop(aside);
        if popped == 0 && released { self.pop(out) } else { popped }
    }

    /// Completions before this place were taken, where the ring is held.
    #[cold]
    pub(super) fn taken_held(&self) -> u64 {
        let aside = lock(&self.aside);
        aside.list.front().map_or_else(|| self.oldest().popped(), |(place, _)| *place)
    }

    /// Completions in the list.
    #[cold]
    pub(super) fn aside(&self) -> usize {
        lock(&self.aside).list.len()
    }

    /// The ring may be full of what QPs left that are gone.
    #[cold]
    pub(super) fn keeps_gone(&self) -> bool {
        !lock(&self.aside).gone.is_empty()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
impl CqRing {
    /// As if what a QP left could not be moved.
    fn stay(&self, qp: QpId) {
        self.hold_oldest();
        lock(&self.aside).gone.push((qp, self.newest().pushed()));
    }
}

#[cfg(test)]
#[path = "removal_tests.rs"]
mod tests;
