//! Whether a wait that a signal handler interrupted goes on, as sigaction(2) has it with SA_RESTART: read(2),
//! in which rdma-core waits, goes on by itself, while poll(2) never does (signal(7)). No state.

use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

/// Of faults of the program itself; none comes during a wait, and handlers of crashes have SA_RESTART rarely.
const FAULTS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// Whether it goes on: each handler that could have run in this thread was installed with SA_RESTART, or there
/// is none, and the process was stopped. Which one ran is not told.
pub(crate) fn goes_on() -> bool {
    let blocked = blocked();
    let comes = |signal: &i32| !FAULTS.contains(signal) && !blocked(*signal);
    (1..=libc::SIGRTMAX()).filter(comes).all(restarts)
}

/// Which signals this thread does not take.
fn blocked() -> impl Fn(i32) -> bool {
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: without a new mask it only writes the old one; on failure it stays zeroed: none is blocked.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, null(), mask.as_mut_ptr()) };
    // SAFETY: zeroed is a value of this set of bits.
    let mask = unsafe { mask.assume_init() };
    // SAFETY: a set, and any number: it fails for what is no signal.
    move |signal| unsafe { libc::sigismember(&raw const mask, signal) } == 1
}

/// Whether a call goes on behind this signal: it has no handler, or one with SA_RESTART.
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
