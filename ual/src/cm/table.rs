//! The table of connections that are not established, of listeners, and of what ends: what to do
//! for each command, and for each socket and timer that is ready.
//!
//! Everything here is behind the desk's lock, so one thread touches it at a time: the connection
//! thread, or a caller that does its own. When a peer dies its entry goes at the end of its stream
//! or when its timer fires.
//!
//! What peers and callers make longer is in B-trees, here and in the reactor: they grow by small pieces,
//! for which the C library has a reserve. When there is no memory no connection is accepted.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use kal_shim::Reactor;
use kal_shim::clock::after;
use kal_shim::reactor::{Interest, Ready};
use kal_shim::sock::{self, KeepAlive, Options};
use vp_api::{AsyncEvent, Datagrams, NativeCm, QpId, RnicAttrs, Shortage, room};

use super::active::Active;
use super::counters::Counters;
use super::crowd::Crowd;
use super::ending::Ending;
use super::late::Late;
use super::listening::{Bound, Service};
use super::native::{Pending, Strays};
use super::offenders::Offenders;
use super::passive::Passive;
use super::service::{Services, unbind_services};
use super::{Command, Mailbox, requests};
use crate::handle::Handle;
use crate::policy::Policy;
use crate::resource::{Directory, Ep};

/// How long a listener rests when the process is out of descriptors or memory.
pub(super) const REST: Duration = Duration::from_millis(100);

/// How long a listener that cannot accept is silent about it.
const QUIET: Duration = Duration::from_secs(10);

/// Memory that must be there for a connection to be accepted: more than its start-up takes, and more than
/// a block of the reserve that the C library has for what is under way.
const START_UP: usize = 33 << 10;

/// Connections accepted per turn and socket, so that a flood starves nobody.
const ACCEPTS: usize = 64;

/// One thing that is watched.
pub(super) enum Entry {
    Active(Box<Active>),
    Passive(Box<Passive>),
    Late(Box<Late>),
    Ending(Ending),
    Native(Box<Pending>),
}

/// A listener.
pub(super) struct Listener {
    sockets: Vec<sock::Listener>,
    pub(super) service: Service,
    /// Start-ups without a whole request, and refusals that are not through.
    pub(super) crowd: Crowd,
    /// When it told last that it could not accept.
    told: Option<Instant>,
}

/// What the table shares with its callers.
pub(super) struct Shared {
    /// To itself.
    pub(super) mailbox: Mailbox,
    pub(super) counters: Arc<Counters>,
    pub(super) directory: Arc<Directory>,
    pub(super) attrs: RnicAttrs,
    pub(super) datagrams: Option<Arc<dyn Datagrams>>,
    pub(super) services: Arc<Services>,
}

pub(super) struct Table {
    pub(super) reactor: Reactor,
    pub(super) mailbox: Mailbox,
    pub(super) counters: Arc<Counters>,
    pub(super) directory: Arc<Directory>,
    /// Of the device.
    pub(super) attrs: RnicAttrs,
    pub(super) entries: BTreeMap<u64, Entry>,
    pub(super) listeners: BTreeMap<u64, Listener>,
    pub(super) offenders: Offenders,
    /// The entry of an endpoint that is connecting, accepting or disconnecting.
    pub(super) by_qp: BTreeMap<QpId, u64>,
    pub(super) native: Option<Arc<dyn NativeCm>>,
    /// Token and address of each listener of the provider's connection manager.
    pub(super) native_listeners: BTreeMap<u64, (u64, SocketAddr)>,
    /// Requests for listeners that are not in that list.
    pub(super) strays: Strays,
    /// The provider's datagrams, if it has any.
    pub(super) datagrams: Option<Arc<dyn Datagrams>>,
    /// Who asked services of other machines.
    pub(super) services: Arc<Services>,
    /// Token and address of each listener, by the tokens of service requests.
    pub(super) service_listeners: BTreeMap<u64, (u64, SocketAddr)>,
    next: u64,
}

impl Table {
    pub(super) fn new(reactor: Reactor, shared: Shared, native: Option<Arc<dyn NativeCm>>) -> Self {
        let Shared { mailbox, counters, directory, attrs, datagrams, services } = shared;
        Self {
            reactor,
            mailbox,
            counters,
            directory,
            attrs,
            entries: BTreeMap::new(),
            listeners: BTreeMap::new(),
            offenders: Offenders::default(),
            by_qp: BTreeMap::new(),
            native,
            native_listeners: BTreeMap::new(),
            strays: Strays::default(),
            datagrams,
            services,
            service_listeners: BTreeMap::new(),
            next: 0,
        }
    }

    pub(super) fn on_command(&mut self, command: Command) {
        match command {
            Command::Connect { ep, params, policy, started } => {
                self.on_connect(ep, *params, policy, started);
            }
            Command::Convert { ep, conversion } => self.on_convert(&ep, *conversion),
            Command::Accept { token, ep, params } => self.on_accept(token, &ep, &params),
            Command::Reject { token, private_data } => self.on_reject(token, &private_data),
            Command::Handoff { token, to } => self.on_handoff(token, to),
            Command::Adopt { listener, passive } => self.on_adopt(listener, passive),
            Command::Listen { bound, service } => self.on_listen(bound, *service),
            Command::Native { told, event } => self.on_native(told, event),
            Command::Service(event) => self.on_service(event),
            Command::Answered { token } => self.drop_entry(token),
            Command::Unlisten { token } => self.on_unlisten(token),
            Command::Cancel { qp, stream } => self.on_cancel(qp, stream),
            Command::Disconnecting { ep, stream, how } => self.on_disconnecting(&ep, stream, how),
            Command::Forget { qp } => self.drop_of(qp),
            Command::Async { told, source, event } => self.on_async(told, source, event),
        }
    }

    pub(super) fn on_ready(&mut self, ready: Ready) {
        match ready {
            Ready::Io { token } => self.on_io(token),
            Ready::Timer { token } => self.on_timer(token),
        }
    }

    fn on_io(&mut self, token: u64) {
        if self.listeners.contains_key(&token) {
            return self.on_incoming(token);
        }
        match self.entries.remove(&token) {
            Some(Entry::Active(active)) => self.advance_active(token, active),
            Some(Entry::Passive(passive)) => self.advance_passive(token, passive),
            Some(Entry::Late(late)) => self.advance_late(token, late),
            // Nothing of theirs is watched.
            Some(other @ (Entry::Ending(_) | Entry::Native(_))) => {
                self.entries.insert(token, other);
            }
            None => {}
        }
    }

    fn on_timer(&mut self, token: u64) {
        if self.listeners.contains_key(&token) {
            return self.resume(token);
        }
        match self.entries.remove(&token) {
            Some(Entry::Active(active)) => self.expire_active(token, *active),
            Some(Entry::Passive(passive)) => self.expire_passive(token, passive),
            Some(Entry::Late(late)) => self.expire_late(token, *late),
            Some(Entry::Ending(ending)) => self.expire_ending(ending),
            Some(Entry::Native(pending)) => self.expire_native(token, *pending),
            None => {}
        }
    }

    fn on_listen(&mut self, bound: Bound, service: Service) {
        let Bound { id, sockets, native, services, .. } = bound;
        let token = id.0;
        let ids = services.into_iter().map(|(id, address)| (id, (token, address)));
        self.service_listeners.extend(ids);
        let ids = native.into_iter().map(|(id, address)| (id, (token, address)));
        self.native_listeners.extend(ids);
        let options = options(&service.policies.default);
        for socket in &sockets {
            if let Err(error) = options.apply_listening(&socket.socket, socket.address) {
                tracing::warn!("not all TCP options are set on {}: {error}", socket.address);
            }
        }
        let (crowd, told) = (Crowd::default(), None);
        self.listeners.insert(token, Listener { sockets, service, crowd, told });
        self.deliver_strays();
    }

    /// A listener has rested: watches it again, or lets it rest once more.
    pub(super) fn resume(&mut self, token: u64) {
        let Some(listener) = self.listeners.get(&token) else { return };
        let watch =
            |socket: &sock::Listener| self.reactor.add(&socket.socket, token, Interest::READ);
        let refused = |socket: &sock::Listener| Some((socket.address, watch(socket).err()?));
        if let Some((address, error)) = listener.sockets.iter().find_map(refused) {
            self.rest(token, address, lack(&error));
        }
    }

    /// Accepts what waits at a listener.
    fn on_incoming(&mut self, token: u64) {
        let Some(listener) = self.listeners.get(&token) else { return };
        let options = options(&listener.service.policies.default);
        let mut found = Vec::new();
        let mut short = None;
        for socket in &listener.sockets {
            for _ in 0..ACCEPTS {
                if room::try_list::<u8>(START_UP).is_none() {
                    short = Some((socket.address, Shortage::Memory));
                    break;
                }
                match sock::accept(socket, &options) {
                    Ok(Some(connection)) => found.push(connection),
                    Ok(None) => break,
                    Err(error) => {
                        if let Some(lacks) = sock::shortage(&error) {
                            short = Some((socket.address, lacks));
                            break;
                        }
                        // The peer left between its connect and our accept.
                        tracing::debug!("accept on {}: {error}", socket.address);
                    }
                }
            }
        }
        if let Some((address, lacks)) = short {
            self.rest(token, address, lacks);
        }
        for (socket, peer) in found {
            self.begin_passive(token, socket, peer);
        }
    }

    /// Stops watching a listener that cannot accept at this address until its timer fires: its sockets
    /// would stay readable.
    pub(super) fn rest(&mut self, token: u64, address: SocketAddr, lacks: Shortage) {
        let Some(listener) = self.listeners.get_mut(&token) else { return };
        for socket in &listener.sockets {
            // Not watched any more is fine.
            let _ = self.reactor.remove(&socket.socket);
        }
        self.reactor.set_timer(token, after(REST));
        let now = Instant::now();
        if listener.told.is_none_or(|told| now.duration_since(told) >= QUIET) {
            listener.told = Some(now);
            let event = AsyncEvent::ListenShortage { listener: address, lacks };
            tracing::warn!("{event}");
            self.unaffiliated(None, event);
        }
    }

    fn on_unlisten(&mut self, token: u64) {
        self.reactor.clear_timer(token);
        if let Some(listener) = self.listeners.remove(&token) {
            for token in listener.crowd.tokens() {
                // Who is being refused still hears of it.
                let unheard = |entry: &Entry| matches!(entry, Entry::Passive(p) if p.is_unheard());
                if self.entries.get(&token).is_some_and(unheard) {
                    self.drop_entry(token);
                }
            }
        }
        let of_it = |(_, place): &(&u64, &(u64, SocketAddr))| place.0 == token;
        let ids: Vec<u64> = self.native_listeners.iter().filter(of_it).map(|(id, _)| *id).collect();
        for id in ids {
            self.native_listeners.remove(&id);
            self.strays.ended(id);
            if let Some(native) = &self.native {
                // It knows the id; at worst it has forgotten it.
                let _ = native.unlisten(id);
            }
        }
        let mut gone = Vec::new();
        self.service_listeners.retain(|id, place| {
            if place.0 == token {
                gone.push(*id);
            }
            place.0 != token
        });
        if let Some(datagrams) = &self.datagrams {
            unbind_services(&**datagrams, gone.into_iter());
        }
    }

    /// A token for a new entry; never used again.
    pub(super) fn new_token(&mut self) -> u64 {
        // Even: listeners have the odd ones.
        self.next += 2;
        self.next
    }

    /// Forgets an entry; its socket closes with it.
    pub(super) fn drop_entry(&mut self, token: u64) {
        self.reactor.clear_timer(token);
        if let Some(socket) = self.entries.remove(&token).as_ref().and_then(Entry::socket) {
            // Its close is not enough if the application kept a second descriptor of it.
            let _ = self.reactor.remove(socket);
        }
    }

    /// Forgets what an endpoint has here.
    pub(super) fn drop_of(&mut self, qp: QpId) {
        if let Some(token) = self.by_qp.remove(&qp) {
            self.drop_entry(token);
        }
    }

    /// Gives up the socket of an entry that is over or becomes the provider's.
    pub(super) fn unwatch(&mut self, token: u64, socket: impl AsFd) {
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
    fn socket(&self) -> Option<&OwnedFd> {
        match self {
            Self::Active(active) => Some(active.socket()),
            Self::Passive(passive) => Some(passive.socket()),
            Self::Late(late) => Some(late.socket()),
            Self::Ending(_) | Self::Native(_) => None,
        }
    }

    /// The request that the application has.
    fn request(&self) -> Option<Handle> {
        match self {
            Self::Passive(passive) => passive.request(),
            Self::Native(pending) => pending.request(),
            Self::Active(_) | Self::Late(_) | Self::Ending(_) => None,
        }
    }
}

/// The endpoint, if it is still open.
pub(super) fn open(ep: &Weak<Ep>) -> Option<Arc<Ep>> {
    ep.upgrade().filter(|ep| ep.is_open())
}

/// What there is none of if the kernel does not watch a socket.
fn lack(error: &io::Error) -> Shortage {
    sock::shortage(error).unwrap_or(Shortage::Memory)
}

/// TCP options of a policy (CONN-14).
pub(super) fn options(policy: &Policy) -> Options {
    Options {
        keep_alive: policy.keep_alive.map(|idle| KeepAlive {
            idle,
            interval: policy.keep_alive_interval,
            count: policy.keep_alive_count,
        }),
        user_timeout: policy.user_timeout,
        congestion: policy.congestion.clone(),
        buffer: policy.socket_buffer,
        dscp: policy.dscp,
    }
}
