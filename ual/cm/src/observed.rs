//! Observation of the connection manager: counters in a record for readers, and a further descriptor to watch.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use vp_api::{DeviceRef, QpId};

use crate::types::Established;

/// The token of the further descriptor. Those of connections and listeners count up from 0.
pub(crate) const ASIDE: u64 = u64::MAX - 16;

/// A descriptor that is watched besides the sockets.
pub trait Aside: Send + Sync {
    /// The descriptor; readable when [`Aside::on_ready`] has work.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Serves it without blocking. Called with the manager's lock, by the connection thread or by a caller that
    /// does its work; several managers may watch the same descriptor.
    fn on_ready(&self);
}

/// Who notes what becomes of connections.
pub trait Notes: Send + Sync {
    /// A connection of this queue pair is established. Called with the manager's lock; waits for nobody.
    fn established(&self, qp: QpId, established: &Established);
}

/// How one adapter is observed; by default not at all.
#[derive(Default)]
pub struct Observed {
    /// Record with the counters of connection management.
    pub record: DeviceRef,
    /// The descriptor to watch.
    pub aside: Option<Arc<dyn Aside>>,
    /// Who is told of connections.
    pub notes: Option<Arc<dyn Notes>>,
}
