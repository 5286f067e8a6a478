//! Catching the user's interrupt (control-C), for commands that print a result before they end.
//!
//! The handler only sets a flag, which any thread may read; a second interrupt ends the process as by
//! default.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_interrupt(_signal: libc::c_int) {
    // Async-signal-safe: one atomic store, no lock, no allocation.
    INTERRUPTED.store(true, Ordering::Release);
}

/// Records the next interrupt instead of ending the process; [`interrupted`] reads it.
pub fn catch_interrupt() -> io::Result<()> {
    // SAFETY: all zeroes is a valid `sigaction`: default handler, empty mask, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_interrupt as *const () as usize;
    action.sa_flags = libc::SA_RESETHAND;
    // SAFETY: `action` is initialised and outlives the call; `on_interrupt` is async-signal-safe and has the
    // signature of a handler without SA_SIGINFO; a null third argument asks for no old action.
    let result = unsafe { libc::sigaction(libc::SIGINT, &action, std::ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// True once an interrupt was recorded.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Acquire)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_is_noted() {
        catch_interrupt().unwrap();
        assert!(!interrupted());
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT)
            .unwrap();
        // Delivered to some thread of this process, soon.
        while !interrupted() {
            std::thread::yield_now();
        }
    }
}
