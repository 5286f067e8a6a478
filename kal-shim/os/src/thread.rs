//! Threads of our own: named, and with the process's signals left to the application's threads.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::thread::{Builder, JoinHandle};

/// What a thread raises by its own fault: blocked, it would end the process without its handler.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP];

/// Starts a thread that handles no signals but its own faults: a handler of the application runs in
/// a thread of the application, and ends a call there that it is meant to end. What the thread starts
/// inherits that, also threads that a callback of the application starts.
///
/// # Errors
/// The system starts no thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _blocked = Blocked::new();
    Builder::new().name(name.into()).spawn(body)
}

/// Signals are blocked in this thread until drop; a thread inherits what is blocked where it starts.
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

    /// The signals that the calling thread blocks, a bit each, from 1 on.
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
            // Nobody blocks these two.
            let handled =
                FAULTS.contains(&signal) || [libc::SIGKILL, libc::SIGSTOP].contains(&signal);
            assert_eq!(inside >> (signal - 1) & 1 == 0, handled, "signal {signal}");
        }
    }
}
