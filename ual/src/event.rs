//! Events, and the dispatchers that carry them to the application.

mod async_event;
mod completion;
mod evd;
mod queue;

pub use async_event::AsyncSource;
pub use evd::{Evd, EvdInit};

use vp_api::{AsyncEvent, QpId, WorkCompletion};

use crate::cm::{ConnEvent, ConnRequest};

/// What a dispatcher carries (IT-API event streams): exactly one kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stream {
    /// Completions; the dispatcher is a completion queue of the provider.
    Completion,
    /// Connection requests of listeners.
    Request,
    /// What becomes of connections.
    Connection,
    /// Asynchronous events of endpoints, dispatchers and shared receive queues.
    Affiliated,
    /// Asynchronous events of the device and its ports.
    Unaffiliated,
    /// Events that the application posts itself.
    Software,
}

/// An event.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A work request completed.
    Completion(WorkCompletion),
    /// Someone wants to connect: accept or reject.
    Request(Box<ConnRequest>),
    /// News of a connection.
    Connection {
        /// The endpoint's queue pair, see [`crate::Ia::ep`].
        qp: QpId,
        /// What happened.
        event: Box<ConnEvent>,
    },
    /// An asynchronous event of one object.
    Affiliated {
        /// Which object.
        source: AsyncSource,
        /// What happened.
        event: AsyncEvent,
    },
    /// An asynchronous event of the whole device.
    Unaffiliated {
        /// The port, if it is about one.
        port: Option<u32>,
        /// What happened.
        event: AsyncEvent,
    },
    /// Posted by [`Evd::post_software`].
    Software(u64),
}
