//! The connection table: connections that are not established, listeners, and connections that are
//! ending. Maps each ready socket and timer to its entry.
//!
//! Everything here is under the manager's lock, so one thread touches it at a time: the connection
//! thread, or a caller that executes its own command. When a peer dies its entry is removed at the end
//! of its stream or when its timer expires. Tokens name entries and listeners, and are never used again.
//!
//! Collections whose size peers and callers decide are B-trees, here and in the reactor: they grow in
//! small pieces, for which the C library has a reserve. When there is no memory no connection is
//! accepted.

mod active;
mod commands;
mod converted;
mod ending;
mod listeners;
mod meeting;
mod native;
mod outcome;
mod passive;
mod service;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use kal_shim::Reactor;
use vp_api::{Datagrams, NativeCm, QpId, RnicAttrs};

use crate::connection::Connectee;
use crate::counters::Counters;
use crate::deliveries::{Deliveries, Delivery};
use crate::face::Face;
use crate::handle::Handle;
use crate::invalid_stag_ends::InvalidStagEnds;
use crate::listener::{Listener, NativeListener, ServiceListener};
use crate::mailbox::Mailbox;
use crate::observed::{ConnectionObserver, ExtraDescriptor};
use crate::policy::Policies;
use crate::requests;
use crate::ruled::AdapterRules;
use crate::service_queries::ServiceQueries;
use crate::startup::active::Active;
use crate::startup::converted::Converted;
use crate::startup::native::{Pending, UnmatchedRequests};
use crate::startup::passive::Passive;
use meeting::Meeting;

/// A connection that the table watches.
pub(crate) enum Entry {
    Active(Box<Active>),
    Passive(Box<Passive>),
    Converted(Box<Converted>),
    /// A start-up that meets its peer for a local stream.
    Meeting(Box<Meeting>),
    /// An orderly disconnect of this endpoint is in progress.
    Ending(Weak<dyn Connectee>),
    Native(Box<Pending>),
}

/// State that the table shares with its callers.
pub(crate) struct Shared {
    /// Sends commands to this table.
    pub(crate) mailbox: Mailbox,
    pub(crate) counters: Arc<Counters>,
    pub(crate) extra: Option<Arc<dyn ExtraDescriptor>>,
    pub(crate) observer: Option<Arc<dyn ConnectionObserver>>,
    pub(crate) face: Arc<dyn Face>,
    pub(crate) attrs: RnicAttrs,
    pub(crate) policies: Arc<Policies>,
    pub(crate) rules: Arc<AdapterRules>,
    pub(crate) datagrams: Option<Arc<dyn Datagrams>>,
    pub(crate) service_queries: Arc<ServiceQueries>,
}

/// The table.
pub(crate) struct ConnectionTable {
    pub(crate) reactor: Reactor,
    pub(crate) mailbox: Mailbox,
    pub(crate) deliveries: Arc<Deliveries>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) extra: Option<Arc<dyn ExtraDescriptor>>,
    pub(crate) observer: Option<Arc<dyn ConnectionObserver>>,
    pub(crate) face: Arc<dyn Face>,
    /// Attributes of the device.
    pub(crate) attrs: RnicAttrs,
    /// For connections without a policy of their own.
    pub(crate) policies: Arc<Policies>,
    /// For every connection.
    pub(crate) rules: Arc<AdapterRules>,
    pub(crate) entries: BTreeMap<u64, Entry>,
    pub(crate) listeners: BTreeMap<u64, Listener>,
    pub(crate) invalid_stag_ends: InvalidStagEnds,
    /// The entry of an endpoint that is connecting, accepting or disconnecting.
    pub(crate) by_qp: BTreeMap<QpId, u64>,
    pub(crate) native: Option<Arc<dyn NativeCm>>,
    /// Token of the listener, and its address, by the ids of the provider's connection manager.
    pub(crate) native_listeners: BTreeMap<u64, (u64, NativeListener)>,
    /// Requests for listeners that are not in that list.
    pub(crate) unmatched: UnmatchedRequests,
    /// The provider's datagrams, if it has any.
    pub(crate) datagrams: Option<Arc<dyn Datagrams>>,
    /// Service requests to other machines.
    pub(crate) service_queries: Arc<ServiceQueries>,
    /// Token of the listener, and its address, by the ids that service requests carry.
    pub(crate) service_listeners: BTreeMap<u64, (u64, ServiceListener)>,
    next: u64,
}

impl ConnectionTable {
    pub(crate) fn new(reactor: Reactor, shared: Shared, native: Option<Arc<dyn NativeCm>>) -> Self {
        let Shared {
            mailbox,
            counters,
            extra,
            observer,
            face,
            attrs,
            policies,
            rules,
            datagrams,
            service_queries,
        } = shared;
        Self {
            reactor,
            mailbox,
            deliveries: Arc::new(Deliveries::new(face.clone())),
            counters,
            extra,
            observer,
            face,
            attrs,
            policies,
            rules,
            entries: BTreeMap::new(),
            listeners: BTreeMap::new(),
            invalid_stag_ends: InvalidStagEnds::default(),
            by_qp: BTreeMap::new(),
            native,
            native_listeners: BTreeMap::new(),
            unmatched: UnmatchedRequests::default(),
            datagrams,
            service_queries,
            service_listeners: BTreeMap::new(),
            next: 0,
        }
    }

    /// Queues an event for the layer above.
    pub(crate) fn push(&self, delivery: Delivery) {
        self.deliveries.push(delivery);
    }

    /// A token for a new entry; never used again.
    pub(crate) fn new_token(&mut self) -> u64 {
        // Even: listeners have odd ones.
        self.next += 2;
        self.next
    }

    /// Removes an entry; its socket closes with it.
    pub(crate) fn drop_entry(&mut self, token: u64) {
        self.reactor.clear_timer(token);
        if let Some(socket) = self.entries.remove(&token).as_ref().and_then(Entry::socket) {
            // Closing it is not enough if the application kept a second descriptor.
            let _ = self.reactor.remove(socket);
        }
    }

    /// Removes the entry of an endpoint.
    pub(crate) fn drop_of(&mut self, qp: QpId) {
        if let Some(token) = self.by_qp.remove(&qp) {
            self.drop_entry(token);
        }
    }

    /// Stops watching the socket of an entry that is over or becomes the provider's.
    pub(crate) fn unwatch(&mut self, token: u64, socket: impl AsFd) {
        self.reactor.clear_timer(token);
        // It need not be watched any more.
        let _ = self.reactor.remove(socket);
    }
}

impl Drop for ConnectionTable {
    fn drop(&mut self) {
        // They can no longer be accepted; their sockets close with their entries.
        self.entries.values().filter_map(Entry::request).for_each(|request| {
            requests::remove(request);
        });
    }
}

impl Entry {
    /// The socket that is watched for this entry.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Active(active) => Some(active.socket().as_fd()),
            Self::Passive(passive) => Some(passive.socket().as_fd()),
            Self::Converted(converted) => Some(converted.socket().as_fd()),
            Self::Meeting(meeting) => Some(meeting.socket()),
            Self::Ending(_) | Self::Native(_) => None,
        }
    }

    /// The request that the application has.
    fn request(&self) -> Option<Handle> {
        match self {
            Self::Passive(passive) => passive.request(),
            Self::Native(pending) => pending.request(),
            Self::Active(_) | Self::Converted(_) | Self::Meeting(_) | Self::Ending(_) => None,
        }
    }
}
