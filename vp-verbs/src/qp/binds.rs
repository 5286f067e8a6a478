//! Outstanding binds of windows: if one fails, the window is bound as it was before.
//!
//! Owner: a queue pair. Used by threads that post, under the lock of the ring, and by threads that poll a bind in
//! error. At most one for each slot of the queue; those whose requests have ended go when one is added.
//! A queue pair that begins anew has none.

use std::collections::VecDeque;

use vp_api::VpStatus;

use crate::mw::{Bind, Memory};
use crate::ring::Ring;

/// With their numbers in the ring, in the order of posting.
#[derive(Debug, Default)]
pub(super) struct Binds(VecDeque<(u32, Bind)>);

impl Binds {
    /// Adds one that is about to be posted under this number.
    pub(super) fn push(&mut self, ring: &Ring, number: u32, bind: Bind) -> Result<(), VpStatus> {
        self.0.retain(|(number, _)| ring.has(*number));
        self.0.try_reserve(1).map_err(|_| VpStatus::InsufficientResources)?;
        self.0.push_back((number, bind));
        Ok(())
    }

    /// Undoes those that the device did not take: numbers from this one on.
    pub(super) fn take_back(&mut self, from: u32, memory: &Memory) {
        let untaken = |(number, _): &(u32, Bind)| number.wrapping_sub(from) < 1 << 31;
        while self.0.back().is_some_and(untaken) {
            self.undo(self.0.len() - 1, memory);
        }
    }

    /// Undoes the one of this number, which has failed or was flushed.
    pub(super) fn fail(&mut self, number: u32, memory: &Memory) {
        if let Some(at) = self.0.iter().position(|(posted, _)| *posted == number) {
            self.undo(at, memory);
        }
    }

    fn undo(&mut self, at: usize, memory: &Memory) {
        let Some((_, failed)) = self.0.remove(at) else { return };
        memory.undo(&failed);
        // Later binds assumed that this one succeeds.
        for (_, later) in self.0.range_mut(at..) {
            later.forget(&failed);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
