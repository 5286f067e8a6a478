//! Memory for registration: never a Rust slice while a peer or a work request may write it.
//!
//! A [`Region`] is one piece of memory: an anonymous mapping, a value of the caller ([`Region::adopt`]), or
//! octets that the caller lends ([`lend`]). Every clone and every [`MemRange`] made from it keeps the memory
//! alive, so a peer that still writes into a registered region after its owner let go writes into memory that
//! nothing else uses. Message memory ([`Region::messages`]) is handed out as [`Span`]s, which are slices for
//! their one owner.

mod adopt;
mod lend;
mod span;

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use vp_api::MemRange;

use adopt::Adopted;
use lend::Loan;
pub use lend::lend;
pub use span::{Messages, Span, Spans};

/// Memory that a peer may read and write once it is registered.
///
/// Octets go in and out by copies; a copy that overlaps one of the peer's gives some mix of old
/// and new octets.
#[derive(Clone)]
pub struct Region(Arc<Memory>);

/// # Invariants
///
/// `len` octets at `addr` may be read and written by this process through raw pointers, from
/// construction to drop, of lent memory until the loan is over. No reference to them is formed
/// meanwhile, except by the one owner of a [`Span`]; then the copies of the region are refused.
struct Memory {
    addr: NonNull<u8>,
    len: usize,
    origin: Origin,
}

/// Origin of memory, which decides how it is released.
enum Origin {
    /// A mapping of ours, of so many octets.
    Mapped(usize),
    /// The same, cut into spans.
    Messages(usize),
    /// A value that has it.
    Adopted(Adopted),
    /// Its owner waits until the loan is over.
    Lent(Arc<Loan>),
}

// SAFETY: mappings belong to the process, an adopted value is `Send`, and lent octets are `u8` borrowed
// mutably; all access is by raw copies, or through the one `Span` of the octets.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`: no references are formed, so overlapping copies mix octets and no more; an
// adopted value itself is not touched before it is given back.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Origin::Mapped(octets) | Origin::Messages(octets) = self.origin {
            // SAFETY: so many octets at `addr` are our mapping; the last owner is going.
            let result = unsafe { munmap(self.addr.as_ptr().cast::<c_void>(), octets) };
            debug_assert!(result.is_ok());
        }
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
        let (addr, mapped) = map(len, page_size())?;
        Ok(Self::of(addr, len, Origin::Mapped(mapped)))
    }

    /// As [`Region::new`], rounded up to whole 2 MiB and with huge pages where the system has them.
    pub fn huge(len: usize) -> io::Result<Self> {
        let (addr, mapped) = map(len, 2 << 20)?;
        // Only advice: a kernel without huge pages refuses, and small pages do.
        // SAFETY: the range is our mapping, and this advice does not change its contents.
        let _ = unsafe { madvise(addr.as_ptr().cast(), mapped, Advice::LinuxHugepage) };
        Ok(Self::of(addr, len, Origin::Mapped(mapped)))
    }

    fn of(addr: NonNull<u8>, len: usize, origin: Origin) -> Self {
        Self(Arc::new(Memory { addr, len, origin }))
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

    /// Copies octets out, from `offset` on. Errors: outside; of message memory, and of lent memory
    /// when the loan is over, everything is.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfRange> {
        self.copy(offset, out.len(), |from| {
            // SAFETY: `copy` checked the source range; `out` is a distinct Rust object of that length.
            unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
        })
    }

    /// Copies octets in, from `offset` on. Errors: as [`Region::read_at`].
    pub fn write_at(&self, offset: usize, data: &[u8]) -> Result<(), OutOfRange> {
        self.copy(offset, data.len(), |to| {
            // SAFETY: `copy` checked the target range; `data` is a Rust object, so it is not in this
            // region, of which there are no references.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) }
        })
    }

    /// Sets `len` octets from `offset` on to `octet`. Errors: as [`Region::read_at`].
    pub fn fill(&self, offset: usize, len: usize, octet: u8) -> Result<(), OutOfRange> {
        self.copy(offset, len, |to| {
            // SAFETY: `copy` checked the range.
            unsafe { std::ptr::write_bytes(to, octet, len) }
        })
    }

    /// The region as a provider takes it; its memory stays while the range or a clone lives.
    ///
    /// Message memory: the thread that registers the range grants no peer a right to it, and names octets of
    /// it in a work request only while it holds their [`Span`]. Lent memory: no octets when the loan is
    /// over.
    pub fn mem_range(&self) -> MemRange {
        let Memory { addr, len, origin } = &*self.0;
        match origin {
            Origin::Lent(loan) => loan.mem_range(*addr, *len),
            // SAFETY: the owner passed along is the memory itself, readable and writable while it lives
            // (invariant of `Memory`), and no reference to its octets exists, except by the owner of a
            // span, who has posted nothing.
            _ => unsafe { MemRange::owned(*addr, *len, self.0.clone()) },
        }
    }

    /// How many clones and ranges keep the memory: 1 if nothing else does.
    pub fn uses(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// It is lent: to be registered once, and not longer than the loan.
    pub fn is_lent(&self) -> bool {
        matches!(self.0.origin, Origin::Lent(_))
    }

    fn base(&self) -> NonNull<u8> {
        self.0.addr
    }

    /// Calls `copy` with the address of `offset`, if `len` octets from there are inside and may be
    /// copied.
    #[inline]
    fn copy(
        &self,
        offset: usize,
        len: usize,
        copy: impl FnOnce(*mut u8),
    ) -> Result<(), OutOfRange> {
        match &self.0.origin {
            Origin::Lent(loan) => {
                let open = loan.enter().ok_or(OutOfRange { offset, len, size: 0 })?;
                copy(self.at(offset, len)?);
                drop(open);
            }
            Origin::Messages(_) => return Err(OutOfRange { offset, len, size: 0 }),
            Origin::Mapped(_) | Origin::Adopted(_) => copy(self.at(offset, len)?),
        }
        Ok(())
    }

    /// Address of `offset` if `len` octets from there are inside.
    fn at(&self, offset: usize, len: usize) -> Result<*mut u8, OutOfRange> {
        let size = self.0.len;
        match offset.checked_add(len) {
            // SAFETY: `offset <= size`, so the result stays in the memory or one past its end.
            Some(end) if end <= size => Ok(unsafe { self.base().as_ptr().add(offset) }),
            _ => Err(OutOfRange { offset, len, size }),
        }
    }
}

/// A fresh mapping of at least `len` octets in whole `unit`s: its address, and how many.
fn map(len: usize, unit: usize) -> io::Result<(NonNull<u8>, usize)> {
    let none = || io::Error::from(io::ErrorKind::OutOfMemory);
    let mapped = len.max(1).checked_next_multiple_of(unit).ok_or_else(none)?;
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no other.
    let addr = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, prot, MapFlags::PRIVATE) }?;
    Ok((NonNull::new(addr.cast()).ok_or_else(none)?, mapped))
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
