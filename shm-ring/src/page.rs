//! The first page of the memory: positions and flags, each on a line of its own.
//!
//! Shared by both processes, and by all threads that use an end. Each word has one writer if both ends are
//! honest, except the two flags that the peer clears when it has seen them.

use kal_os::sync::{AtomicU32, Ordering};

/// Octets of the page.
pub(crate) const PAGE: usize = 4096;
/// Magic number; it also shows the byte order.
pub(crate) const MAGIC: u32 = u32::from_be_bytes(*b"WLrg");
/// Version of the layout.
pub(crate) const VERSION: u32 = 1;

/// A pair of cache lines, which processors load together.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct Line<T>(pub(crate) T);

/// The words that the producer publishes.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Published {
    /// Octets written so far, modulo 2^32.
    pub(crate) tail: AtomicU32,
    /// No more will be written.
    pub(crate) closed: AtomicU32,
}

/// One ring's words.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Way {
    /// Written by the producer.
    pub(crate) published: Line<Published>,
    /// Octets read so far, modulo 2^32: written by the consumer.
    pub(crate) head: Line<AtomicU32>,
    /// The consumer sleeps until there are octets, or the end: set by it, cleared by the producer.
    pub(crate) asleep: Line<AtomicU32>,
    /// The producer sleeps until there is room: set by it, cleared by the consumer.
    pub(crate) stalled: Line<AtomicU32>,
}

/// The page.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) about: Line<[AtomicU32; 3]>,
    /// The maker writes to the first.
    pub(crate) ways: [Way; 2],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Page>() <= PAGE);

/// Clears a flag that the peer set; true if it was set.
pub(crate) fn take(flag: &AtomicU32) -> bool {
    // Read first: a write takes the line out of the peer's cache.
    flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::AcqRel) != 0
}
