//! The first page of the shared memory: ring positions and sleep flags, each on its own pair of cache lines.
//!
//! Both processes share it, and so do all threads that use an end. If both ends are honest, each word has one
//! writer. The exceptions are the two flags, which the peer clears when it has seen them.

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
    /// The end of the stream: no more octets will be written.
    pub(crate) closed: AtomicU32,
}

/// One ring's words.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Way {
    /// Written by the producer.
    pub(crate) published: Line<Published>,
    /// Octets read so far, modulo 2^32. Written by the consumer.
    pub(crate) head: Line<AtomicU32>,
    /// The consumer sleeps until there are octets or the stream ends. Set by the consumer, cleared by the producer.
    pub(crate) asleep: Line<AtomicU32>,
    /// The producer sleeps until there is room. Set by the producer, cleared by the consumer.
    pub(crate) stalled: Line<AtomicU32>,
}

/// The page.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) about: Line<[AtomicU32; 3]>,
    /// The side that created the memory writes to the first ring.
    pub(crate) ways: [Way; 2],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Page>() <= PAGE);

/// Clears a flag that the peer set, and returns whether it was set.
pub(crate) fn take(flag: &AtomicU32) -> bool {
    // Read first: a write would take the cache line from the peer's cache.
    flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::AcqRel) != 0
}
