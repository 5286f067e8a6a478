//! Observation of the connection manager: counters in a record for readers, and an extra descriptor to watch.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use vp_api::{DeviceRef, QpId};

use crate::types::Established;

/// The token of the extra descriptor. Those of connections and listeners count up from 0.
pub(crate) const EXTRA_DESCRIPTOR: u64 = u64::MAX - 16;

/// A descriptor that is watched besides the sockets.
pub trait ExtraDescriptor: Send + Sync {
    /// The descriptor; readable when [`ExtraDescriptor::on_ready`] has work.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Serves it without blocking. Called with the manager's lock, by the connection thread or by a caller that
    /// does its work; several managers may watch the same descriptor.
    fn on_ready(&self);
}

/// Receives what readers of the records see of a connection, and its provider does not know.
pub trait ConnectionObserver: Send + Sync {
    /// A connection of this queue pair is established. Called with the manager's lock; must not block.
    fn established(&self, qp: QpId, established: &Established);
}

/// How one adapter is observed; by default not at all.
#[derive(Default)]
pub struct Observed {
    /// Record with the counters of connection management.
    pub record: DeviceRef,
    /// The descriptor to watch.
    pub extra: Option<Arc<dyn ExtraDescriptor>>,
    /// Called for each established connection.
    pub observer: Option<Arc<dyn ConnectionObserver>>,
}
