//! Listeners: addresses that accept connection requests.
//!
//! The Listen owns its entry in the connection table, which owns the sockets.

use std::net::SocketAddr;
use std::sync::Arc;

pub use ual_cm::Serves;
use ual_cm::{Bound, ListenerId, Policies, Policy, RequestSink};

use super::Ia;
use crate::cm::{ConnRequest, ServiceRequest};
use crate::error::{Object, Result};
use crate::event::{Evd, Event, Stream};
use crate::life::{InUse, Life, Living};
use crate::tag::Tag;

/// For listening.
#[derive(Clone, Debug)]
pub struct ListenInit {
    /// Addresses, all with the same port. Port 0: a free one, the same for all. `[::]` takes IPv4
    /// too.
    pub addresses: Vec<SocketAddr>,
    /// The dispatcher of its requests: a [`Stream::Request`] dispatcher. Requests beyond its depth are
    /// rejected.
    pub evd: Arc<Evd>,
    /// Policy for its connections; `None`: the Ia's for the peer.
    pub policy: Option<Policy>,
    /// Leave IRD and ORD out of the replies: the applications agree on them otherwise.
    pub suppress_ird_ord: bool,
    /// The kinds of requests.
    pub serves: Serves,
}

impl ListenInit {
    /// One address, the Ia's policy, IRD and ORD negotiated, connections.
    pub fn new(address: SocketAddr, evd: &Arc<Evd>) -> Self {
        Self {
            addresses: vec![address],
            evd: evd.clone(),
            policy: None,
            suppress_ird_ord: false,
            serves: Serves::Connections,
        }
    }
}

/// Listener (IT-API `it_listen_create`).
pub struct Listen {
    id: ListenerId,
    addresses: Vec<SocketAddr>,
    life: Life,
    tag: Tag,
    ia: InUse<Ia>,
    evd: InUse<Evd>,
}

impl Ia {
    /// Listens for connection requests.
    pub fn listen(self: &Arc<Self>, init: ListenInit) -> Result<Arc<Listen>> {
        Listen::new(self, init)
    }

    /// Listens on bound addresses; the addresses in `init`, and the kinds of requests, are ignored.
    pub fn listen_on(self: &Arc<Self>, bound: Bound, init: ListenInit) -> Result<Arc<Listen>> {
        Listen::on(self, bound, init)
    }
}

impl Listen {
    fn new(ia: &Arc<Ia>, init: ListenInit) -> Result<Arc<Self>> {
        if init.serves == Serves::Datagrams {
            ia.datagrams("listen for datagrams")?;
        }
        init.evd.check_stream(Stream::Request)?;
        let bound = ia.cm().bind(&init.addresses, init.serves)?;
        Self::on(ia, bound, init)
    }

    /// On addresses that are bound already.
    fn on(ia: &Arc<Ia>, bound: Bound, init: ListenInit) -> Result<Arc<Self>> {
        init.evd.check_stream(Stream::Request)?;
        let ia = InUse::new(ia)?;
        let evd = InUse::new(&init.evd)?;
        let policies = init.policy.map_or_else(|| ia.policies().clone(), Policies::from);
        let listening = ia.cm().listen(bound)?;
        let listen = Arc::new(Self {
            id: listening.id(),
            addresses: listening.addresses().to_vec(),
            life: Life::new(Object::Listen),
            tag: Tag::default(),
            ia,
            evd,
        });
        let sink: Arc<dyn RequestSink> = listen.clone();
        listen.ia.cm().serve(listening, &sink, policies, init.suppress_ird_ord);
        Ok(listen)
    }

    /// Its addresses, with the real port.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The id that its requests carry.
    pub fn id(&self) -> ListenerId {
        self.id
    }

    /// The face's number for it.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// The dispatcher of its requests.
    pub fn evd(&self) -> &Arc<Evd> {
        self.evd.arc()
    }

    /// Its Ia.
    pub fn ia(&self) -> &Arc<Ia> {
        self.ia.arc()
    }

    /// Stops listening. Start-ups without a whole request are dropped; requests already delivered can
    /// still be accepted or rejected.
    pub fn close(&self) -> Result<()> {
        self.life.close()?;
        self.ia.cm().unlisten(self.id);
        self.evd.release();
        self.ia.release();
        Ok(())
    }
}

impl RequestSink for Listen {
    fn request(self: Arc<Self>, request: ConnRequest) -> bool {
        self.evd.push_bounded(Event::Request(Box::new(request)))
    }

    fn service_request(self: Arc<Self>, request: ServiceRequest) -> bool {
        self.evd.push_bounded(Event::ServiceRequest(Box::new(request)))
    }
}

impl Living for Listen {
    fn life(&self) -> &Life {
        &self.life
    }
}

impl Drop for Listen {
    fn drop(&mut self) {
        // It is closed already, or can no longer be used; either way the error concerns no one.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listen({:?})", self.addresses)
    }
}
