//! The kinds of events that a dispatcher carries, and which completions count as notifications. Values
//! only.

use vp_api::{WcStatus, WorkCompletion};

/// A bit of `wr_id`: the completion counts as a notification (IT-API `IT_NOTIFY_FLAG`). So does one that
/// is solicited or failed, whatever its `wr_id`. The face may use the other bits.
pub const NOTIFY: u64 = 1 << 63;

/// True if the completion counts as a notification.
pub(crate) fn is_notification(completion: &WorkCompletion) -> bool {
    completion.wr_id & NOTIFY != 0 || completion.solicited || completion.status != WcStatus::Success
}

/// The kind of events that a dispatcher carries (IT-API event streams): exactly one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stream {
    /// Completions; the dispatcher is a completion queue of the provider.
    Completion,
    /// Connection requests of listeners.
    Request,
    /// Results and ends of connections.
    Connection,
    /// Asynchronous events of endpoints, dispatchers and shared receive queues.
    Affiliated,
    /// Asynchronous events of the device and its ports.
    Unaffiliated,
    /// Events that the application posts itself.
    Software,
    /// Notifications of other dispatchers (IT-API AEVD).
    Aggregate,
}
