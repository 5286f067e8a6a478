//! Listeners: addresses that are bound, that are listened on, and what becomes of connections to them.
//!
//! A [`Bound`] and a [`Listening`] belong to their caller, a [`Listener`] to the table. Each gives back
//! what it holds when it is dropped.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Instant;

use kal_shim::sock;
use vp_api::{Datagrams, NativeCm};

use crate::face::RequestSink;
use crate::half_open::HalfOpen;
use crate::policy::{Policies, Policy};
use crate::types::ListenerId;

/// Connections that the kernel may hold for us before they are accepted.
pub(crate) const BACKLOG: u32 = 1024;

/// What a listener takes requests for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Serves {
    /// Connections.
    #[default]
    Connections,
    /// Queue pairs that take datagrams.
    Datagrams,
    /// Both, where the transport has datagrams.
    Both,
}

/// Addresses with one port, to listen on or to connect from later: nobody else gets them. A provider with a
/// connection manager of its own has no such step: there they are taken when somebody listens, and port 0
/// stays 0 until then.
pub struct Bound {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) serves: Serves,
    pub(crate) sockets: Vec<sock::Listener>,
    /// Any port will do.
    pub(crate) any_port: bool,
}

impl Bound {
    /// Where it is, with the real port.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// Addresses that peers reach; their requests wait for [`Cm::serve`](crate::Cm::serve).
pub struct Listening {
    pub(crate) id: ListenerId,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) sockets: Vec<sock::Listener>,
    pub(crate) native: Vec<NativeListener>,
    pub(crate) services: Vec<ServiceListener>,
}

impl Listening {
    /// The name that its requests carry.
    pub fn id(&self) -> ListenerId {
        self.id
    }

    /// Where it listens, with the real port.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// An address at the provider's own connection manager.
pub(crate) struct NativeListener {
    pub(crate) manager: Arc<dyn NativeCm>,
    /// The provider's name for it.
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
}

impl Drop for NativeListener {
    fn drop(&mut self) {
        // It knows the id; at worst it has forgotten it.
        let _ = self.manager.unlisten(self.id);
    }
}

/// An address where services for datagrams are answered for.
pub(crate) struct ServiceListener {
    pub(crate) datagrams: Arc<dyn Datagrams>,
    /// What requests to it carry.
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
}

impl Drop for ServiceListener {
    fn drop(&mut self) {
        // It knows the id; at worst it has forgotten it.
        let _ = self.datagrams.unlisten(self.id);
    }
}

/// Who gets the requests, and how they are treated.
pub(crate) struct Service {
    pub(crate) sink: Weak<dyn RequestSink>,
    pub(crate) policies: Policies,
    pub(crate) suppress_ird_ord: bool,
    pub(crate) port: u16,
}

impl Service {
    /// How connections from an address are treated.
    pub(crate) fn policy(&self, peer: IpAddr) -> Policy {
        let mut policy = self.policies.of(peer).clone();
        policy.negotiate_ird_ord &= !self.suppress_ird_ord;
        policy
    }
}

/// A listener in the table.
pub(crate) struct Listener {
    pub(crate) sockets: Vec<sock::Listener>,
    pub(crate) service: Service,
    /// Start-ups without a whole request, and refusals that are not through.
    pub(crate) half_open: HalfOpen,
    /// When it told last that it could not accept.
    pub(crate) told: Option<Instant>,
}
