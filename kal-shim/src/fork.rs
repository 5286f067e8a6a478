//! The descriptors of this layer and of those above it, which a child made by fork(2) must not keep, and which
//! process this is: see [`kal_os::fork`].

use std::io;
use std::os::fd::AsFd;

use kal_os::fork::{Descriptors, Owner};

/// Has the table of descriptors.
#[derive(Debug)]
pub struct Host;

impl Owner for Host {
    fn table() -> &'static Descriptors {
        static TABLE: Descriptors = Descriptors::new();
        &TABLE
    }
}

/// A child must not keep this descriptor, which was made elsewhere and is ours now. An error (no memory):
/// it may.
pub fn take(fd: impl AsFd) -> io::Result<()> {
    Descriptors::take::<Host>(fd.as_fd())
}

/// Forks between the first process and this one, as far as this layer was used before them.
pub fn generation() -> u32 {
    Descriptors::generation::<Host>()
}
