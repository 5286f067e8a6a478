//! Traits that the layer above implements, besides its endpoints: IT-API's access layer, or any other.
//!
//! All methods are called without a lock of the manager (except where noted), by the thread that found the
//! event, for one event after the other. They must not block: the events of the whole adapter wait for them.

use std::sync::Arc;

use vp_api::{AsyncEvent, EventSource, QpId};

use crate::connection::Connectee;
use crate::types::{ConnRequest, ServiceReply, ServiceRequest};

/// The layer above, for one adapter.
pub trait Face: Send + Sync {
    /// The endpoint of a queue pair, if it is open and was created before the event with number `number`
    /// (see [`Sequence`](crate::Sequence)). Called under the manager's lock.
    fn connectee(&self, qp: QpId, number: u64) -> Option<Arc<dyn Connectee>>;

    /// An asynchronous event of the provider. The end of a connection is reported here, too, after it
    /// was delivered to the endpoint, except an orderly end.
    fn on_async(&self, number: u64, source: EventSource, event: AsyncEvent);
}

/// Receives the requests of a listener.
pub trait RequestSink: Send + Sync {
    /// A peer wants to connect. Returns false if the sink is full or closed, and the request is to be
    /// rejected.
    fn request(self: Arc<Self>, request: ConnRequest) -> bool;

    /// A peer asks for a queue pair that takes datagrams; false as above.
    fn service_request(self: Arc<Self>, request: ServiceRequest) -> bool;
}

/// Receives the replies of a service.
pub trait ReplySink: Send + Sync {
    /// The result of a service request.
    fn reply(self: Arc<Self>, reply: ServiceReply);
}
