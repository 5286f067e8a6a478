//! Memory for registration: page-aligned, never a Rust slice.
//!
//! A [`Region`] is one anonymous mapping. Every clone and every [`MemRange`] made from it keeps the
//! mapping alive, so a peer that still writes into a registered region after its owner let go
//! writes into memory that nobody else uses.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use vp_api::MemRange;

/// Page-aligned, zeroed memory that a peer may read and write once it is registered.
///
/// Octets go in and out by copies; a copy that overlaps one of the peer's gives some mix of old
/// and new octets.
#[derive(Clone)]
pub struct Region(Arc<Mapping>);

/// # Invariants
///
/// `len` octets at `addr` are one private mapping of this process, readable and writable, from
/// construction to drop. No reference to its octets is ever formed.
struct Mapping {
    addr: NonNull<c_void>,
    len: usize,
    mapped: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; all access is by raw copies.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`: no references are formed, so overlapping copies mix octets and no more.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `mapped` octets at `addr` are our mapping; the last owner is going.
        let result = unsafe { munmap(self.addr.as_ptr(), self.mapped) };
        debug_assert!(result.is_ok());
    }
}

/// A copy outside a [`Region`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfRange {
    /// First octet asked for.
    pub offset: usize,
    /// Octets asked for.
    pub len: usize,
    /// Octets that the region has.
    pub size: usize,
}

impl std::fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { offset, len, size } = self;
        write!(f, "{len} octets at offset {offset} are outside the region of {size} octets")
    }
}

impl std::error::Error for OutOfRange {}

impl Region {
    /// A zeroed region of `len` octets; 0 is allowed.
    // Pages fresh from the kernel: nothing stale is there to be read by a peer [SEC-15].
    pub fn new(len: usize) -> io::Result<Self> {
        Self::map(len, page_size())
    }

    /// As [`Region::new`], rounded up to whole 2 MiB and with huge pages where the system has them.
    pub fn huge(len: usize) -> io::Result<Self> {
        let region = Self::map(len, 2 << 20)?;
        let Mapping { addr, mapped, .. } = &*region.0;
        // Only advice: a kernel without huge pages refuses, and small pages do.
        // SAFETY: the range is our mapping, and this advice does not change its contents.
        let _ = unsafe { madvise(addr.as_ptr(), *mapped, Advice::LinuxHugepage) };
        Ok(region)
    }

    fn map(len: usize, unit: usize) -> io::Result<Self> {
        let mapped = len
            .max(1)
            .checked_next_multiple_of(unit)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no other.
        let addr =
            unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, prot, MapFlags::PRIVATE) }?;
        let addr = NonNull::new(addr).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self(Arc::new(Mapping { addr, len, mapped })))
    }

    /// Octets.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// True for a region of no octets.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Address of the first octet.
    pub fn addr(&self) -> u64 {
        self.base().as_ptr() as u64
    }

    /// Copies octets out, from `offset` on.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfRange> {
        let from = self.at(offset, out.len())?;
        // SAFETY: `at` checked the source range; `out` is a distinct Rust object of that length.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies octets in, from `offset` on.
    pub fn write_at(&self, offset: usize, data: &[u8]) -> Result<(), OutOfRange> {
        let to = self.at(offset, data.len())?;
        // SAFETY: `at` checked the target range; `data` is a Rust object, never in a mapping of ours.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
        Ok(())
    }

    /// Sets `len` octets from `offset` on to `octet`.
    pub fn fill(&self, offset: usize, len: usize, octet: u8) -> Result<(), OutOfRange> {
        let to = self.at(offset, len)?;
        // SAFETY: `at` checked the range.
        unsafe { std::ptr::write_bytes(to, octet, len) };
        Ok(())
    }

    /// The region as a provider takes it; it stays mapped while the range or a clone lives.
    pub fn mem_range(&self) -> MemRange {
        // SAFETY: the owner passed along is the mapping itself: live, readable and writable while
        // it lives (invariant of `Mapping`), and no reference to its octets exists.
        unsafe { MemRange::owned(self.base(), self.0.len, self.0.clone()) }
    }

    /// How many clones and ranges keep it mapped: 1 if nobody else does.
    pub fn uses(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    fn base(&self) -> NonNull<u8> {
        self.0.addr.cast()
    }

    /// Address of `offset` if `len` octets from there are inside.
    fn at(&self, offset: usize, len: usize) -> Result<*mut u8, OutOfRange> {
        let size = self.0.len;
        match offset.checked_add(len) {
            // SAFETY: `offset <= size`, so the result stays in the mapping or one behind its end.
            Some(end) if end <= size => Ok(unsafe { self.base().as_ptr().add(offset) }),
            _ => Err(OutOfRange { offset, len, size }),
        }
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({:#x}+{})", self.addr(), self.len())
    }
}

/// Octets of a page.
pub fn page_size() -> usize {
    // SAFETY: `sysconf` only reads.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // Linux always knows its page size.
    usize::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_inside_and_refuses_outside() {
        let region = Region::new(10).unwrap();
        region.write_at(3, b"abc").unwrap();
        let mut out = [0; 10];
        region.read_at(0, &mut out).unwrap();
        assert_eq!(&out, b"\0\0\0abc\0\0\0\0");
        region.fill(8, 2, 7).unwrap();
        region.read_at(0, &mut out).unwrap();
        assert_eq!(out[7..], [0, 7, 7]);
        let outside = OutOfRange { offset: 8, len: 3, size: 10 };
        assert_eq!(region.write_at(8, b"xyz"), Err(outside));
        assert!(region.read_at(usize::MAX, &mut out).is_err());
        assert!(region.fill(11, 0, 0).is_err());
        assert!(region.fill(10, 0, 0).is_ok());
    }

    #[test]
    fn is_page_aligned_and_may_be_empty() {
        let region = Region::new(0).unwrap();
        assert!(region.is_empty());
        assert_eq!(region.addr() as usize % page_size(), 0);
        assert_eq!(Region::huge(5).unwrap().len(), 5);
        assert!(Region::new(usize::MAX).is_err());
    }

    #[test]
    fn a_range_keeps_the_mapping() {
        let region = Region::new(4096).unwrap();
        let range = region.mem_range();
        let again = region.clone();
        drop(region);
        assert_eq!(range.addr().as_ptr() as u64, again.addr());
        assert_eq!(range.len(), 4096);
    }
}
