//! Services for datagrams: the provider resolves them, here its events find their listeners and
//! those who ask.
//!
//! Callers answer and ask for themselves. The connection thread owns what waits for the
//! application's answer, and rejects it when the policy's `answer_timeout` is over; the list of open
//! questions is behind a mutex. A peer that gives up is not noticed: the answer goes nowhere.
//!
//! Where the transport has them (`vp_api::Datagrams`), a listener's dispatcher gets requests for
//! queue pairs beside those for connections, and `ual::cm::reply` answers either from any thread;
//! who asked (`UdService`) gets the answer where connection events go. The connection thread only
//! routes: a request that nobody answers is rejected after the policy's `answer_timeout`, one
//! without room at once.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kal_shim::clock::after;
use vp_api::{DatagramPath, Datagrams, ServiceEvent, ServiceHandler, ServiceRefusal, UdAddress};

use super::native::Pending;
use super::requests::{Asker, Waiting};
use super::table::{Entry, Table};
use super::{Cm, Command, ListenerId, Mailbox, PrivateData, RequestId, busy_or_verb, requests};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::node::{Ends, Node};
use crate::resource::{Listen, UdService};

/// Requests that the provider may hold for us.
const BACKLOG: u32 = 1024;
/// Free ports of connections that are tried until one is free for datagrams, too.
pub(super) const TRIES: usize = 16;

/// Someone asks for a queue pair that takes datagrams (IT-API
/// `IT_CM_REQ_UD_SERVICE_REQUEST_EVENT`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServiceRequest {
    /// To answer it by: [`reply`].
    pub request: RequestId,
    /// The listener, while it is open.
    pub listen: Weak<Listen>,
    /// The listener's name.
    pub listener: ListenerId,
    /// The listener's port (IT-API: the connection qualifier).
    pub port: u16,
    /// Both ends; `remote` is who asks.
    pub ends: Ends,
    /// The local port, as an index into [`crate::Ia::ports`].
    pub spigot: u32,
    /// The peer's private data.
    pub private_data: Vec<u8>,
}

/// What came of asking a service (IT-API `IT_CM_MSG_UD_SERVICE_REPLY_EVENT`).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ServiceReply {
    /// A queue pair that takes datagrams, and the way there.
    Resolved {
        /// Its number and key.
        address: UdAddress,
        /// For an address handle.
        path: DatagramPath,
        /// From the application there.
        private_data: Vec<u8>,
    },
    /// The service, or the machine there, refused.
    Refused {
        /// Why.
        why: ServiceRefusal,
        /// From the application there.
        private_data: Vec<u8>,
    },
    /// No answer.
    Failed(String),
}

impl fmt::Display for ServiceReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolved { address, .. } => {
                write!(f, "the service gave queue pair {:#x}", address.qpn)
            }
            Self::Refused { why, .. } => f.write_str(match why {
                ServiceRefusal::NotSupported => "nobody there answers for this service",
                ServiceRefusal::Rejected => "the service refused",
                ServiceRefusal::NoQueuePair => "the service has no queue pair to give",
                ServiceRefusal::Redirected => "the service is at another address",
            }),
            Self::Failed(reason) => write!(f, "no answer from the service: {reason}"),
        }
    }
}

/// Open questions, by token.
#[derive(Default)]
pub(super) struct Services {
    next: AtomicU64,
    asked: Mutex<BTreeMap<u64, Weak<UdService>>>,
}

impl Services {
    fn token(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn asked(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<UdService>>> {
        // Nothing panics while the lock is held.
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, token: u64) -> Option<Arc<UdService>> {
        self.asked().remove(&token)?.upgrade()
    }
}

impl ServiceHandler for Mailbox {
    fn on_service(&self, event: ServiceEvent) {
        self.send(Command::Service(event));
    }
}

/// Answers a request with a queue pair, or says why not (IT-API `it_ud_service_reply`).
pub fn reply(
    request: RequestId,
    answer: std::result::Result<UdAddress, ServiceRefusal>,
    private_data: &[u8],
) -> Result<()> {
    let Asker { datagrams, request } = requests::claim_to_reply(request, private_data.len())?;
    let answered = match answer {
        Ok(address) => datagrams.accept(request, address, private_data),
        Err(why) => datagrams.reject(request, why, private_data),
    };
    answered.map_err(Error::verb("answer a service request"))
}

impl Cm {
    /// Answers for services at these addresses, or at none; the tokens that requests carry.
    pub(super) fn bind_services(
        &self,
        datagrams: &dyn Datagrams,
        addresses: &[SocketAddr],
    ) -> Result<Vec<(u64, SocketAddr)>> {
        let mut bound: Vec<(u64, SocketAddr)> = Vec::new();
        for address in addresses {
            let port = bound.first().map_or(address.port(), |(_, first)| first.port());
            let token = self.services.token();
            match datagrams.listen(token, SocketAddr::new(address.ip(), port), BACKLOG) {
                Ok(real) => bound.push((token, real)),
                Err(error) => {
                    unbind_services(datagrams, bound.iter().map(|(token, _)| *token));
                    let what = format!("answer for services at {address}");
                    return Err(busy_or_verb("answer for services", what, error));
                }
            }
        }
        Ok(bound)
    }

    /// Asks a service.
    pub(crate) fn ask(&self, service: &Arc<UdService>) -> Result<()> {
        let datagrams = service.ia().datagrams("ask a service")?;
        let token = self.services.token();
        self.services.asked().insert(token, Arc::downgrade(service));
        let init = service.init();
        datagrams.resolve(token, init.peer, &init.private_data).map_err(|error| {
            self.services.asked().remove(&token);
            Error::verb("ask a service")(error)
        })
    }

    /// Gives up what a service was asked.
    pub(crate) fn stop_asking(&self, service: &UdService) {
        let mut open = Vec::new();
        self.services.asked().retain(|token, asked| {
            let of_it = std::ptr::eq(asked.as_ptr(), std::ptr::from_ref(service));
            if of_it {
                open.push(*token);
            }
            !of_it
        });
        if let Ok(datagrams) = service.ia().datagrams("give up asking") {
            // It may be answered in this moment.
            open.into_iter().for_each(|token| drop(datagrams.cancel(token)));
        }
    }
}

pub(super) fn unbind_services(datagrams: &dyn Datagrams, tokens: impl Iterator<Item = u64>) {
    for token in tokens {
        // It knows the token; at worst it has forgotten it.
        let _ = datagrams.unlisten(token);
    }
}

impl Table {
    pub(super) fn on_service(&mut self, event: ServiceEvent) {
        let (token, reply) = match event {
            ServiceEvent::Request { listener, request, peer, port, private_data } => {
                return self.on_service_request(listener, request, peer, port, private_data);
            }
            ServiceEvent::Resolved { token, address, path, private_data } => {
                (token, ServiceReply::Resolved { address, path, private_data })
            }
            ServiceEvent::Refused { token, why, private_data } => {
                (token, ServiceReply::Refused { why, private_data })
            }
            ServiceEvent::Failed { token, reason } => (token, ServiceReply::Failed(reason)),
            other => return tracing::warn!("unknown event of the provider: {other:?}"),
        };
        // Whoever closed it does not want to know.
        if let Some(service) = self.services.finish(token) {
            let event =
                Event::ServiceReply { service: Arc::downgrade(&service), reply: Box::new(reply) };
            service.init().evd.push_connection(event, || service.is_open());
        }
    }

    fn on_service_request(
        &mut self,
        token: u64,
        request: u64,
        peer: SocketAddr,
        spigot: u32,
        private_data: Vec<u8>,
    ) {
        let Some(datagrams) = self.datagrams.clone() else { return };
        let Some((listener, address)) = self.service_listeners.get(&token).copied() else {
            return refuse(&*datagrams, request, ServiceRefusal::NotSupported);
        };
        let ends = Ends { local: Node::local(address), remote: Node::remote(peer, None) };
        let asked = Asked { request, spigot, private_data, ends };
        self.offer_service(listener, &datagrams, asked);
    }

    /// Gives a request to the dispatcher of a listener.
    pub(super) fn offer_service(
        &mut self,
        listener: u64,
        datagrams: &Arc<dyn Datagrams>,
        asked: Asked,
    ) {
        let token = self.new_token();
        let handle = requests::add(Waiting {
            owner: self.mailbox.clone(),
            token,
            most: PrivateData::all(datagrams.attrs().max_private_reply as usize),
            local: asked.ends.local.address,
            native: None,
            asker: Some(Asker { datagrams: datagrams.clone(), request: asked.request }),
        });
        let service = self.listeners.get(&listener).map(|listener| &listener.service);
        let policy = service.map(|service| service.policy(asked.ends.remote.address.ip()));
        let event = service.map(|service| ServiceRequest {
            request: RequestId(handle),
            listen: service.listen.clone(),
            listener: ListenerId(listener),
            port: service.port,
            ends: asked.ends.clone(),
            spigot: asked.spigot,
            private_data: asked.private_data.clone(),
        });
        let evd = service.and_then(|service| service.evd.upgrade());
        let delivered = evd
            .zip(event)
            .is_some_and(|(evd, event)| evd.push_bounded(Event::ServiceRequest(Box::new(event))));
        match policy.filter(|_| delivered) {
            Some(policy) => {
                self.reactor.set_timer(token, after(policy.answer_timeout));
                let pending = Pending::Service { handle, asked };
                self.entries.insert(token, Entry::Native(Box::new(pending)));
            }
            None => {
                requests::remove(handle);
                refuse(&**datagrams, asked.request, ServiceRefusal::NoQueuePair);
            }
        }
    }
}

/// A request as it came.
pub(super) struct Asked {
    pub(super) request: u64,
    pub(super) spigot: u32,
    pub(super) private_data: Vec<u8>,
    pub(super) ends: Ends,
}

pub(super) fn refuse(datagrams: &dyn Datagrams, request: u64, why: ServiceRefusal) {
    if let Err(error) = datagrams.reject(request, why, &[]) {
        tracing::debug!("refuse a service request: {error}");
    }
}
