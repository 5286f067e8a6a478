//! A connection identifier: its state, its channel, its events, and its destruction.
//!
//! The application's thread changes its state by calls; the connection manager changes it from pending
//! to connected to over. One event per step: the state decides, so an end is reported once, whatever
//! causes it first: the peer, this end, or the destruction of the queue pair.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

use ibv_sys::{
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_DISCONNECTED,
    RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED, rdma_cm_id,
};
use kal_os::lock;
use ual_cm::{Bound, ConnEvent, ReplySink};
use vp_api::PathTerms;

use super::carrier::{Carrier, Confirmed};
use super::channel::{Channel, ChannelEvent, Pending};
use super::endpoint::IdEndpoint;
use super::event::{Event, Said};
use super::group::Group;
use super::listen::Listener;
use super::option::{Change, Options};
use super::ports::Held;
use super::request::Asked;
use crate::acks::Acks;
use crate::adapter::Adapter;
use crate::errno::{EINVAL, Errno};

/// The state of an identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Idle,
    Bound,
    AddressResolved,
    RouteResolved,
    Listening,
    /// A connection request that waits for accept or reject.
    Asked,
    /// Connecting or accepting.
    Pending,
    Connected,
    /// It was connected.
    Disconnected,
    /// No connection was established, or the request was rejected.
    Over,
}

/// A connection identifier.
pub struct Id {
    pub(super) inner: Mutex<Inner>,
    place: Mutex<Place>,
    acks: Acks,
    handle: AtomicPtr<rdma_cm_id>,
    is_datagrams: bool,
}

/// The part that calls change.
pub(super) struct Inner {
    pub(super) state: State,
    pub(super) is_datagrams: bool,
    pub(super) options: Options,
    /// The device that it is bound to.
    pub(super) adapter: Option<Arc<Adapter>>,
    pub(super) bound: Option<Bound>,
    /// The port that it is bound to, until it is destroyed.
    pub(super) held: Option<Arc<Held>>,
    /// As the application sees them.
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    /// The request that it was created for, replied to or not.
    pub(super) asked: Option<Box<Asked>>,
    pub(super) party: Option<Arc<IdEndpoint>>,
    /// It got `RDMA_CM_EVENT_CONNECT_RESPONSE`: the peer is established once the application calls rdma_establish.
    pub(super) is_unconfirmed: bool,
    /// For datagrams, until its reply.
    pub(super) question: Option<Arc<dyn ReplySink>>,
    pub(super) listener: Option<Listener>,
    /// Multicast groups that it has joined.
    pub(super) groups: Vec<Group>,
}

/// The channel for its events.
struct Place {
    channel: Arc<Channel>,
    /// Each of its calls waits for its event itself.
    synchronous: bool,
    /// It is destroyed.
    gone: bool,
}

/// What the application's structure shows.
pub(super) struct View {
    pub(super) adapter: Option<Arc<Adapter>>,
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    pub(super) has_route: bool,
}

impl Inner {
    fn new(state: State) -> Self {
        Self {
            state,
            is_datagrams: false,
            options: Options::default(),
            adapter: None,
            bound: None,
            held: None,
            local: None,
            remote: None,
            asked: None,
            party: None,
            is_unconfirmed: false,
            question: None,
            listener: None,
            groups: Vec::new(),
        }
    }

    /// What the peer's messages have said, where the provider shows them.
    fn said(&self) -> Said {
        let known = self.party.as_ref().and_then(|party| {
            let messages = party.adapter().rnic().cm_messages()?;
            Some((messages, party.id()))
        });
        known.map_or_else(Said::default, |(messages, qp)| Said {
            has_codes: true,
            refusal: messages.refusal(qp),
            terms: messages.terms(qp),
        })
    }

    /// EINVAL in another state.
    pub(super) fn expect(&self, state: State) -> Result<(), Errno> {
        if self.state == state { Ok(()) } else { Err(EINVAL) }
    }
}

impl Id {
    /// A new identifier on a channel, which is private if it is `synchronous`.
    pub(super) fn new(channel: Arc<Channel>, synchronous: bool, is_datagrams: bool) -> Arc<Self> {
        let mut inner = Inner::new(State::Idle);
        inner.is_datagrams = is_datagrams;
        Self::make(inner, channel, synchronous)
    }

    /// Whether it is for datagrams.
    pub(super) fn is_datagrams(&self) -> bool {
        self.is_datagrams
    }

    /// One for a connection request.
    pub(super) fn of_request(
        asked: Box<Asked>,
        channel: Arc<Channel>,
        synchronous: bool,
    ) -> Arc<Self> {
        let mut inner = Inner::new(State::Asked);
        inner.adapter = Some(asked.adapter.clone());
        inner.is_datagrams = asked.is_datagrams;
        (inner.local, inner.remote) = (Some(asked.local), Some(asked.remote));
        inner.asked = Some(asked);
        Self::make(inner, channel, synchronous)
    }

    fn make(inner: Inner, channel: Arc<Channel>, synchronous: bool) -> Arc<Self> {
        let place = Place { channel, synchronous, gone: false };
        let is_datagrams = inner.is_datagrams;
        Arc::new(Self {
            is_datagrams,
            inner: Mutex::new(inner),
            place: Mutex::new(place),
            acks: Acks::default(),
            handle: AtomicPtr::default(),
        })
    }

    /// Its handle, once it has one.
    pub(super) fn handle(&self) -> *mut rdma_cm_id {
        self.handle.load(Ordering::Acquire)
    }

    pub(super) fn set_handle(&self, handle: *mut rdma_cm_id) {
        self.handle.store(handle, Ordering::Release);
    }

    /// Events that the application has not acknowledged.
    pub(super) fn acks(&self) -> &Acks {
        &self.acks
    }

    /// Its channel, and whether that is private.
    pub(super) fn channel(&self) -> (Arc<Channel>, bool) {
        let place = lock(&self.place);
        (place.channel.clone(), place.synchronous)
    }

    pub(super) fn view(&self) -> View {
        let inner = lock(&self.inner);
        View {
            adapter: inner.adapter.clone(),
            local: inner.local,
            remote: inner.remote,
            has_route: !matches!(
                inner.state,
                State::Idle | State::Bound | State::AddressResolved | State::Listening
            ),
        }
    }

    /// What the messages of both ends say of the path between their queue pairs, where the provider shows it.
    ///
    /// # Errors
    /// EINVAL: the peer has not said anything yet.
    pub(super) fn terms(&self) -> Result<PathTerms, Errno> {
        let inner = lock(&self.inner);
        let of_request = inner.asked.as_ref().and_then(|asked| asked.conn.terms);
        inner.said().terms.or(of_request).ok_or(EINVAL)
    }

    pub(super) fn set_option(&self, change: Change) -> Result<(), Errno> {
        let mut inner = lock(&self.inner);
        let bound = inner.state != State::Idle;
        inner.options.set(change, bound)
    }

    /// Whether an event is queued on its channel.
    pub(super) fn has_event(&self) -> bool {
        !self.channel().0.queue().is_empty()
    }

    /// Queues one of its own events.
    pub(super) fn queue_event(self: &Arc<Self>, event: Event) {
        self.put(ChannelEvent::Event(event));
    }

    /// Queues an event; returns false once it is destroyed.
    pub(super) fn put(self: &Arc<Self>, event: ChannelEvent) -> bool {
        let place = lock(&self.place);
        if !place.gone {
            place.channel.push(Pending { id: self.clone(), event });
        }
        !place.gone
    }

    /// An event of its connection from the connection manager.
    pub(super) fn on_event(self: &Arc<Self>, event: ConnEvent) {
        let mut inner = lock(&self.inner);
        let is_passive = inner.asked.is_some();
        let carrier = inner.party.as_ref().and_then(|party| party.carrier());
        let has_none = carrier.is_some();
        let by_send = carrier.filter(|carrier| is_passive && carrier.is_by_send());
        let (waits, came) = (by_send.is_some(), by_send.is_some_and(Carrier::is_confirmed));
        let ends = matches!(event, ConnEvent::Disconnected { .. } | ConnEvent::Broken { .. });
        if inner.state == State::Pending && came && ends {
            // Established before it ended.
            self.confirm(&mut inner);
        }
        let next = match (inner.state, &event) {
            // The peer's application has not established it.
            (State::Pending, ConnEvent::Established(_)) if waits => return,
            (State::Pending, ConnEvent::Established(_)) => State::Connected,
            (State::Pending, ConnEvent::Rejected { .. } | ConnEvent::Failed(_)) => State::Over,
            (State::Pending, _) if waits => State::Over,
            (State::Connected, _) if ends => State::Disconnected,
            // The queue pair was destroyed before.
            _ => return,
        };
        inner.state = next;
        let mut event = match next {
            State::Over if ends => Event::failed(RDMA_CM_EVENT_REJECTED, libc::ECONNRESET),
            _ => Event::of(event, is_passive, inner.said()),
        };
        if has_none && !is_passive && event.kind == RDMA_CM_EVENT_ESTABLISHED {
            event.kind = RDMA_CM_EVENT_CONNECT_RESPONSE;
            inner.is_unconfirmed = true;
        }
        // Under the lock, so that no event is queued before it.
        self.queue_event(event);
    }

    fn confirm(self: &Arc<Self>, inner: &mut Inner) {
        inner.state = State::Connected;
        self.queue_event(Event::plain(RDMA_CM_EVENT_ESTABLISHED));
    }

    /// Its attempt to connect was refused at this end.
    pub(super) fn was_refused(self: &Arc<Self>, why: Errno) {
        let mut inner = lock(&self.inner);
        if inner.state == State::Pending {
            inner.state = State::Over;
            self.queue_event(Event::failed(RDMA_CM_EVENT_REJECTED, why.0));
        }
    }

    /// Its queue pair is destroyed, and the connection with it.
    pub(super) fn lost_queue_pair(self: &Arc<Self>) {
        let mut inner = lock(&self.inner);
        let (next, event) = match inner.state {
            State::Pending => {
                let kind = RDMA_CM_EVENT_CONNECT_ERROR;
                (State::Over, Event::failed(kind, libc::ECONNRESET))
            }
            State::Connected => (State::Disconnected, Event::plain(RDMA_CM_EVENT_DISCONNECTED)),
            _ => return,
        };
        inner.state = next;
        self.queue_event(event);
    }

    /// Moves to another channel with its queued events; waits for unacknowledged ones
    /// (rdma_migrate_id(3)).
    pub(super) fn migrate(self: &Arc<Self>, channel: Arc<Channel>, synchronous: bool) {
        {
            let mut place = lock(&self.place);
            let old = std::mem::replace(&mut place.channel, channel);
            place.synchronous = synchronous;
            for pending in old.remove(self) {
                place.channel.push(pending);
            }
        }
        self.acks.wait();
    }

    /// Ends its connection or listener, removes its queued events, and waits for unacknowledged ones
    /// (rdma_destroy_id(3)).
    pub(super) fn destroy(self: &Arc<Self>) {
        let queued = {
            let mut place = lock(&self.place);
            place.gone = true;
            place.channel.remove(self)
        };
        let left = {
            let mut inner = lock(&self.inner);
            let next = Inner::new(State::Over);
            std::mem::replace(&mut *inner, next)
        };
        if let Some(listener) = &left.listener {
            listener.close();
        }
        left.groups.iter().for_each(Group::leave);
        if let Some(party) = &left.party {
            party.detach();
        }
        if let (Some(question), Some(adapter)) = (&left.question, &left.adapter) {
            adapter.cm().stop_asking(&**question);
        }
        // Requests are rejected and sockets close.
        drop((queued, left));
        self.acks.wait();
    }
}

impl Confirmed for Id {
    fn on_confirmed(self: Arc<Self>) {
        let mut inner = lock(&self.inner);
        if inner.state == State::Pending && inner.asked.is_some() {
            self.confirm(&mut inner);
        }
    }
}
