//! The descriptors of this layer and of those above it that a child made by fork(2) must not keep, and
//! the number of forks so far: see [`kal_os::fork`].

use std::io;
use std::os::fd::AsFd;

use kal_os::fork::{Descriptors, Owner};

/// The owner of the table of descriptors.
#[derive(Debug)]
pub struct Host;

impl Owner for Host {
    fn table() -> &'static Descriptors {
        static TABLE: Descriptors = Descriptors::new();
        &TABLE
    }
}

/// Records a descriptor that was made elsewhere and is ours now, and that a child must not keep. After
/// an error (no memory) a child keeps it.
pub fn take(fd: impl AsFd) -> io::Result<()> {
    Descriptors::take::<Host>(fd.as_fd())
}

/// Forks between the first process and this one, counted from the first use of this layer.
pub fn generation() -> u32 {
    Descriptors::generation::<Host>()
}
