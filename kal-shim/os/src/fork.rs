//! Descriptors that a child made by fork(2) must not keep: a socket that the child has, too, sends no
//! FIN when the parent closes it or ends, and an epoll set is shared with the parent.
//!
//! A table by number, owned by a static of the crate that makes the descriptors ([`Owner`]; this crate
//! has no statics). Any thread adds; entries are words, and chunks of them are never freed. The handlers
//! of pthread_atfork(3) run in the thread that forks: before the fork it waits until no other thread is
//! between making a descriptor and recording it; in the child it replaces each recorded descriptor by an
//! unused eventfd. So the objects that the child inherited may close their numbers later without closing
//! what the application opened there. The child's handler calls only fstat(2), dup3(2), close(2),
//! eventfd(2) and mmap(2), which take no lock of the process. Memory shared with a peer is replaced by private
//! zeros ([`Mapped`]).
//!
//! Reuse: an entry outlives its socket; device and inode show whether the number is still ours.
//! Descriptors that share one inode (epoll sets, eventfds, timers), and those of streams, are removed before
//! they are closed ([`Ours`]). A child of vfork(2), posix_spawn(3) or a bare clone(2) runs no handlers: every descriptor
//! is closed at its exec.
//!
//! Descriptors whose close may block, because other processes made them or write into them: [`Foreign`].

mod descriptor_table;
mod foreign;
mod mappings;
mod once;
mod ours;
mod per_process;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use descriptor_table::DescriptorTable;
pub use foreign::Foreign;
pub use mappings::Mapped;
use mappings::Mappings;
pub use once::Once;
pub use ours::Ours;
pub use per_process::PerProcess;

use crate::tuning::{FORK_CHECKS, FORK_PAUSE};

/// The owner of a crate's table.
pub trait Owner: 'static {
    /// Returns the same table each time.
    fn table() -> &'static Descriptors;
}

/// The table of one crate's descriptors.
pub struct Descriptors {
    table: DescriptorTable,
    mappings: Mappings,
    /// Threads between making a descriptor and recording it.
    making: AtomicU32,
    /// Threads that are about to fork.
    forking: AtomicU32,
    /// Forks between the first process and this one.
    generation: AtomicU32,
    installed: AtomicBool,
}

impl Default for Descriptors {
    fn default() -> Self {
        Self::new()
    }
}

impl Descriptors {
    /// An empty table.
    pub const fn new() -> Self {
        Self {
            table: DescriptorTable::new(),
            mappings: Mappings::new(),
            making: AtomicU32::new(0),
            forking: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            installed: AtomicBool::new(false),
        }
    }

    /// Makes a descriptor that a child must not keep.
    ///
    /// # Errors
    /// Those of `make`, and no memory.
    pub fn make<O: Owner, T: AsFd>(make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let table = O::table();
        table.watch::<O>()?;
        let _making = Making::enter(table);
        let made = make()?;
        table.table.enter(made.as_fd())?;
        Ok(made)
    }

    /// Records a descriptor that was made elsewhere and that a child must not keep.
    ///
    /// # Errors
    /// No memory.
    pub fn take<O: Owner>(fd: BorrowedFd<'_>) -> io::Result<()> {
        Self::make::<O, _>(|| Ok(fd)).map(drop)
    }

    /// Runs `act` at a time when no other thread forks, for memory that a child must not share either: what
    /// `act` notes of it is there when the child's handlers run.
    pub fn undisturbed<O: Owner, T>(act: impl FnOnce() -> T) -> T {
        let _making = Making::enter(O::table());
        act()
    }

    /// Forks between the first process and this one: descriptors recorded under another number were
    /// inherited.
    pub fn generation<O: Owner>() -> u32 {
        let table = O::table();
        // Without memory for the handlers the child cannot count.
        let _ = table.watch::<O>();
        table.generation.load(Ordering::Relaxed)
    }

    /// Installs the handlers, once.
    fn watch<O: Owner>(&self) -> io::Result<()> {
        if self.installed.load(Ordering::Relaxed) || cfg!(miri) {
            return Ok(());
        }
        if self.installed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        // SAFETY: the three functions exist for the whole life of the library that has them, which
        // removes its handlers when it is unloaded (pthread_atfork(3)); what they do is allowed in a
        // child of a process with threads.
        match unsafe {
            libc::pthread_atfork(Some(before::<O>), Some(in_parent::<O>), Some(in_child::<O>))
        } {
            0 => Ok(()),
            error => {
                self.installed.store(false, Ordering::Relaxed);
                Err(io::Error::from_raw_os_error(error))
            }
        }
    }
}

/// While this lives no thread forks, within bounds.
struct Making<'a>(&'a Descriptors);

impl<'a> Making<'a> {
    fn enter(table: &'a Descriptors) -> Self {
        loop {
            // Checked first, so that threads that wait here do not delay the fork.
            if table.forking.load(Ordering::SeqCst) == 0 {
                table.making.fetch_add(1, Ordering::SeqCst);
                if table.forking.load(Ordering::SeqCst) == 0 {
                    return Self(table);
                }
                table.making.fetch_sub(1, Ordering::SeqCst);
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        // A child that a signal handler made in the middle of this has reset the count.
        let less = |making: u32| making.checked_sub(1);
        let _ = self.0.making.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }
}

extern "C" fn before<O: Owner>() {
    let table = O::table();
    table.forking.fetch_add(1, Ordering::SeqCst);
    for _ in 0..FORK_CHECKS {
        if table.making.load(Ordering::SeqCst) == 0 {
            return;
        }
        std::thread::sleep(FORK_PAUSE);
    }
}

extern "C" fn in_parent<O: Owner>() {
    O::table().forking.fetch_sub(1, Ordering::SeqCst);
}

extern "C" fn in_child<O: Owner>() {
    let table = O::table();
    // The other threads do not exist in the child.
    table.forking.store(0, Ordering::SeqCst);
    table.making.store(0, Ordering::SeqCst);
    table.generation.fetch_add(1, Ordering::Relaxed);
    table.table.give_up();
    table.mappings.give_up();
}
