//! The descriptors of SoftRDMA that a child made by fork(2) must not keep: see [`kal_os::fork`].

use kal_os::fork::{Descriptors, Owner};

/// Holds the table of descriptors.
#[derive(Debug)]
pub(crate) struct SoftRdmaFds;

impl Owner for SoftRdmaFds {
    fn table() -> &'static Descriptors {
        static TABLE: Descriptors = Descriptors::new();
        &TABLE
    }
}

/// A descriptor of an engine.
pub(crate) type Ours<T> = kal_os::fork::Ours<SoftRdmaFds, T>;
