//! Closing a descriptor that another user may have filled: with what he passed over it (SCM_RIGHTS), such as a socket with
//! `SO_LINGER`, whose last close waits for as long as he chose (socket(7)).
//!
//! The kernel lets no thread wait that exits, so a thread closes it by its exit. It is one of the kernel's alone, on a stack in static
//! memory: the C library's threads, which `kal_os::discard` uses, need the heap, and the program may be in a signal handler.
//!
//! Owner of the state: static memory, which one discard uses at a time, with signals blocked: no handler waits for the call that it
//! interrupts. A child of fork(2) in the middle of one begins anew ([`renew`]). If the kernel starts no thread, the descriptor stays open.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};

use crate::{kernel, next};

/// `CLOSE_RANGE_UNSHARE` of linux/close_range.h.
const UNSHARE: c_uint = 1 << 1;
const STACK_OCTETS: usize = 16 << 10;

#[repr(align(16))]
struct Stack(UnsafeCell<[u8; STACK_OCTETS]>);

// SAFETY: only one thread of the kernel uses it at a time: `BUSY` and `ALIVE`.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(UnsafeCell::new([0; STACK_OCTETS]));
/// A discard is under way.
static BUSY: AtomicBool = AtomicBool::new(false);
/// The thread uses the stack; the kernel clears it (`CLONE_CHILD_CLEARTID`).
static ALIVE: AtomicI32 = AtomicI32::new(0);
/// The descriptor; from [`HAS`] on, how far the thread is.
static FD: AtomicI32 = AtomicI32::new(-1);
static STEP: AtomicI32 = AtomicI32::new(0);

/// The thread has descriptors of its own: this one.
const HAS: i32 = 1;
/// It could not get them (Linux before 5.9).
const HAS_NOT: i32 = 2;
/// Nobody else has this descriptor.
const LAST: i32 = 3;

/// Closes a descriptor; the caller does not wait. False: it stays open, because the system can do no better.
pub(crate) fn discard(fd: OwnedFd) -> bool {
    let _signals = Blocked::new();
    while BUSY.swap(true, SeqCst) {
        rest();
    }
    // The last one's thread exits.
    while ALIVE.load(SeqCst) != 0 {
        rest();
    }
    FD.store(fd.as_raw_fd(), SeqCst);
    STEP.store(0, SeqCst);
    let has = start() && {
        while STEP.load(SeqCst) == 0 {
            rest();
        }
        STEP.load(SeqCst) == HAS
    };
    if has {
        kernel::close(fd);
    } else {
        std::mem::forget(fd);
    }
    STEP.store(LAST, SeqCst);
    BUSY.store(false, SeqCst);
    has
}

/// In a child: its parent's discards are not its own.
pub(crate) fn renew() {
    ALIVE.store(0, SeqCst);
    BUSY.store(false, SeqCst);
}

fn rest() {
    rustix::thread::sched_yield();
}

/// Starts the thread. False: the system cannot.
fn start() -> bool {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_CHILD_CLEARTID;
    let top = STACK.0.get().wrapping_add(1).cast::<c_void>();
    ALIVE.store(1, SeqCst);
    let none: *mut c_void = null_mut();
    // SAFETY: `run` uses the stack alone, which no thread has: `ALIVE` was 0. It returns to the C library, which ends the thread.
    // It uses no thread-local memory, of which it has none of its own, but for what system calls do to `errno`.
    let started = unsafe { libc::clone(run, top, flags, none, none, none, ALIVE.as_ptr()) };
    if started < 0 {
        ALIVE.store(0, SeqCst);
    }
    started >= 0
}

extern "C" fn run(_: *mut c_void) -> c_int {
    let step = if keep_only(FD.load(SeqCst)) { HAS } else { HAS_NOT };
    STEP.store(step, SeqCst);
    while STEP.load(SeqCst) != LAST {
        rest();
    }
    0
}

/// Gives the calling thread descriptors of its own: a copy of this one, and no other.
fn keep_only(fd: c_int) -> bool {
    let number = fd as c_uint;
    close_range(number + 1, c_uint::MAX, UNSHARE) && (number == 0 || close_range(0, number - 1, 0))
}

fn close_range(first: c_uint, last: c_uint, flags: c_uint) -> bool {
    // `keep_only` calls it first with `UNSHARE`, and not again if that fails: from then on it closes descriptors of the thread alone.
    let arguments = [first as usize, last as usize, flags as usize, 0, 0, 0];
    next::system(libc::SYS_close_range, arguments).is_ok()
}

/// No signal handler runs in this thread until drop, nor ever in one that it starts; and `errno` stays as it was, which the other
/// thread may set.
struct Blocked {
    before: libc::sigset_t,
    errno: c_int,
}

impl Blocked {
    fn new() -> Self {
        let errno = next::errno();
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: there is room for the set that it stores.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: the set is initialized, and there is room for the one that it stores.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: `pthread_sigmask` fails for another `how` only.
        Self { before: unsafe { before.assume_init() }, errno }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is initialized.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, null_mut()) };
        next::set_errno(self.errno);
    }
}
