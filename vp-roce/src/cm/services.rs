//! Datagram services: the listeners, the requests of peers, and this end's requests to other services, of all RNICs of
//! the process. A request and its reply are one message each (InfiniBand's SIDR).
//!
//! Owner: the engine. Calls come from any thread, messages from the thread that receives, time-outs from the engine's
//! thread; the consumer's handler is called with no lock held. If a peer dies, a request to it fails by its time-out,
//! and a reply to it is lost. A reply is kept for as long as the peer repeats its request. Full: a service with as many
//! undecided requests as its backlog drops further ones, and the oldest replies are forgotten.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use kal_os::lock;
use roce_proto::cm::mad::Mad;
use roce_proto::cm::sidr::Lookup;
use vp_api::{ServiceEvent, ServiceHandler};

use super::listeners::Listeners;
use crate::engine::Socket;

/// The handler of an RNIC's service events.
#[derive(Default)]
pub(crate) struct Ears {
    handler: RwLock<Option<Arc<dyn ServiceHandler>>>,
    /// The RNIC is closed.
    closed: AtomicBool,
}

impl Ears {
    pub(crate) fn set(&self, handler: Option<Arc<dyn ServiceHandler>>) {
        *self.handler.write().unwrap_or_else(PoisonError::into_inner) = handler;
    }

    /// Calls the handler, if there is one. Called without locks.
    pub(crate) fn tell(&self, event: ServiceEvent) {
        let handler = self.handler.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(handler) = handler {
            handler.on_service(event);
        }
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.set(None);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// A request of this end to a service.
pub(super) struct Asking {
    pub(super) ears: Arc<Ears>,
    pub(super) token: u64,
    pub(super) lookup: Lookup,
    pub(super) socket: Arc<Socket>,
    pub(super) peer: SocketAddr,
}

/// A request of a peer to a service of this end.
pub(super) struct Asked {
    pub(super) ears: Arc<Ears>,
    pub(super) listener: u64,
    pub(super) socket: Arc<Socket>,
    pub(super) from: IpAddr,
    pub(super) mad: Mad,
    /// The peer's id of the request.
    pub(super) id: u32,
    /// The reply, and until when it is kept.
    pub(super) reply: Option<(Mad, u64)>,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) last: u64,
    /// With the consumer's token.
    pub(super) listeners: Listeners<(Arc<Ears>, u64)>,
    pub(super) asking: BTreeMap<u32, Asking>,
    pub(super) asked: BTreeMap<u64, Asked>,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Services(pub(super) Mutex<Inner>);

impl Asking {
    pub(super) fn send(&mut self) {
        while let Some(mad) = self.lookup.poll_transmit() {
            self.socket.send_message(self.peer.ip(), &mad);
        }
    }
}

impl Services {
    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<u64> {
        let inner = lock(&self.0);
        let asking = inner.asking.values().filter_map(|one| one.lookup.deadline());
        let kept =
            inner.asked.values().filter_map(|one| one.reply.as_ref().map(|(_, until)| *until));
        asking.chain(kept).min()
    }

    /// Closes an RNIC: its services end, and so do its requests.
    pub(crate) fn close(&self, ears: &Arc<Ears>) {
        ears.close();
        let mut inner = lock(&self.0);
        inner.listeners.remove(|_, (owner, _)| Arc::ptr_eq(owner, ears));
        inner.asking.retain(|_, one| !Arc::ptr_eq(&one.ears, ears));
        inner.asked.retain(|_, one| !Arc::ptr_eq(&one.ears, ears));
    }
}
