//! Fork: the child has the parent's objects but none of its threads. It starts anew: the first device that it
//! opens is another one than the parent's.
//!
//! State behind a lock is [`kal_os::fork::PerProcess`] of [`Here`]: a thread that the child does not have may
//! hold the parent's lock.

use kal_os::fork::{Descriptors, Owner};

/// Has the table of this library, which counts forks; it makes no descriptors.
pub(crate) struct Here;

impl Owner for Here {
    fn table() -> &'static Descriptors {
        static TABLE: Descriptors = Descriptors::new();
        &TABLE
    }
}

/// Which process this is: the first, its child, the child's child.
pub(crate) fn generation() -> u32 {
    Descriptors::generation::<Here>()
}
