//! Shared memory between two processes: a sealed memfd that one creates and both verify and map.
//!
//! A mapping belongs to its [`crate::End`]. All pages are allocated when the memory is created, and the memory
//! cannot shrink. So no access raises SIGBUS, unless the memory hardware fails.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::page::{MAGIC, PAGE, Page, VERSION};

/// Smallest size of a ring, in octets.
pub const MIN_RING: u32 = 64 << 10;
/// Largest size of a ring, in octets.
pub const MAX_RING: u32 = 4 << 20;

/// Seals that forbid changing the size and the seals.
fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

/// File system type of a memfd with pages of the usual size.
const TMPFS: i64 = 0x0102_1994;

/// Why memory passed by a peer is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refused {
    /// Not a memfd of ordinary pages.
    Kind,
    /// Its size can be changed, or it cannot be written.
    Seals,
    /// Its size is impossible, or differs from the size in its first page.
    Size,
    /// Its first page does not have the magic number.
    Magic,
    /// Its layout is of another version.
    Version,
    /// This process has an end of this side already.
    Taken,
    /// An error of the operating system, by its number.
    Os(i32),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind => f.write_str("it is not a memfd of ordinary pages"),
            Self::Seals => f.write_str("it lacks a seal (shrink, grow, seal), or has one too many"),
            Self::Size => f.write_str("its size is not what its first page says"),
            Self::Magic => f.write_str("its first page is not that of a ring"),
            Self::Version => f.write_str("its layout is of another version"),
            Self::Taken => f.write_str("this process has this end of it already"),
            Self::Os(errno) => io::Error::from_raw_os_error(*errno).fmt(f),
        }
    }
}

impl std::error::Error for Refused {}

impl From<rustix::io::Errno> for Refused {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Os(errno.raw_os_error())
    }
}

/// Whether a ring can have this number of octets.
pub(crate) fn is_size(octets: u32) -> bool {
    octets.is_power_of_two() && (MIN_RING..=MAX_RING).contains(&octets)
}

fn len(ring_octets: u32) -> usize {
    PAGE + 2 * ring_octets as usize
}

/// Creates memory with two rings of `ring_octets` each: a power of two from [`MIN_RING`] to [`MAX_RING`].
///
/// All its pages are allocated at once, and charged to the calling process.
///
/// # Errors
/// `InvalidInput` for any other size; otherwise the operating system's error, e.g. `ENOMEM`, `ENOSPC` or, because of `ulimit -f`, `EFBIG`.
pub fn create(ring_octets: u32) -> io::Result<OwnedFd> {
    if !is_size(ring_octets) {
        let detail = format!(
            "a ring has a power of two of octets, {MIN_RING} to {MAX_RING}, not {ring_octets}"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, detail));
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create("warpline-ring", flags)?;
    let len = len(ring_octets) as u64;
    kal_os::allocate(&memory, 0, len)?;
    let about = [MAGIC, VERSION, ring_octets].map(u32::to_ne_bytes);
    if rustix::io::pwrite(&memory, about.as_flattened(), 0)? != about.as_flattened().len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    rustix::fs::fcntl_add_seals(&memory, seals())?;
    Ok(memory)
}

/// Checks memory that a peer passed, and returns the number of octets of each ring. Does not block, whatever it passed.
///
/// # Errors
/// The reason why the memory must not be mapped.
pub fn verify(memory: impl AsFd) -> Result<u32, Refused> {
    // First: the question for seals does not block, whatever the peer passed, as fstatfs(2) of a file of FUSE does.
    match rustix::fs::fcntl_get_seals(&memory) {
        // A seal against execution is allowed: it has no effect here.
        Ok(set) if set & (seals() | SealFlags::WRITE | SealFlags::FUTURE_WRITE) == seals() => {}
        Ok(_) => return Err(Refused::Seals),
        Err(_) => return Err(Refused::Kind),
    }
    if rustix::fs::fstatfs(&memory)?.f_type as i64 != TMPFS {
        return Err(Refused::Kind);
    }
    let size = rustix::fs::fstat(&memory)?.st_size;
    let mut about = [[0; 4]; 3];
    if rustix::io::pread(&memory, about.as_flattened_mut(), 0)? != about.as_flattened().len() {
        return Err(Refused::Size);
    }
    let [magic, version, ring_octets] = about.map(u32::from_ne_bytes);
    if magic != MAGIC {
        return Err(Refused::Magic);
    }
    if version != VERSION {
        return Err(Refused::Version);
    }
    if !is_size(ring_octets) || u64::try_from(size) != Ok(len(ring_octets) as u64) {
        return Err(Refused::Size);
    }
    Ok(ring_octets)
}

/// Memory that is mapped, until it is dropped.
///
/// # Invariants
///
/// [`len`]`(ring_octets)` octets at `at` can be read and written, and are aligned as a page is.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: NonNull<u8>,
    ring_octets: u32,
    /// The memory is not unmapped when this is dropped.
    #[cfg(test)]
    heap: Option<std::sync::Arc<heap::Heap>>,
}

// SAFETY: the memory belongs to no particular thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps memory, if [`verify`] accepts it.
    pub(crate) fn new(memory: impl AsFd) -> Result<Self, Refused> {
        let ring_octets = verify(&memory)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let len = len(ring_octets);
        // SAFETY: a new mapping, which overlaps none.
        let at = unsafe { rustix::mm::mmap(null_mut(), len, access, MapFlags::SHARED, memory, 0) }?;
        let at = NonNull::new(at.cast()).ok_or(Refused::Os(libc::ENOMEM))?;
        Ok(Self {
            at,
            ring_octets,
            #[cfg(test)]
            heap: None,
        })
    }

    pub(crate) fn ring_octets(&self) -> u32 {
        self.ring_octets
    }

    /// The address of the mapping and its length in octets.
    pub(crate) fn range(&self) -> (*mut u8, usize) {
        (self.at.as_ptr(), len(self.ring_octets))
    }

    /// The first page.
    pub(crate) fn page(&self) -> &Page {
        // SAFETY: by the invariant the page is there for as long as the mapping, and aligned. It consists of
        // atomics, for which any octets are a valid value. Other writers use atomics, too, or are another process.
        unsafe { &*self.at.as_ptr().cast::<Page>() }
    }

    /// The octets of ring 0 or ring 1.
    pub(crate) fn octets(&self, ring: usize) -> crate::octets::Octets<'_> {
        let base = self.at.as_ptr().wrapping_add(PAGE + (ring & 1) * self.ring_octets as usize);
        // SAFETY: by the invariant the ring's octets are there for as long as the mapping, and their number is a
        // power of two.
        unsafe { crate::octets::Octets::new(base, self.ring_octets) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[cfg(test)]
        if self.heap.is_some() {
            return;
        }
        let (at, len) = self.range();
        // SAFETY: this value made the mapping, and nothing borrows from it any more.
        let _ = unsafe { rustix::mm::munmap(at.cast(), len) };
    }
}

/// Memory of one process, for tests that cannot use a memfd (Miri).
#[cfg(test)]
pub(crate) mod heap {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;
    use std::sync::Arc;

    use super::{Mapping, PAGE, len};

    #[derive(Debug)]
    pub(crate) struct Heap(NonNull<u8>, Layout);

    // SAFETY: the memory belongs to no particular thread.
    unsafe impl Send for Heap {}
    // SAFETY: only its drop uses the pointer.
    unsafe impl Sync for Heap {}

    impl Drop for Heap {
        fn drop(&mut self) {
            // SAFETY: allocated with this layout, and this is the last reference.
            unsafe { dealloc(self.0.as_ptr(), self.1) };
        }
    }

    /// Two mappings of the same memory.
    pub(crate) fn pair(ring_octets: u32) -> [Mapping; 2] {
        let layout = Layout::from_size_align(len(ring_octets), PAGE).unwrap();
        // SAFETY: the layout's size is not zero.
        let at = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        let heap = Arc::new(Heap(at, layout));
        [heap.clone(), heap].map(|heap| Mapping { at, ring_octets, heap: Some(heap) })
    }
}
