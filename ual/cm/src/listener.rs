//! Listeners: bound addresses, addresses that are listened on, and the service that gets the requests.
//!
//! A [`Bound`] and a [`Listening`] belong to their caller, a [`Listener`] to the table. Each releases
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

/// Connections that the kernel may hold before they are accepted.
pub(crate) const BACKLOG: u32 = 1024;

/// The kinds of requests that a listener takes.
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

/// Addresses with one port, reserved to listen on or to connect from later. A provider with a connection
/// manager of its own has no such step: there they are reserved by listening, and port 0 stays 0 until
/// then.
pub struct Bound {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) serves: Serves,
    pub(crate) sockets: Vec<sock::Listener>,
    /// The caller asked for any free port.
    pub(crate) any_port: bool,
    /// Another adapter serves the addresses, too.
    pub(crate) is_aside: bool,
}

impl Bound {
    /// The addresses, with the real port.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// To serve requests for queue pairs that take datagrams instead of connections.
    pub fn for_datagrams(self) -> Self {
        Self { serves: Serves::Datagrams, ..self }
    }

    /// To serve requests in case they come by this adapter, while another one serves the same addresses.
    pub fn aside(self) -> Self {
        Self { is_aside: true, ..self }
    }
}

/// Addresses that peers can connect to; their requests wait for [`Cm::serve`](crate::Cm::serve).
pub struct Listening {
    pub(crate) id: ListenerId,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) sockets: Vec<sock::Listener>,
    pub(crate) native: Vec<NativeListener>,
    pub(crate) services: Vec<ServiceListener>,
}

impl Listening {
    /// The id that its requests carry.
    pub fn id(&self) -> ListenerId {
        self.id
    }

    /// The addresses, with the real port.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// An address at the provider's own connection manager.
pub(crate) struct NativeListener {
    pub(crate) manager: Arc<dyn NativeCm>,
    /// The provider's id for it.
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
}

impl Drop for NativeListener {
    fn drop(&mut self) {
        // The provider knows the id, or has dropped it already.
        let _ = self.manager.unlisten(self.id);
    }
}

/// An address at the provider's datagram service.
pub(crate) struct ServiceListener {
    pub(crate) datagrams: Arc<dyn Datagrams>,
    /// The id that its requests carry.
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
}

impl Drop for ServiceListener {
    fn drop(&mut self) {
        // The provider knows the id, or has dropped it already.
        let _ = self.datagrams.unlisten(self.id);
    }
}

/// The receiver of the requests, and the policies for them.
pub(crate) struct Service {
    pub(crate) sink: Weak<dyn RequestSink>,
    pub(crate) policies: Policies,
    pub(crate) suppress_ird_ord: bool,
    pub(crate) port: u16,
}

impl Service {
    /// The policy for connections from an address.
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
    /// Start-ups without a whole request, and refusals that are not complete.
    pub(crate) half_open: HalfOpen,
    /// When it last reported that it could not accept.
    pub(crate) warned_at: Option<Instant>,
}
