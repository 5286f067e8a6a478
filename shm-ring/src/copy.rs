//! Copies octets into and out of a ring in shared memory, by cached or non-temporal stores.
//!
//! An ordinary store leaves the cache line in the storing core's cache, and the core that then loads it waits for
//! the transfer of the line. A non-temporal store bypasses the caches. For few octets the transfer is faster
//! (`tuning.rs` has the figures).

/// Copies into a ring, bypassing the caches if there are at least `past_caches_from` octets. Other threads see the
/// octets before they see this thread's next store.
///
/// # Safety
///
/// `len` octets can be read at `from` and written at `to`, and do not overlap.
#[inline]
pub(crate) unsafe fn store(to: *mut u8, from: *const u8, len: usize, past_caches_from: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len >= past_caches_from {
        // SAFETY: the caller's promise.
        return unsafe { store_past_caches(to, from, len) };
    }
    let _ = past_caches_from;
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

/// Copies out of a ring.
///
/// # Safety
///
/// As for [`store`].
#[inline]
pub(crate) unsafe fn load(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

/// Octets of a cache line. A non-temporal store should fill the whole line; a partial one costs a read of memory.
pub(crate) const LINE: usize = 64;

/// Loads the cache line of an address, without waiting for it; has no other effect.
#[inline]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE is part of x86_64, and a prefetch is allowed at any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// # Safety
///
/// As for [`store`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(never)]
unsafe fn store_past_caches(to: *mut u8, from: *const u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    let head = to.align_offset(LINE).min(len);
    // SAFETY: the caller's promise, for the octets before the first whole line.
    unsafe { std::ptr::copy_nonoverlapping(from, to, head) };
    let lines = (len - head) / LINE;
    for line in 0..lines {
        let at = head + line * LINE;
        let (from, to) = (from.wrapping_add(at).cast::<__m128i>(), to.wrapping_add(at).cast());
        // SAFETY: a whole line of the caller's octets.
        let a = unsafe { _mm_loadu_si128(from) };
        // SAFETY: the same.
        let b = unsafe { _mm_loadu_si128(from.wrapping_add(1)) };
        // SAFETY: the same.
        let c = unsafe { _mm_loadu_si128(from.wrapping_add(2)) };
        // SAFETY: the same.
        let d = unsafe { _mm_loadu_si128(from.wrapping_add(3)) };
        let to: *mut __m128i = to;
        // SAFETY: a whole line of the caller's octets, aligned as one by `head`.
        unsafe { _mm_stream_si128(to, a) };
        // SAFETY: the same.
        unsafe { _mm_stream_si128(to.wrapping_add(1), b) };
        // SAFETY: the same.
        unsafe { _mm_stream_si128(to.wrapping_add(2), c) };
        // SAFETY: the same.
        unsafe { _mm_stream_si128(to.wrapping_add(3), d) };
    }
    let done = head + lines * LINE;
    let (from, to) = (from.wrapping_add(done), to.wrapping_add(done));
    // SAFETY: the caller's promise, for the octets after the last whole line.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len - done) };
    // Non-temporal stores are not ordered with other stores; the fence orders them.
    // SAFETY: SSE is part of x86_64.
    unsafe { _mm_sfence() };
}
