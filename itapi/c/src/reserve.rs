//! The global allocator: that of the C library, with a reserve. When the system has no memory for a small
//! allocation, a block of the reserve serves it.
//!
//! Rust ends the process when a small allocation (a box, a node of a map, a text) fails. An
//! allocation whose size a caller decides is fallible; for the rest there is this reserve, one per
//! process, for all threads, ours included. A call that creates an object fills it first
//! ([`fill`], from `boundary::create`), and returns `IT_ERR_RESOURCES` if it cannot: so calls in progress,
//! and calls that close objects, always find a block. Posting and dequeuing never allocate.
//!
//! A block is ordinary memory of the C library: the caller frees it like any other, and memory that is
//! freed while a block is missing becomes that block if it is large enough. No locks, so that a forked child
//! may allocate, too.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The allocator.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Of every block: more than any allocation here needs.
pub(crate) const ALIGNMENT: usize = 128;
/// Sizes of blocks, and how many of each. A connection that begins and ends needs some 40 small ones.
const CLASSES: [(usize, usize); 4] = [(256, 128), (1 << 10, 48), (4 << 10, 16), (32 << 10, 4)];
const BLOCKS: usize = CLASSES[0].1 + CLASSES[1].1 + CLASSES[2].1 + CLASSES[3].1;

/// A place for a block of `size` octets; NULL: taken.
struct Place {
    size: usize,
    block: AtomicPtr<u8>,
}

/// Small ones first.
static PLACES: [Place; BLOCKS] = places();
/// How many are taken; exact while no thread takes or fills.
static TAKEN: AtomicUsize = AtomicUsize::new(BLOCKS);

/// Fills the reserve; false: the system has no memory for that.
#[inline]
pub(crate) fn fill() -> bool {
    TAKEN.load(Ordering::Relaxed) == 0 || refill()
}

const fn places() -> [Place; BLOCKS] {
    let mut places = [const { Place { size: 0, block: AtomicPtr::new(null_mut()) } }; BLOCKS];
    let (mut class, mut within, mut at) = (0, 0, 0);
    while at < BLOCKS {
        if within == CLASSES[class].1 {
            (class, within) = (class + 1, 0);
        }
        places[at].size = CLASSES[class].0;
        (within, at) = (within + 1, at + 1);
    }
    places
}

#[cold]
fn refill() -> bool {
    PLACES.iter().all(|place| {
        if !place.block.load(Ordering::Relaxed).is_null() {
            return true;
        }
        let Some(block) = new_block(place.size) else { return false };
        if !put(place, block) {
            // SAFETY: fresh from `posix_memalign`, known to no other thread.
            unsafe { libc::free(block.cast()) };
        }
        true
    })
}

/// Puts a block in its place, unless there is one.
fn put(place: &Place, block: *mut u8) -> bool {
    let put = place.block.compare_exchange(null_mut(), block, Ordering::Release, Ordering::Relaxed);
    put.inspect(|_| _ = TAKEN.fetch_sub(1, Ordering::Relaxed)).is_ok()
}

/// Keeps freed memory as a block, if one of its size is missing.
#[cold]
fn keep(memory: *mut u8) -> bool {
    if !memory.addr().is_multiple_of(ALIGNMENT) {
        return false;
    }
    // SAFETY: memory of the C library that was not freed yet.
    let octets = unsafe { libc::malloc_usable_size(memory.cast()) };
    let like = |size: usize| (size..2 * size).contains(&octets);
    PLACES.iter().any(|place| like(place.size) && put(place, memory))
}

fn new_block(size: usize) -> Option<*mut u8> {
    let mut block = null_mut();
    // SAFETY: a place for the pointer; the alignment is a power of two and a multiple of a pointer's.
    let error = unsafe { libc::posix_memalign(&raw mut block, ALIGNMENT, size) };
    (error == 0).then_some(block.cast())
}

/// The smallest block that is large enough, or NULL.
#[cold]
pub(crate) fn take(size: usize, alignment: usize) -> *mut u8 {
    if alignment > ALIGNMENT {
        return null_mut();
    }
    let fitting = PLACES.iter().filter(|place| place.size >= size);
    let mut taken = fitting.map(|place| place.block.swap(null_mut(), Ordering::Acquire));
    let found = taken.find(|block| !block.is_null());
    found.inspect(|_| _ = TAKEN.fetch_add(1, Ordering::Relaxed)).unwrap_or_default()
}

/// `fresh`, or a block of the reserve.
#[inline]
fn or_take(fresh: *mut u8, layout: Layout) -> *mut u8 {
    if fresh.is_null() { take(layout.size(), layout.align()) } else { fresh }
}

/// Moves an allocation of `octets` to a block of at least `size`, and frees it: a block that it was returns to its place.
/// NULL: there is none, and the allocation stays.
///
/// # Safety
/// `memory` is the caller's, of the C library, and readable for `octets`; unless this returns NULL, it is freed.
#[cold]
pub(crate) unsafe fn move_to_block(
    memory: *mut u8,
    octets: usize,
    size: usize,
    alignment: usize,
) -> *mut u8 {
    let block = take(size, alignment);
    if !block.is_null() {
        // SAFETY: both are at least as large as the smaller size, and apart.
        unsafe { ptr::copy_nonoverlapping(memory, block, octets.min(size)) };
        if !keep(memory) {
            // SAFETY: the caller gave it up.
            unsafe { libc::free(memory.cast()) };
        }
    }
    block
}

// SAFETY: every pointer returned is one of the system's allocator or, from `take`, a block that
// `posix_memalign` gave, at least as large and aligned as asked, and out of `PLACES` with a swap, so that
// no other thread has it. On this system `System` frees and resizes with `free` and `realloc`, which take
// both. Nothing here panics.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about `layout` is the system allocator's condition.
        or_take(unsafe { System.alloc(layout) }, layout)
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let fresh = unsafe { System.alloc_zeroed(layout) };
        if !fresh.is_null() {
            return fresh;
        }
        let block = take(layout.size(), layout.align());
        if !block.is_null() {
            // SAFETY: a block of at least that size, ours alone.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if TAKEN.load(Ordering::Relaxed) != 0 && keep(memory) {
            return;
        }
        // SAFETY: `memory` came from one of these functions: see the comment at the top.
        unsafe { System.dealloc(memory, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`.
        let moved = unsafe { System.realloc(memory, layout, size) };
        if !moved.is_null() {
            return moved;
        }
        // SAFETY: it was not moved, so it is still the caller's, with as many octets as `layout` says.
        unsafe { move_to_block(memory, layout.size(), size, layout.align()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reserve belongs to the process, and other tests fill it: this test has its own process.
    #[test]
    fn blocks_fit_and_are_as_many_as_there_are() {
        const ALONE: &str = "WARPLINE_TEST_RESERVE_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
            alone.args(["--exact", "reserve::tests::blocks_fit_and_are_as_many_as_there_are"]);
            let output = alone.env(ALONE, "1").output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            return assert!(output.status.success() && text.contains("1 passed"), "{text}");
        }
        assert!(refill());
        for (size, alignment) in [(1, 1), (300, 64), (4096, 128), (32 << 10, 8)] {
            let block = take(size, alignment);
            assert!(!block.is_null() && block.addr().is_multiple_of(ALIGNMENT));
            // SAFETY: the reserve's blocks are as large as asked for.
            unsafe { block.write_bytes(0xff, size) };
            // SAFETY: it is ours.
            unsafe { libc::free(block.cast()) };
        }
        assert!(take((32 << 10) + 1, 1).is_null() && take(1, 256).is_null());
        assert!(fill());
        let largest: Vec<_> =
            std::iter::from_fn(|| Some(take(5000, 1)).filter(|block| !block.is_null())).collect();
        assert_eq!(largest.len(), CLASSES[3].1);
        // SAFETY: they are ours.
        largest.into_iter().for_each(|block| unsafe { libc::free(block.cast()) });
        assert!(fill() && !take(5000, 1).is_null());
        // An allocation that grows again and again, as a list does, takes one block.
        assert!(fill());
        let mut grown = take(1, 1);
        for size in [2, 256, 257, 1024, 1025, 30_000] {
            // SAFETY: it is ours, of at least one octet.
            grown = unsafe { move_to_block(grown, 1, size, 1) };
            assert!(!grown.is_null());
            assert_eq!(TAKEN.load(Ordering::Relaxed), 1);
        }
    }
}
