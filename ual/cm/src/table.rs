//! The table of connections that are not established, of listeners, and of what ends: what each socket and
//! timer that is ready stands for, and what goes with it.
//!
//! Everything here is behind the manager's lock, so one thread touches it at a time: the connection
//! thread, or a caller that does its own. When a peer dies its entry goes at the end of its stream
//! or when its timer fires. Tokens name entries and listeners, and are never used again.
//!
//! What peers and callers make longer is in B-trees, here and in the reactor: they grow by small pieces,
//! for which the C library has a reserve. When there is no memory no connection is accepted.

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
use std::time::Duration;

use kal_shim::Reactor;
use vp_api::{Datagrams, NativeCm, QpId, RnicAttrs};

use crate::connection::Connectee;
use crate::counters::Counters;
use crate::deliveries::{Deliveries, Delivery};
use crate::face::Face;
use crate::handle::Handle;
use crate::listener::{Listener, NativeListener, ServiceListener};
use crate::mailbox::Mailbox;
use crate::offenders::Offenders;
use crate::policy::Policies;
use crate::questions::Questions;
use crate::requests;
use crate::startup::active::Active;
use crate::startup::converted::Converted;
use crate::startup::native::{Pending, Strays};
use crate::startup::passive::Passive;
use meeting::Meeting;

/// How long a listener, or the connection thread, pauses when the process is out of descriptors or memory.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// One thing that is watched.
pub(crate) enum Entry {
    Active(Box<Active>),
    Passive(Box<Passive>),
    Converted(Box<Converted>),
    /// A start-up that meets its peer for a local stream.
    Meeting(Box<Meeting>),
    /// A graceful disconnect of this endpoint is under way.
    Ending(Weak<dyn Connectee>),
    Native(Box<Pending>),
}

/// What the table shares with its callers.
pub(crate) struct Shared {
    /// To itself.
    pub(crate) mailbox: Mailbox,
    pub(crate) counters: Arc<Counters>,
    pub(crate) face: Arc<dyn Face>,
    pub(crate) attrs: RnicAttrs,
    pub(crate) policies: Arc<Policies>,
    pub(crate) datagrams: Option<Arc<dyn Datagrams>>,
    pub(crate) questions: Arc<Questions>,
}

/// See the module.
pub(crate) struct Table {
    pub(crate) reactor: Reactor,
    pub(crate) mailbox: Mailbox,
    pub(crate) deliveries: Arc<Deliveries>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) face: Arc<dyn Face>,
    /// Of the device.
    pub(crate) attrs: RnicAttrs,
    /// For connections that bring none of their own.
    pub(crate) policies: Arc<Policies>,
    pub(crate) entries: BTreeMap<u64, Entry>,
    pub(crate) listeners: BTreeMap<u64, Listener>,
    pub(crate) offenders: Offenders,
    /// The entry of an endpoint that is connecting, accepting or disconnecting.
    pub(crate) by_qp: BTreeMap<QpId, u64>,
    pub(crate) native: Option<Arc<dyn NativeCm>>,
    /// Token of the listener, and its place, by the names of the provider's connection manager.
    pub(crate) native_listeners: BTreeMap<u64, (u64, NativeListener)>,
    /// Requests for listeners that are not in that list.
    pub(crate) strays: Strays,
    /// The provider's datagrams, if it has any.
    pub(crate) datagrams: Option<Arc<dyn Datagrams>>,
    /// Who asked services of other machines.
    pub(crate) questions: Arc<Questions>,
    /// Token of the listener, and its place, by the ids that service requests carry.
    pub(crate) service_listeners: BTreeMap<u64, (u64, ServiceListener)>,
    next: u64,
}

impl Table {
    pub(crate) fn new(reactor: Reactor, shared: Shared, native: Option<Arc<dyn NativeCm>>) -> Self {
        let Shared { mailbox, counters, face, attrs, policies, datagrams, questions } = shared;
        Self {
            reactor,
            mailbox,
            deliveries: Arc::new(Deliveries::new(face.clone())),
            counters,
            face,
            attrs,
            policies,
            entries: BTreeMap::new(),
            listeners: BTreeMap::new(),
            offenders: Offenders::default(),
            by_qp: BTreeMap::new(),
            native,
            native_listeners: BTreeMap::new(),
            strays: Strays::default(),
            datagrams,
            questions,
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
        // Even: listeners have the odd ones.
        self.next += 2;
        self.next
    }

    /// Forgets an entry; its socket closes with it.
    pub(crate) fn drop_entry(&mut self, token: u64) {
        self.reactor.clear_timer(token);
        if let Some(socket) = self.entries.remove(&token).as_ref().and_then(Entry::socket) {
            // Its close is not enough if the application kept a second descriptor of it.
            let _ = self.reactor.remove(socket);
        }
    }

    /// Forgets what an endpoint has here.
    pub(crate) fn drop_of(&mut self, qp: QpId) {
        if let Some(token) = self.by_qp.remove(&qp) {
            self.drop_entry(token);
        }
    }

    /// Gives up the socket of an entry that is over or becomes the provider's.
    pub(crate) fn unwatch(&mut self, token: u64, socket: impl AsFd) {
        self.reactor.clear_timer(token);
        // Not watched any more is fine.
        let _ = self.reactor.remove(socket);
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // Nobody can answer them any more; their sockets close with their entries.
        self.entries.values().filter_map(Entry::request).for_each(|request| {
            requests::remove(request);
        });
    }
}

impl Entry {
    /// The socket that is watched for it.
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
