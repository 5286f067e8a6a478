//! Memory that a program unmaps while it is registered: what is written there is dropped.
//!
//! An adapter pins the pages of registered memory. What arrives after the program unmapped them goes to pages that
//! nobody sees. Programs rely on this: the registration cache of UCX unmaps memory first and deregisters it later. A
//! library cannot pin pages, and its copy raises SIGSEGV. The handler here maps a blank page at the address, and the copy
//! continues. It does so only for a store to an address that is not mapped, and that is in memory of an STag which a
//! thread uses now. Every other SIGSEGV goes to the handler that was there before. So does a load: the octets
//! are lost, and nothing can take their place.
//!
//! Owner: statics, the list of tables and the handler before ours. The first registration of memory that has no
//! owner in Rust installs the handler, which stays. It runs on the thread that copies, takes no lock, and calls
//! only mmap(2). A child made by fork(2) has it, too. A program that installs another handler later replaces it, and is
//! without this protection. A page stays mapped after deregistration: by then it may be memory that the program has
//! mapped itself. No memory for the page: the signal goes to the handler before ours.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use vp_api::{Access, MemRange};

use crate::memory::stag_table::Use;

mod handler;
pub(super) mod tables;

/// From now on stores to this memory are dropped if it is unmapped. Memory with an owner in Rust stays mapped.
pub(super) fn guard(range: &MemRange, access: Access) {
    if handler::KNOWS_STORES && !range.is_owned() && access.contains(Access::LOCAL_WRITE) {
        handler::install();
    }
}

/// Maps blank pages where the octets of a use are not mapped, after a system call could not write there. Returns
/// whether it mapped any.
pub fn map_blank(sink: &Use<'_>) -> bool {
    let page = rustix::param::page_size();
    let Ok(first) = sink.raw_mut(0, 0).map(|addr| addr.addr()) else { return false };
    let pages = (first & !(page - 1)..first + sink.len() as usize).step_by(page);
    pages.filter(|addr| map_blank_page(*addr) == Some(Page::Mapped)).count() > 0
}

/// What is at an address now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Page {
    /// A page that was mapped for it.
    Mapped,
    /// It was there already.
    Present,
}

/// Maps a blank page at an address, unless one is there. `None`: that is not possible.
fn map_blank_page(addr: usize) -> Option<Page> {
    let page = rustix::param::page_size();
    let at = std::ptr::without_provenance_mut(addr & !(page - 1));
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: with this flag the kernel replaces no mapping.
    match unsafe { mmap_anonymous(at, page, access, flags) } {
        Ok(mapped) if mapped == at => Some(Page::Mapped),
        Ok(elsewhere) => {
            // A kernel before Linux 4.17 takes the address for a hint.
            // SAFETY: mapped just now, and nobody knows of it.
            let _ = unsafe { munmap(elsewhere, page) };
            None
        }
        Err(rustix::io::Errno::EXIST) => Some(Page::Present),
        Err(_) => None,
    }
}

#[cfg(test)]
#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[path = "unmapped_tests.rs"]
mod tests;
