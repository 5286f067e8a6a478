//! Tests of stores to unmapped memory by several threads, beside tables that are made and dropped.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use vp_api::{MemRange, MrInit};

use super::tables;
use crate::memory::AccessError;
use crate::memory::place::copy_in;
use crate::memory::stag_table::{Need, StagTable};
use crate::testing::{Buffer, FULL, PD, caller, init, pd, regions};

const LEN: usize = 1 << 16;
const ROUNDS: usize = 60;

/// Maps memory which Rust does not own, far below the addresses that the kernel chooses: no other thread's memory
/// takes the place of what is unmapped here.
fn map() -> *mut u8 {
    let at = std::ptr::without_provenance_mut(80 << 30);
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: a new mapping, which replaces none.
    unsafe { mmap_anonymous(at, LEN, access, flags) }.unwrap().cast()
}

/// Unmaps it, or what was mapped there since.
fn unmap(addr: u64) {
    let addr = std::ptr::without_provenance_mut(addr as usize);
    // SAFETY: memory of this test. Only copies of the table use it, which are prepared for this.
    unsafe { munmap(addr, LEN) }.unwrap();
}

/// Makes and drops tables until `done`.
fn change_tables(done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        drop(StagTable::new().unwrap());
    }
}

#[test]
fn threads_store_to_unmapped_memory_until_it_is_deregistered() {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| change_tables(&done));
        for _ in 0..ROUNDS {
            store_until_deregistered();
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Four threads store to all pages of a region that is unmapped meanwhile, until its STag is invalid.
fn store_until_deregistered() {
    let regions = regions();
    let first = NonNull::new(map()).unwrap();
    let addr = first.addr().get() as u64;
    // SAFETY: the memory is unmapped early on purpose.
    let range = unsafe { MemRange::unowned(first, LEN) };
    let init = MrInit { range, ..init(&Buffer::new(8), FULL) };
    let stag = regions.register(pd(PD), &init).unwrap();
    let store = || {
        for at in (0..LEN as u64).step_by(1024).cycle() {
            match regions.table.resolve(stag, Need::RemoteWrite, &caller(1), addr + at, 1024) {
                Ok(sink) => copy_in(&sink, 0, &[7; 1024]).unwrap(),
                Err(error) => return assert_eq!(error, AccessError::InvalidStag),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(store);
        }
        (0..4).for_each(|_| unmap(addr));
        regions.deallocate(stag).unwrap();
    });
    unmap(addr);
}

// Other tests have tables meanwhile, but far fewer than this makes.
#[test]
fn entries_of_the_list_are_used_again() {
    (0..10_000).for_each(|_| drop(StagTable::new().unwrap()));
    let entries = tables::len();
    assert!(entries < 1000, "{entries} entries");
}
