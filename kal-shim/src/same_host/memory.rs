//! What the two ends share in the end: a memfd and two doorbells. Whoever holds a [`Met`] owns its descriptors.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use kal_os::fork::Descriptors;
use rustix::event::{EventfdFlags, eventfd};

use crate::fork::Host;

/// What an end of the rendezvous comes away with.
#[derive(Debug)]
pub struct Met {
    /// The memory that the dialling end made.
    pub memory: OwnedFd,
    /// The eventfd on which this end sleeps.
    pub doorbell: OwnedFd,
    /// The one on which the peer sleeps.
    pub peer_doorbell: OwnedFd,
    /// What the peer wishes, in the words of this use.
    pub peer_wishes: u8,
}

/// Two eventfds with a counter of 1, as [`vp_api::LocalStream`] wants them, for a [`super::Dialled`] to offer.
///
/// # Errors
/// Those of eventfd(2).
pub fn doorbells() -> io::Result<[OwnedFd; 2]> {
    let make = || {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Descriptors::make::<Host, _>(|| Ok(eventfd(1, flags)?))
    };
    Ok([make()?, make()?])
}

/// Whether a descriptor of a peer is an eventfd.
pub(super) fn is_eventfd(fd: &OwnedFd) -> bool {
    // Descriptors of anonymous inodes have no other name.
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    link.is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}
