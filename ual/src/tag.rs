//! The face's number for an object (in IT-API for C: the handle). The access layer stores and returns
//! it; any thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// The face's number for an object; 0 until set.
#[derive(Debug, Default)]
pub struct Tag(AtomicU64);

impl Tag {
    /// The number.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Sets it; once, before the object is shared.
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Release);
    }
}
