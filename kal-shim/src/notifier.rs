//! A level-triggered flag for `poll` and `epoll` (an eventfd).
//!
//! The holder of the notifier owns its state; any thread may signal and clear it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use kal_os::fork::Ours;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};

use crate::fork::Host;

/// Readable from [`Notifier::signal`] until [`Notifier::clear`].
#[derive(Debug)]
pub struct Notifier(Ours<Host, OwnedFd>);

impl Notifier {
    /// A cleared notifier. Fails when the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ours::make(|| Ok(eventfd(0, flags)?)).map(Self)
    }

    /// Makes it readable. Never blocks: a full counter is readable already.
    pub fn signal(&self) {
        loop {
            match write(&*self.0, &1u64.to_ne_bytes()) {
                Err(Errno::INTR) => {}
                _ => return,
            }
        }
    }

    /// Makes it unreadable; true if it was readable.
    pub fn clear(&self) -> bool {
        let mut count = [0; 8];
        loop {
            match read(&*self.0, &mut count) {
                Err(Errno::INTR) => {}
                result => return result.is_ok(),
            }
        }
    }
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_its_level_until_cleared() {
        let notifier = Notifier::new().unwrap();
        assert!(!notifier.clear());
        notifier.signal();
        notifier.signal();
        assert!(notifier.clear());
        assert!(!notifier.clear());
    }
}
