//! Listeners: where connection requests come in.
//!
//! The Listen owns its place in the connection thread, which owns the sockets.

use std::net::SocketAddr;
use std::sync::Arc;

pub use ual_cm::Serves;
use ual_cm::{Bound, ListenerId, Policies, Policy, RequestSink};

use super::Ia;
use crate::cm::{ConnRequest, ServiceRequest};
use crate::error::{Object, Result};
use crate::event::{Evd, Event, Stream};
use crate::life::{Hold, Life, Living};
use crate::tag::Tag;

/// For listening.
#[derive(Clone, Debug)]
pub struct ListenInit {
    /// Addresses, all with the same port. Port 0: a free one, the same for all. `[::]` takes IPv4
    /// too.
    pub addresses: Vec<SocketAddr>,
    /// Where the requests go: a [`Stream::Request`] dispatcher. Requests beyond its depth are
    /// rejected.
    pub evd: Arc<Evd>,
    /// Policy for its connections; `None`: the Ia's for the peer.
    pub policy: Option<Policy>,
    /// Leave IRD and ORD out of the replies: the applications agree on them by other means.
    pub suppress_ird_ord: bool,
    /// What the requests are for.
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
    ia: Hold<Ia>,
    evd: Hold<Evd>,
}

impl Ia {
    /// Listens for connection requests.
    pub fn listen(self: &Arc<Self>, init: ListenInit) -> Result<Arc<Listen>> {
        Listen::new(self, init)
    }

    /// Listens on what is bound; the addresses in `init`, and what it serves, do not count.
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

    /// On what is bound already.
    fn on(ia: &Arc<Ia>, bound: Bound, init: ListenInit) -> Result<Arc<Self>> {
        init.evd.check_stream(Stream::Request)?;
        let ia = Hold::new(ia)?;
        let evd = Hold::new(&init.evd)?;
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

    /// Where it listens, with the real port.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The name that its requests carry.
    pub fn id(&self) -> ListenerId {
        self.id
    }

    /// What the face above knows it by.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Where its requests go.
    pub fn evd(&self) -> &Arc<Evd> {
        self.evd.arc()
    }

    /// Its Ia.
    pub fn ia(&self) -> &Arc<Ia> {
        self.ia.arc()
    }

    /// Stops listening. Start-ups without a whole request are dropped; requests already delivered
    /// can still be answered.
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
        // Closed already, or nobody can use it any more; either way there is nobody to tell.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listen({:?})", self.addresses)
    }
}
