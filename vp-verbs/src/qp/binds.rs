//! Outstanding binds of memory windows. If a bind fails, the window gets its earlier state back.
//!
//! Owner: a queue pair. Used by threads that post, under the lock of the ring, and by threads that poll a failed
//! bind. There is at most one bind for each slot of the queue; adding a bind removes those whose requests have
//! ended. A reset queue pair has none.

use std::collections::VecDeque;

use vp_api::VpStatus;

use crate::mw::{Bind, Memory};
use crate::ring::Ring;

/// The binds with their numbers in the ring, in the order of posting.
#[derive(Debug, Default)]
pub(super) struct Binds(VecDeque<(u32, Bind)>);

impl Binds {
    /// Adds a bind that is about to be posted under this number.
    pub(super) fn push(&mut self, ring: &Ring, number: u32, bind: Bind) -> Result<(), VpStatus> {
        self.0.retain(|(number, _)| ring.has(*number));
        self.0.try_reserve(1).map_err(|_| VpStatus::InsufficientResources)?;
        self.0.push_back((number, bind));
        Ok(())
    }

    /// Undoes the binds that the device did not take: those from this number on.
    pub(super) fn take_back(&mut self, from: u32, memory: &Memory) {
        let untaken = |(number, _): &(u32, Bind)| number.wrapping_sub(from) < 1 << 31;
        while self.0.back().is_some_and(untaken) {
            self.undo(self.0.len() - 1, memory);
        }
    }

    /// Undoes the bind with this number, which has failed or was flushed.
    pub(super) fn fail(&mut self, number: u32, memory: &Memory) {
        if let Some(at) = self.0.iter().position(|(posted, _)| *posted == number) {
            self.undo(at, memory);
        }
    }

    fn undo(&mut self, at: usize, memory: &Memory) {
        let Some((_, failed)) = self.0.remove(at) else { return };
        memory.undo(&failed);
        // Later binds assumed that this one would succeed.
        for (_, later) in self.0.range_mut(at..) {
            later.forget(&failed);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
