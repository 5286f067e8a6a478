//! The table of descriptors: entries by number with device and inode, in chunks that are never freed.
//!
//! Any thread adds and removes; the child of a fork replaces what is still open. Entries are words
//! without locks.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Descriptors of the first chunk; each further chunk has twice as many as the one before.
const FIRST: usize = 1024;
/// Chunks: enough for every number that Linux gives.
const CHUNKS: usize = 22;
/// The inode of an entry that is removed before its descriptor is closed.
const OWNED: u64 = u64::MAX;

/// The identity of a descriptor when it was recorded; inode 0: none, [`OWNED`]: whatever the number refers to.
#[derive(Default)]
struct Entry {
    device: AtomicU64,
    inode: AtomicU64,
}

/// The entries.
///
/// # Invariants
///
/// A chunk is null, or a leaked slice of the number of entries that [`place`] gives.
pub(super) struct DescriptorTable {
    chunks: [AtomicPtr<Entry>; CHUNKS],
}

/// The chunk of a number, its index there, and the length of the chunk.
fn place(fd: usize) -> (usize, usize, usize) {
    let chunk = (fd / FIRST + 1).ilog2() as usize;
    let begin = FIRST * ((1 << chunk) - 1);
    (chunk, fd - begin, FIRST << chunk)
}

impl DescriptorTable {
    pub(super) const fn new() -> Self {
        Self { chunks: [const { AtomicPtr::new(null_mut()) }; CHUNKS] }
    }

    fn entry(&self, fd: BorrowedFd<'_>) -> io::Result<&Entry> {
        let number = usize::try_from(fd.as_raw_fd()).map_err(io::Error::other)?;
        let (chunk, at, len) = place(number);
        let slot = self.chunks.get(chunk).ok_or(io::ErrorKind::InvalidInput)?;
        let mut entries = slot.load(Ordering::Acquire);
        if entries.is_null() {
            entries = add_chunk(slot, len)?;
        }
        // SAFETY: by the invariant of `chunks` a live slice of `len` entries, and `place` is inside.
        Ok(unsafe { &*entries.wrapping_add(at) })
    }

    pub(super) fn enter(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let stat = rustix::fs::fstat(fd)?;
        let entry = self.entry(fd)?;
        entry.device.store(stat.st_dev, Ordering::Relaxed);
        entry.inode.store(stat.st_ino, Ordering::Relaxed);
        Ok(())
    }

    /// Records a descriptor that the caller [forgets](Self::forget) before it closes it: without a system call.
    pub(super) fn enter_owned(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.entry(fd)?.inode.store(OWNED, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn forget(&self, fd: BorrowedFd<'_>) {
        if let Ok(entry) = self.entry(fd) {
            entry.inode.store(0, Ordering::Relaxed);
        }
    }

    /// The inode that was recorded for a number.
    #[cfg(test)]
    pub(super) fn inode(&self, fd: c_int) -> u64 {
        // SAFETY: looked up by its number only.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        self.entry(fd).map_or(0, |entry| entry.inode.load(Ordering::Relaxed))
    }

    /// Replaces each descriptor that is still ours.
    pub(super) fn give_up(&self) {
        // SAFETY: makes a descriptor, or returns an error.
        let nothing = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        for (chunk, slot) in self.chunks.iter().enumerate() {
            let entries = slot.load(Ordering::Acquire);
            let len = if entries.is_null() { 0 } else { FIRST << chunk };
            for at in 0..len {
                // SAFETY: by the invariant of `chunks` a live slice of `len` entries.
                let entry = unsafe { &*entries.wrapping_add(at) };
                entry.replace((FIRST * ((1 << chunk) - 1) + at) as c_int, nothing);
            }
        }
        if nothing >= 0 {
            // SAFETY: made above, and used no more.
            unsafe { libc::close(nothing) };
        }
    }
}

impl Entry {
    /// Replaces the recorded descriptor by a duplicate of `nothing`, if the number still refers to it.
    fn replace(&self, fd: c_int, nothing: c_int) {
        let inode = self.inode.swap(0, Ordering::Relaxed);
        if inode == 0 {
            return;
        }
        if inode != OWNED && !self.is_ours(fd, inode) {
            return;
        }
        // SAFETY: the number is ours, and its owner has an open descriptor there afterwards.
        let replaced = nothing >= 0 && unsafe { libc::dup3(nothing, fd, libc::O_CLOEXEC) } == fd;
        if !replaced {
            // SAFETY: there is no descriptor to replace it with, and peers of the parent must see its
            // end; the number is ours.
            unsafe { libc::close(fd) };
        }
    }

    /// Whether the number refers to what was recorded.
    fn is_ours(&self, fd: c_int, inode: u64) -> bool {
        // SAFETY: plain numbers, for which zeros are values.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the struct, or returns an error for a number that is not open.
        let open = unsafe { libc::fstat(fd, &raw mut stat) } == 0;
        open && (stat.st_dev, stat.st_ino) == (self.device.load(Ordering::Relaxed), inode)
    }
}

fn add_chunk(slot: &AtomicPtr<Entry>, len: usize) -> io::Result<*mut Entry> {
    let mut entries = Vec::new();
    entries.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    entries.resize_with(len, Entry::default);
    let new = Box::into_raw(entries.into_boxed_slice());
    match slot.compare_exchange(null_mut(), new.cast(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(new.cast()),
        Err(other) => {
            // SAFETY: made above by `into_raw`, and not shared yet.
            drop(unsafe { Box::from_raw(new) });
            Ok(other)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_place_of_its_own() {
        let mut expected = (0, 0);
        for fd in 0..5 * FIRST {
            let (chunk, at, len) = place(fd);
            assert_eq!((chunk, at), expected, "{fd}");
            assert_eq!(len, FIRST << chunk);
            expected = if at + 1 == len { (chunk + 1, 0) } else { (chunk, at + 1) };
        }
        let (chunk, at, len) = place(i32::MAX as usize);
        assert!(chunk < CHUNKS && at < len);
    }
}
