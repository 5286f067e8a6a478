//! Starting threads: named, and with signals blocked, so that the application's threads handle them.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::thread::{Builder, JoinHandle};

/// Signals that a thread raises by its own fault: blocked, they would end the process without its
/// handler.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP];

/// Starts a thread that handles no signals but its own faults: a handler of the application runs in a
/// thread of the application, and interrupts the call there that it is meant to interrupt. Threads that
/// the new thread starts inherit that, also those that a callback of the application starts.
///
/// # Errors
/// The system cannot start a thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _blocked = Blocked::new();
    Builder::new().name(name.into()).spawn(body)
}

/// Signals are blocked in this thread until drop; a new thread inherits the mask of the one that starts
/// it.
struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: there is room for the set that it stores.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: `sigfillset` does not fail.
        let mut all = unsafe { all.assume_init() };
        for fault in FAULTS {
            // SAFETY: the set is initialized, and these are signals.
            unsafe { libc::sigdelset(&mut all, fault) };
        }
        // SAFETY: the set is initialized, and there is room for the one that it stores.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &all, before.as_mut_ptr()) };
        // SAFETY: `pthread_sigmask` fails for another `how` only.
        Self { before: unsafe { before.assume_init() } }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is initialized.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The signals that the calling thread blocks, one bit each, from 1 on.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    #[test]
    fn a_thread_of_ours_handles_faults_alone() {
        let before = blocked();
        let inside = spawn("of-ours", blocked).unwrap().join().unwrap();
        assert_eq!(blocked(), before);
        for signal in 1..32 {
            // These two are not blocked.
            let handled =
                FAULTS.contains(&signal) || [libc::SIGKILL, libc::SIGSTOP].contains(&signal);
            assert_eq!(inside >> (signal - 1) & 1 == 0, handled, "signal {signal}");
        }
    }
}
