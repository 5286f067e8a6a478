//! Result of a rendezvous: a memfd and two doorbells. The owner of a [`Met`] owns its descriptors.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use kal_os::doorbell;
use kal_os::fork::Descriptors;

use crate::fork::Host;

/// The shared memory and doorbells of an end.
#[derive(Debug)]
pub struct Met {
    /// The memory that the dialling end made.
    pub memory: OwnedFd,
    /// The doorbell on which this end sleeps.
    pub doorbell: OwnedFd,
    /// The one on which the peer sleeps.
    pub peer_doorbell: OwnedFd,
    /// The peer's wishes, whose meaning belongs to the use.
    pub peer_wishes: u8,
}

/// Two doorbells, for a [`super::Dialled`] to offer.
///
/// # Errors
/// Those of [`doorbell`].
pub fn doorbells() -> io::Result<[OwnedFd; 2]> {
    let make = || Descriptors::make::<Host, _>(doorbell);
    Ok([make()?, make()?])
}

/// Whether a descriptor of a peer is an eventfd. Does not block, whatever it is.
pub(super) fn is_eventfd(fd: impl AsFd) -> bool {
    // Descriptors of anonymous inodes have no other name.
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()));
    link.is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}
