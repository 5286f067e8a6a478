//! Result of a rendezvous: a memfd and two doorbells. The owner of a [`Met`] owns its descriptors.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use kal_os::fork::Descriptors;
use rustix::event::{EventfdFlags, eventfd};

use crate::fork::Host;

/// The shared memory and doorbells of an end.
#[derive(Debug)]
pub struct Met {
    /// The memory that the dialling end made.
    pub memory: OwnedFd,
    /// The eventfd on which this end sleeps.
    pub doorbell: OwnedFd,
    /// The one on which the peer sleeps.
    pub peer_doorbell: OwnedFd,
    /// The peer's wishes, whose meaning belongs to the use.
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
