//! Shared file mappings that a child made by fork(2) must not write to.
//!
//! A table of mappings, which any thread adds to. In the child each of them is replaced by private zeros at the
//! same address, before anything else of the child runs: what the child inherited writes there, unseen by
//! others. A child of vfork(2) or posix_spawn(3) runs no handlers, and no code of ours before its exec.

use std::fs::File;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kal_os::fork::Descriptors;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::fork::Host;

/// Most mappings at a time; a process has one state file, mapped in pieces that grow.
const MOST: usize = 64;

struct Entry {
    /// 0: free.
    addr: AtomicUsize,
    len: AtomicUsize,
}

static TABLE: [Entry; MOST] =
    [const { Entry { addr: AtomicUsize::new(0), len: AtomicUsize::new(0) } }; MOST];

/// Some pages of a file, mapped shared, until it is dropped.
#[derive(Debug)]
pub struct SharedMap {
    addr: NonNull<u8>,
    len: usize,
    entry: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; users of the address prove their accesses.
unsafe impl Send for SharedMap {}
// SAFETY: the same.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Maps `len` octets at `offset`, both whole pages. The file must have them: an access beyond its end
    /// raises SIGBUS.
    ///
    /// # Errors
    /// Those of mmap(2), and too many mappings.
    pub fn new(file: &File, offset: u64, len: usize) -> io::Result<Self> {
        install()?;
        Descriptors::undisturbed::<Host, _>(|| Self::map(file, offset, len))
    }

    fn map(file: &File, offset: u64, len: usize) -> io::Result<Self> {
        let free = |entry: &Entry| {
            // Claim an entry before the mapping exists.
            entry.addr.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let Some(entry) = TABLE.iter().position(free) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other.
        let mapped = unsafe { mmap(null_mut(), len, prot, MapFlags::SHARED, file, offset) };
        match mapped.map_err(io::Error::from).map(|addr| NonNull::new(addr.cast::<u8>())) {
            Ok(Some(addr)) => {
                TABLE[entry].len.store(len, Ordering::Relaxed);
                TABLE[entry].addr.store(addr.as_ptr() as usize, Ordering::Release);
                Ok(Self { addr, len, entry })
            }
            failed => {
                TABLE[entry].addr.store(0, Ordering::Relaxed);
                Err(failed.err().unwrap_or_else(|| io::ErrorKind::OutOfMemory.into()))
            }
        }
    }

    /// The first octet.
    pub fn addr(&self) -> NonNull<u8> {
        self.addr
    }

    /// Octets.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        Descriptors::undisturbed::<Host, _>(|| {
            TABLE[self.entry].addr.store(0, Ordering::Release);
            // SAFETY: the mapping, or what replaced it, is ours, and this is its last user.
            let result = unsafe { munmap(self.addr.as_ptr().cast(), self.len) };
            debug_assert!(result.is_ok());
        });
    }
}

/// Installs the handler, once.
fn install() -> io::Result<()> {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if cfg!(miri) || INSTALLED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: the function is there for the whole life of the library that has it, which takes its handlers along;
    // it makes system calls only.
    match unsafe { libc::pthread_atfork(None, None, Some(give_up)) } {
        0 => Ok(()),
        error => {
            INSTALLED.store(false, Ordering::Relaxed);
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

extern "C" fn give_up() {
    for entry in &TABLE {
        let (addr, len) = (entry.addr.load(Ordering::Acquire), entry.len.load(Ordering::Relaxed));
        if addr > 1 {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: it replaces a mapping of ours by memory that can be used like it; the child has one thread,
            // which is here. Without memory the mapping stays as it is.
            unsafe { libc::mmap(addr as *mut libc::c_void, len, prot, flags, -1, 0) };
        }
    }
}
