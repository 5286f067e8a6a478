//! Events, and the event dispatchers that deliver them to the application.
//!
//! # Notifications, and two modes
//!
//! A dispatcher (`ual/src/event`) carries one stream. Its queue is under one mutex, held for a few
//! instructions; a thread that changes it updates descriptor, aggregate dispatcher, callback and waiters
//! before unlocking. A completion counts as a *notification* if its request said so, if the sender asked
//! for it, or if it failed; events of other streams always do. Wait, descriptor, aggregate and callback
//! depend on the number of notifications, the threshold, and whether the dispatcher is enabled.
//!
//! Dispatchers of completions have two modes. *Direct*: polls and waits go to the provider's queue, with
//! nothing in between. *Staged*, once a caller wants an aggregate, a callback or a threshold above one,
//! or posts work whose completion does not count: a thread of the Ia, notified by the provider, moves
//! completions to a queue. The mode changes at run time without loss; this change, the pump against the
//! provider's arming, thresholds, aggregates and enabling are model-checked with loom.
//!
//! A wait ends with an event, its time-out, an interrupt, a signal handler (`EINTR`, also for followers
//! of a leader inside the provider), or the end of the Ia.

mod adapter;
mod async_event;
mod callback;
mod completion;
mod datagram_cq;
mod dispatch;
mod evd;
mod event_queue;
mod init;
mod lead;
mod overrun;
mod pump;
mod settings;
mod staging_mode;
mod state;
mod stream;
mod take;

pub use async_event::AsyncSource;
pub(crate) use dispatch::Dispatch;
pub use evd::Evd;
pub use init::{EvdInfo, EvdInit};
pub use state::Overflow;
use stream::is_notification;
pub use stream::{NOTIFY, Stream};

use std::sync::{Arc, Weak};

use vp_api::{AsyncEvent, QpId, WorkCompletion};

use crate::cm::{ConnEvent, ConnRequest, ServiceReply, ServiceRequest};
use crate::resource::{Ep, UdService};

/// An event.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A work request completed.
    Completion(WorkCompletion),
    /// A peer wants to connect: accept or reject.
    Request(Box<ConnRequest>),
    /// A peer asks for a queue pair that takes datagrams: [`crate::cm::reply`].
    ServiceRequest(Box<ServiceRequest>),
    /// The result of a service request.
    ServiceReply {
        /// The service that was asked.
        service: Weak<UdService>,
        /// Its reply.
        reply: Box<ServiceReply>,
    },
    /// The result or the end of a connection.
    Connection {
        /// The endpoint's queue pair, see [`crate::Ia::ep`].
        qp: QpId,
        /// The endpoint.
        ep: Weak<Ep>,
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
    /// An aggregate dispatcher reports that one that feeds it met its criteria.
    Notification {
        /// The dispatcher with events.
        evd: Arc<Evd>,
    },
}
