//! What the manager needs of the layer above it, besides its endpoints: IT-API's access layer, or any other.
//!
//! All of it is called without a lock of the manager, by whichever thread found the event, for one event
//! after the other. It must not block: the events of the whole adapter wait behind it.

use std::sync::Arc;

use vp_api::{AsyncEvent, EventSource, QpId};

use crate::connection::Connectee;
use crate::types::{ConnRequest, ServiceReply, ServiceRequest};

/// The layer above, for one adapter.
pub trait Face: Send + Sync {
    /// The endpoint of a queue pair, if it is open and was made before the event of number `told` (see
    /// [`Sequence`](crate::Sequence)). Called under the manager's lock.
    fn connectee(&self, qp: QpId, told: u64) -> Option<Arc<dyn Connectee>>;

    /// An asynchronous event of the provider. The end of a connection is told here, too, after the endpoint
    /// was told; an orderly end is not.
    fn on_async(&self, told: u64, source: EventSource, event: AsyncEvent);
}

/// Where the requests of a listener go.
pub trait RequestSink: Send + Sync {
    /// Someone wants to connect; false: it is full or closed, and the request is to be rejected.
    fn request(self: Arc<Self>, request: ConnRequest) -> bool;

    /// Someone asks for a queue pair that takes datagrams; false as above.
    fn service_request(self: Arc<Self>, request: ServiceRequest) -> bool;
}

/// Where the replies of a service go.
pub trait ReplySink: Send + Sync {
    /// What came of asking.
    fn reply(self: Arc<Self>, reply: ServiceReply);
}
