//! Whether a wait continues after a signal handler interrupted it, as sigaction(2) describes for
//! SA_RESTART: read(2), in which rdma-core waits, continues by itself, whereas poll(2) never does
//! (signal(7)). No state.

use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

/// Signals of a program's own faults; none comes during a wait, and their handlers rarely have
/// SA_RESTART.
const FAULTS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// Whether it continues: each handler that could have run in this thread was installed with SA_RESTART,
/// or there is none, and the process was stopped. Which one ran is unknown.
pub(crate) fn goes_on() -> bool {
    let blocked = blocked();
    let comes = |signal: &i32| !FAULTS.contains(signal) && !blocked(*signal);
    (1..=libc::SIGRTMAX()).filter(comes).all(restarts)
}

/// The signals that this thread blocks.
fn blocked() -> impl Fn(i32) -> bool {
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: without a new mask it only writes the old one; on failure it stays zeroed: none is blocked.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, null(), mask.as_mut_ptr()) };
    // SAFETY: zeroed is a value of this set of bits.
    let mask = unsafe { mask.assume_init() };
    // SAFETY: a set, and any number: it fails for what is no signal.
    move |signal| unsafe { libc::sigismember(&raw const mask, signal) } == 1
}

/// Whether a call continues after this signal: it has no handler, or one with SA_RESTART.
fn restarts(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action it only writes the old one.
    if unsafe { libc::sigaction(signal, null_mut(), action.as_mut_ptr()) } != 0 {
        // One of the C library's own.
        return true;
    }
    // SAFETY: it was written.
    let action = unsafe { action.assume_init() };
    let has_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
    !has_handler || action.sa_flags & libc::SA_RESTART != 0
}
