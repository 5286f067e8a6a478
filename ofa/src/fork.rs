//! State after fork: the child has the parent's objects but none of its threads, so the first device
//! that it opens is its own.
//!
//! State under a lock is [`kal_os::fork::PerProcess`] of [`Here`]: a thread that the child does not have may
//! hold the parent's lock.

use kal_os::fork::{Descriptors, Owner};

/// The owner of this library's table, which counts forks; the library makes no descriptors.
pub(crate) struct Here;

impl Owner for Here {
    fn table() -> &'static Descriptors {
        static TABLE: Descriptors = Descriptors::new();
        &TABLE
    }
}

/// Counts forks: 0 in the first process, 1 in its child, and so on.
pub(crate) fn generation() -> u32 {
    Descriptors::generation::<Here>()
}
