//! Observation of the connection manager: counters in a record for readers, and a further descriptor to watch.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use vp_api::DeviceRef;

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

/// How one adapter is observed; by default not at all.
#[derive(Default)]
pub struct Observed {
    /// Record with the counters of connection management.
    pub record: DeviceRef,
    /// The descriptor to watch.
    pub aside: Option<Arc<dyn Aside>>,
}
