//! What the layer above has the manager do for those who look at the process: count in a record that they read, and
//! watch a descriptor beside its sockets.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use vp_api::DeviceRef;

/// The token of what is watched beside. Connections and listeners count up from 0.
pub(crate) const ASIDE: u64 = u64::MAX - 16;

/// A descriptor that is watched beside the sockets.
pub trait Aside: Send + Sync {
    /// It. Readable: something is to be done.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Does it, and waits for nobody. Called with the manager's lock, by the connection thread or by a caller that does
    /// its work; several managers may watch the same.
    fn on_ready(&self);
}

/// How one adapter is observed; by default not at all.
#[derive(Default)]
pub struct Observed {
    /// Where connection management counts.
    pub record: DeviceRef,
    /// What it watches.
    pub aside: Option<Arc<dyn Aside>>,
}
