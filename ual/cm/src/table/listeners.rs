//! Listeners in the table: accepting connections, and pausing when there are no descriptors or memory.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use kal_shim::clock::after;
use kal_shim::reactor::Interest;
use kal_shim::sock;
use vp_api::{AsyncEvent, EventSource, Shortage, room};

use super::{ConnectionTable, Entry};
use crate::deliveries::{Delivery, Origin};
use crate::face::RequestSink;
use crate::half_open::HalfOpen;
use crate::listener::{Listener, Listening, Service};
use crate::requests;
use crate::startup::tcp::options;
use crate::tuning::{ACCEPTS, PAUSE, SHORTAGE_REPORTS, START_UP_MEMORY};

impl ConnectionTable {
    pub(super) fn on_listen(&mut self, listening: Listening, service: Service) {
        let Listening { id, sockets, native, services, .. } = listening;
        let token = id.0;
        self.service_listeners
            .extend(services.into_iter().map(|service| (service.id, (token, service))));
        self.native_listeners.extend(native.into_iter().map(|native| (native.id, (token, native))));
        let options = options(&service.policies.default);
        for socket in &sockets {
            if let Err(error) = options.apply_listening(&socket.socket, socket.address) {
                tracing::warn!("not all TCP options are set on {}: {error}", socket.address);
            }
        }
        let (half_open, warned_at) = (HalfOpen::default(), None);
        self.listeners.insert(token, Listener { sockets, service, half_open, warned_at });
        self.deliver_unmatched();
    }

    /// The pause of a listener is over: it is watched again, or pauses once more.
    pub(crate) fn resume(&mut self, token: u64) {
        let Some(listener) = self.listeners.get(&token) else { return };
        let watch =
            |socket: &sock::Listener| self.reactor.add(&socket.socket, token, Interest::READ);
        let refused = |socket: &sock::Listener| Some((socket.address, watch(socket).err()?));
        if let Some((address, error)) = listener.sockets.iter().find_map(refused) {
            self.pause(token, address, lack(&error));
        }
    }

    /// Accepts the connections that wait at a listener.
    pub(super) fn on_incoming(&mut self, token: u64) {
        let Some(listener) = self.listeners.get(&token) else { return };
        let options = options(&listener.service.policies.default);
        let mut found = Vec::new();
        let mut short = None;
        for socket in &listener.sockets {
            for _ in 0..ACCEPTS {
                if room::try_list::<u8>(START_UP_MEMORY).is_none() {
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
            self.pause(token, address, lacks);
        }
        for (socket, peer) in found {
            self.begin_passive(token, socket, peer);
        }
    }

    /// Stops watching a listener that cannot accept at this address until its timer expires: its sockets
    /// would stay readable.
    fn pause(&mut self, token: u64, address: SocketAddr, lacks: Shortage) {
        let Some(listener) = self.listeners.get_mut(&token) else { return };
        for socket in &listener.sockets {
            // It need not be watched any more.
            let _ = self.reactor.remove(&socket.socket);
        }
        self.reactor.set_timer(token, after(PAUSE));
        let now = Instant::now();
        if listener.warned_at.is_none_or(|warned| now.duration_since(warned) >= SHORTAGE_REPORTS) {
            listener.warned_at = Some(now);
            let event = AsyncEvent::ListenShortage { listener: address, lacks };
            tracing::warn!("{event}");
            let number = self.mailbox.sequence.next();
            self.push(Delivery::Async { number, source: EventSource::Rnic, event });
        }
    }

    /// The sink for the requests of a listener, and its port.
    pub(super) fn sink_of(&self, listener: u64) -> Option<(Arc<dyn RequestSink>, u16)> {
        let service = &self.listeners.get(&listener)?.service;
        Some((service.sink.upgrade()?, service.port))
    }

    /// The layer above did not take a request: its sink is full or closed.
    pub(super) fn on_undelivered(&mut self, origin: Origin) {
        // Otherwise the peer has left, or another thread guessed its id and replied.
        if !requests::remove(origin.request) {
            return;
        }
        match self.entries.remove(&origin.token) {
            Some(Entry::Passive(passive)) => self.undelivered_passive(origin.token, passive),
            Some(Entry::Native(pending)) => self.undelivered_native(origin.token, *pending),
            // The peer left concurrently.
            _ => {}
        }
    }

    pub(super) fn on_unlisten(&mut self, token: u64) {
        self.reactor.clear_timer(token);
        if let Some(listener) = self.listeners.remove(&token) {
            for token in listener.half_open.tokens() {
                // A refusal that is being sent is still sent.
                let unheard = |entry: &Entry| matches!(entry, Entry::Passive(p) if p.is_unheard());
                if self.entries.get(&token).is_some_and(unheard) {
                    self.drop_entry(token);
                }
            }
        }
        self.service_listeners.retain(|_, (listener, _)| *listener != token);
        let unmatched = &mut self.unmatched;
        self.native_listeners.retain(|id, (listener, _)| {
            let stays = *listener != token;
            if !stays {
                unmatched.ended(*id);
            }
            stays
        });
    }
}

/// The resource that is short if the kernel does not watch a socket.
fn lack(error: &io::Error) -> Shortage {
    sock::shortage(error).unwrap_or(Shortage::Memory)
}
