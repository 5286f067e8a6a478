//! Sequence numbers for the provider's events, for objects as they are created, and for streams as they
//! begin. One counter per adapter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An event with a smaller number than an object or stream belongs to an earlier one with the same id.
#[derive(Clone, Default)]
pub struct Sequence(Arc<AtomicU64>);

impl Sequence {
    /// The next number.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}
