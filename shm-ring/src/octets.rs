//! The octets of one ring buffer, addressed by free-running positions.
//!
//! The peer may write them at any moment, so no Rust reference to them exists.

use std::marker::PhantomData;

use crate::copy::{self, LINE};
use crate::tuning::PREFETCHED;

/// The octets.
///
/// # Invariants
///
/// `size` octets at `base` can be read and written for `'a`, and are a power of two in number.
#[derive(Clone, Copy)]
pub(crate) struct Octets<'a> {
    base: *mut u8,
    size: u32,
    life: PhantomData<&'a ()>,
}

impl<'a> Octets<'a> {
    /// # Safety
    ///
    /// The invariants of the type.
    pub(crate) unsafe fn new(base: *mut u8, size: u32) -> Self {
        Self { base, size, life: PhantomData }
    }

    /// The address of a position, and the number of octets from there to the ring's end.
    fn place(&self, position: u32) -> (*mut u8, usize) {
        let at = (position & (self.size - 1)) as usize;
        (self.base.wrapping_add(at), self.size as usize - at)
    }

    /// Copies `len` octets to `position`, bypassing the caches if there are at least `past_caches_from`.
    ///
    /// # Safety
    ///
    /// `len` octets at `from` can be read, are not in the ring, and are at most as many as the ring has.
    #[inline]
    pub(crate) unsafe fn write(
        &self,
        position: u32,
        from: *const u8,
        len: usize,
        past_caches_from: usize,
    ) {
        let (at, most) = self.place(position);
        let first = len.min(most);
        // SAFETY: `first` octets from `at` on are in the ring; the rest is the caller's promise.
        unsafe { copy::store(at, from, first, past_caches_from) };
        if first < len {
            // SAFETY: the same for the remaining octets, which go to the beginning of the ring.
            unsafe {
                copy::store(self.base, from.wrapping_add(first), len - first, past_caches_from)
            };
        }
    }

    /// Loads the first cache lines from `position` on, without waiting for them; fewer at the ring's end.
    #[inline]
    pub(crate) fn prefetch(&self, position: u32) {
        let (at, _) = self.place(position);
        for line in 0..PREFETCHED {
            copy::prefetch(at.wrapping_add(line * LINE));
        }
    }

    /// Copies `len` octets from `position`.
    ///
    /// # Safety
    ///
    /// `len` octets at `to` can be written, are not in the ring, and are at most as many as the ring has.
    #[inline]
    pub(crate) unsafe fn read(&self, position: u32, to: *mut u8, len: usize) {
        let (at, most) = self.place(position);
        let first = len.min(most);
        // SAFETY: `first` octets from `at` on are in the ring; the rest is the caller's promise.
        unsafe { copy::load(to, at, first) };
        if first < len {
            // SAFETY: the same for the remaining octets, which are at the beginning of the ring.
            unsafe { copy::load(to.wrapping_add(first), self.base, len - first) };
        }
    }
}
