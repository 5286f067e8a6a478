//! Whether the memory of the table belongs to this process: which child has a copy of it, and which shares its parent's.
//!
//! Owner of the state: static memory, and a page that the kernel wipes in each copy of the process (madvise(2),
//! `MADV_WIPEONFORK`). So every kind of child with its own memory is noticed, whoever made it, at its first call. A child of
//! vfork(2) has its parent's page, but another process id.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The page: 1, or 0 in a new child. Null: the library follows nothing.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
static PROCESS: AtomicU32 = AtomicU32::new(0);

const PAGE: usize = 4096;

/// Makes the page. False: there is no memory, or the kernel cannot wipe it.
pub(crate) fn begin() -> bool {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, which overlaps none.
    let page = unsafe { rustix::mm::mmap_anonymous(null_mut(), PAGE, access, MapFlags::PRIVATE) };
    let Ok(page) = page else { return false };
    // SAFETY: the page made above, which holds nothing yet.
    let wiped = unsafe { rustix::mm::madvise(page, PAGE, Advice::LinuxWipeOnFork) };
    if wiped.is_err() {
        return false;
    }
    MARK.store(page.cast(), Ordering::Release);
    is_new_child();
    true
}

/// Whether anything is followed.
#[inline]
pub(crate) fn follows() -> bool {
    !MARK.load(Ordering::Relaxed).is_null()
}

/// Whether this is the first call in a process with a copy of its parent's memory.
#[inline]
pub(crate) fn is_new_child() -> bool {
    // SAFETY: null, or the page that is never unmapped; zeros and ones are valid.
    let mark = unsafe { MARK.load(Ordering::Acquire).as_ref() };
    mark.is_some_and(|mark| mark.load(Ordering::Relaxed) == 0 && begin_child(mark))
}

/// One thread does it; a child begins with one.
#[cold]
fn begin_child(mark: &AtomicU32) -> bool {
    PROCESS.store(id(), Ordering::Relaxed);
    mark.swap(1, Ordering::AcqRel) == 0
}

/// The number of this process.
pub(crate) fn id() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

/// Whether the memory is this process's own: false in a child of vfork(2).
pub(crate) fn is_own() -> bool {
    PROCESS.load(Ordering::Relaxed) == id()
}
