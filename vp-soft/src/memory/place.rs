//! Copies octets to and from registered memory. No other code reads or writes it.
//!
//! No state; runs on the thread that makes progress. A peer may write the same octets at any moment, so there is
//! never a Rust reference to them, only raw copies. The result of racing accesses is undefined, as with any RDMA
//! device.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use vp_api::MemRange;

use crate::memory::AccessError;
use crate::memory::stag_table::Use;

/// Copies `octets` to `offset` in registered memory.
#[inline]
pub fn copy_in(target: &Use<'_>, offset: u32, octets: &[u8]) -> Result<(), AccessError> {
    let addr = target.raw_mut(offset, octets.len())?;
    // SAFETY: `raw_mut` checked that the octets are inside the use and writable; by its invariant
    // the memory lives as long as `target`. `octets` is a live slice and not registered memory, so
    // the two do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(octets.as_ptr(), addr, octets.len()) };
    Ok(())
}

/// Copies from `offset` in registered memory to `octets`.
#[inline]
pub fn copy_out(source: &Use<'_>, offset: u32, octets: &mut [u8]) -> Result<(), AccessError> {
    let addr = source.raw(offset, octets.len())?;
    // SAFETY: `raw` checked that the octets are inside the use; by its invariant the memory lives as long as
    // `source`. `octets` is exclusively borrowed, so the two do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(addr, octets.as_mut_ptr(), octets.len()) };
    Ok(())
}

/// Executes an atomic on the first 8 octets (host byte order) and returns the old value. `apply` gets the old value
/// and returns the value to store; `None` leaves memory as it is. It may be called several times. The operation is
/// atomic with respect to every other atomic of this process.
// RFC 7306 5.3 [EXT-12]; host order [EXT-09]
#[inline]
pub fn atomic_rmw(
    target: &Use<'_>,
    apply: impl Fn(u64) -> Option<u64>,
) -> Result<u64, AccessError> {
    let addr = target.raw_mut(0, size_of::<u64>())?.cast::<u64>();
    if !addr.is_aligned() {
        return Err(AccessError::Unaligned); // [EXT-08]
    }
    // SAFETY: aligned (just checked), 8 live and writable octets for as long as `target` lives; other accesses are
    // atomic, or a race that the peer causes.
    let value = unsafe { AtomicU64::from_ptr(addr) };
    let mut old = value.load(Ordering::Acquire);
    while let Some(new) = apply(old) {
        match value.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(now) => old = now,
        }
    }
    Ok(old)
}

/// Whether all pages of a range are mapped, and the process may read (and, if `write`, write) the first and the last.
/// Touches both pages without changing them. Pages between them with other rights are found only on access.
// RFC 5042 7.3 [SEC-13]
pub(crate) fn probe(range: &MemRange, write: bool) -> rustix::io::Result<()> {
    let Some(last) = range.len().checked_sub(1) else { return Ok(()) };
    let first = range.addr().as_ptr();
    probe_page(first, write)?;
    let last = first.wrapping_add(last);
    match page_of(last) - page_of(first) {
        0 => return Ok(()),
        between if between > rustix::param::page_size() => all_mapped(first, between)?,
        _ => {}
    }
    probe_page(last, write)
}

/// Whether all pages of so many octets from the page of this address on are mapped: no page is touched. Not by msync(2),
/// of which valgrind believes that it reads them.
fn all_mapped(addr: *mut u8, octets: usize) -> rustix::io::Result<()> {
    let size = rustix::param::page_size();
    let mut resident = [0u8; 1024];
    let end = page_of(addr) + octets;
    let mut page = page_of(addr);
    while page < end {
        let now = (end - page).min(resident.len() * size);
        let at = addr.map_addr(|_| page).cast();
        // SAFETY: the kernel writes an octet for each page of the range into `resident`, which has as many (mincore(2)).
        if unsafe { libc::mincore(at, now, resident.as_mut_ptr()) } != 0 {
            return Err(Errno::NOMEM);
        }
        page += now;
    }
    Ok(())
}

/// Whether `probe` works on this kernel (Linux 5.14 on).
pub fn can_probe() -> bool {
    let mut octet = 0u8;
    probe_page(&raw mut octet, true).is_ok()
}

fn page_of(addr: *mut u8) -> usize {
    addr.addr() & !(rustix::param::page_size() - 1)
}

fn probe_page(addr: *mut u8, write: bool) -> rustix::io::Result<()> {
    let page = addr.map_addr(|_| page_of(addr));
    let advice = if write { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
    // SAFETY: these two advices only fault pages in as a load or store would, without changing
    // what they hold; the kernel returns an error for pages that are not there.
    unsafe { madvise(page.cast(), 1, advice) }
}

#[cfg(all(test, not(loom)))]
#[path = "place_tests.rs"]
mod tests;
