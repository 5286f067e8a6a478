//! Unpredictable random numbers for STag indices.
//!
//! Owned by the STag table's allocator and used under its lock.

use std::hash::{BuildHasher, RandomState};

/// A keyed hash over a counter; the 128-bit key comes from the operating system.
pub(crate) struct Random {
    key: RandomState,
    counter: u64,
}

impl Random {
    pub(crate) fn new() -> Self {
        Self { key: RandomState::new(), counter: 0 }
    }

    /// A number in `0..limit`. `limit` is far below 2^32, so the bias is negligible.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.counter += 1;
        (self.key.hash_one(self.counter) % limit.max(1) as u64) as usize
    }
}
