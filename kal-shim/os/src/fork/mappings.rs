//! Registry of memory shared with a peer, which a child must not write: ranges, in chunks that are never freed.
//!
//! Any thread adds and removes; in the child of a fork the ranges are private zeros. Entries are words without
//! locks.

use std::io;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::{Descriptors, Making, Owner};

/// Ranges of a chunk.
const ENTRIES: usize = 256;
/// The address of an entry whose length is not there yet.
const TAKEN: usize = 1;

/// An address of 0 is none.
#[derive(Default)]
struct Entry {
    address: AtomicUsize,
    len: AtomicUsize,
}

struct Chunk {
    entries: [Entry; ENTRIES],
    next: Mappings,
}

/// The ranges.
///
/// # Invariants
///
/// Null, or a leaked chunk.
pub(super) struct Mappings(AtomicPtr<Chunk>);

impl Mappings {
    pub(super) const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    fn chunk(&self) -> Option<&'static Chunk> {
        // SAFETY: by the invariant null or leaked.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    fn insert(&self, address: usize, len: usize) -> io::Result<&'static Entry> {
        let Some(chunk) = self.chunk() else { return self.grow()?.insert(address, len) };
        let free = |entry: &&Entry| {
            let (free, taken) = (Ordering::Acquire, Ordering::Relaxed);
            entry.address.compare_exchange(0, TAKEN, free, taken).is_ok()
        };
        let Some(entry) = chunk.entries.iter().find(free) else {
            return chunk.next.insert(address, len);
        };
        entry.len.store(len, Ordering::Relaxed);
        entry.address.store(address, Ordering::Release);
        Ok(entry)
    }

    /// There is a chunk afterwards.
    fn grow(&self) -> io::Result<&Self> {
        let mut chunk = Vec::new();
        chunk.try_reserve_exact(1).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let entries = std::array::from_fn(|_| Entry::default());
        chunk.push(Chunk { entries, next: Self::new() });
        let new = Box::into_raw(chunk.into_boxed_slice()).cast::<Chunk>();
        let (added, there) = (Ordering::AcqRel, Ordering::Acquire);
        if self.0.compare_exchange(null_mut(), new, added, there).is_err() {
            // SAFETY: made above of one chunk, and not shared yet.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(new, 1)) });
        }
        Ok(self)
    }

    /// Replaces each range by private zeros.
    pub(super) fn give_up(&self) {
        let mut next = self.chunk();
        while let Some(chunk) = next {
            for entry in &chunk.entries {
                let address = entry.address.load(Ordering::Acquire);
                if address > TAKEN {
                    replace(address, entry.len.load(Ordering::Relaxed));
                }
            }
            next = chunk.next.chunk();
        }
    }
}

fn replace(address: usize, len: usize) {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the range is a mapping of ours, whose octets may change at any moment; this is the only thread of
    // the process. mmap(2) takes no lock of the process.
    unsafe { libc::mmap(address as *mut libc::c_void, len, access, kind, -1, 0) };
}

/// A range that a child finds replaced by private zeros, until this is dropped: before the range is unmapped.
#[derive(Debug)]
pub struct Mapped<O: Owner>(&'static Entry, PhantomData<fn() -> O>);

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.address.load(Ordering::Relaxed))
    }
}

impl<O: Owner> Drop for Mapped<O> {
    fn drop(&mut self) {
        self.0.address.store(0, Ordering::Release);
    }
}

impl Descriptors {
    /// Maps memory that a child must not keep, and that others may change at any moment; `range` returns its
    /// address and length.
    ///
    /// # Errors
    /// Those of `map`, and no memory.
    pub fn map<O: Owner, T>(
        map: impl FnOnce() -> io::Result<T>,
        range: impl FnOnce(&T) -> (*mut u8, usize),
    ) -> io::Result<(Mapped<O>, T)> {
        let table = O::table();
        table.watch::<O>()?;
        let _making = Making::enter(table);
        let made = map()?;
        let (at, len) = range(&made);
        let entry = table.mappings.insert(at.addr(), len)?;
        Ok((Mapped(entry, PhantomData), made))
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn every_range_has_an_entry_of_its_own() {
        let mappings = Mappings::new();
        let entries: Vec<_> =
            (0..2 * ENTRIES + 1).map(|n| mappings.insert(4096 * (n + 1), 1).unwrap()).collect();
        for (n, entry) in entries.iter().enumerate() {
            assert_eq!(entry.address.load(Ordering::Relaxed), 4096 * (n + 1));
        }
        entries[7].address.store(0, Ordering::Release);
        assert!(std::ptr::eq(mappings.insert(1 << 30, 1).unwrap(), entries[7]));
    }
}
