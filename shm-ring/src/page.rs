//! The first page of the shared memory: ring positions and sleep flags, each on its own pair of cache lines.
//!
//! Both processes share it, and so do all threads that use an end. If both ends are honest, each word has one
//! writer. The exceptions are the two flags, which the peer clears when it has seen them.

use kal_os::sync::{AtomicU32, AtomicU64, Ordering};

/// Octets of the page.
pub(crate) const PAGE: usize = 4096;
/// Magic number; it also shows the byte order.
pub(crate) const MAGIC: u32 = u32::from_be_bytes(*b"WLrg");
/// Version of the layout.
pub(crate) const VERSION: u32 = 2;

/// A pair of cache lines, which processors load together.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct Line<T>(pub(crate) T);

/// Most octets that [`crate::End::write_slice`] passes to the peer in one cache line, together with the position.
pub const SHORT: usize = 48;

/// What the producer wrote. Both numbers are in one word, so that the consumer sees them together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    /// Octets written so far, modulo 2^32.
    pub(crate) tail: u32,
    /// So many octets before `tail` are next to this word, at most [`SHORT`], and perhaps not yet in the ring.
    pub(crate) short: u32,
}

impl Written {
    pub(crate) fn word(self) -> u64 {
        u64::from(self.short) << 32 | u64::from(self.tail)
    }

    pub(crate) fn of(word: u64) -> Self {
        Self { tail: word as u32, short: (word >> 32) as u32 }
    }
}

/// The words that the producer publishes: one cache line.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Published {
    /// A [`Written`].
    pub(crate) written: AtomicU64,
    /// The end of the stream: no more octets will be written.
    pub(crate) closed: AtomicU32,
    /// The octets of the last write, if it was short.
    pub(crate) short: [AtomicU64; SHORT / 8],
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
const _: () = assert!(size_of::<Page>() <= PAGE && size_of::<Published>() == 64);

/// Clears a flag that the peer set, and returns whether it was set.
pub(crate) fn take(flag: &AtomicU32) -> bool {
    // Read first: a write would take the cache line from the peer's cache.
    flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::AcqRel) != 0
}
