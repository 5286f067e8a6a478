//! Closing a descriptor whose close may wait: what a stranger passed, or sent over a socket and nobody received.
//!
//! The last close of a socket with `SO_LINGER` and unsent octets waits for as long as whoever made the socket chose
//! (socket(7)); if a message with such a socket is discarded, who discards it waits. The kernel lets no thread wait that
//! exits. So a thread of its own drops the last reference, by its exit.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc;

use crate::thread::spawn;

/// `CLOSE_RANGE_UNSHARE` of linux/close_range.h.
const UNSHARE: libc::c_uint = 1 << 1;

/// Closes a descriptor that a stranger may have filled; the caller does not wait, and the descriptor is closed soon. Only
/// if the system can start no thread, the caller closes it.
pub fn discard<T: AsFd + Send + 'static>(fd: T) {
    let number = fd.as_fd().as_raw_fd();
    // Dropped with the closure if there is no thread.
    let _ = spawn("warpline-close", move || {
        let (ready, inherited) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let heir = spawn("warpline-close", move || {
            if keep_only(number).is_ok() {
                let _ = ready.send(());
                // Until the other thread has closed its own.
                let _ = gone.recv();
            }
        });
        // If that fails (Linux before 5.9), this thread waits in the close.
        let _ = inherited.recv();
        drop(fd);
        drop(go);
        drop(heir);
    });
}

/// Gives the calling thread descriptors of its own: a copy of this one, and no other.
fn keep_only(number: libc::c_int) -> io::Result<()> {
    let number = number as libc::c_uint;
    close_range(number + 1, libc::c_uint::MAX, UNSHARE)?;
    match number {
        0 => Ok(()),
        _ => close_range(0, number - 1, 0),
    }
}

fn close_range(first: libc::c_uint, last: libc::c_uint, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: `keep_only` calls it first with `UNSHARE`, and not again if that fails: from then on it closes descriptors
    // of this thread alone, which uses none.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
