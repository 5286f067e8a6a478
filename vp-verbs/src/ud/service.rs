//! Datagram services over rdma_cm (InfiniBand's SIDR): requests and replies, one message each.
//!
//! Owner: the connection manager, whose event channel it shares: tokens with the highest bit set belong to this
//! module. Calls come from any thread. The event thread handles events, and calls the consumer's handler with no
//! lock held. If a peer dies, the kernel ends our request to it after a minute, and our reply to it is lost.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use roce_proto::cm::reply;
use vp_api::{
    DatagramPath, ServiceEvent, ServiceHandler, ServiceRefusal, UdAddress, VpError, VpResult,
    VpStatus,
};

use super::path::Port;
use crate::cm::id::{CmId, EventChannel, Seen};
use crate::cm::{RESOLVE_MS, private, reason};
use crate::device::Context;
use crate::object_table::lock;
use crate::owned::refused;
use crate::ports;
use ibv_sys::*;

/// The bit that marks ids of services.
const SERVICE: u64 = 1 << 63;

/// The services of a device, and its requests to other services.
#[derive(Default)]
pub(crate) struct Services {
    table: Mutex<Entries>,
    handler: RwLock<Option<Arc<dyn ServiceHandler>>>,
}

#[derive(Default)]
struct Entries {
    last: u64,
    all: BTreeMap<u64, Entry>,
}

struct Entry {
    id: CmId,
    what: What,
}

/// The purpose of an id, with the consumer's token.
#[derive(PartialEq, Eq)]
enum What {
    Listening(u64),
    /// With the private data of the request.
    Asking(u64, Vec<u8>),
    /// A peer's request, which needs a reply.
    Asked,
}

impl Entries {
    fn add(&mut self, make: impl FnOnce(u64) -> VpResult<Entry>) -> VpResult<u64> {
        self.last += 1;
        let mark = SERVICE | self.last;
        let entry = make(mark)?;
        self.all.insert(mark, entry);
        Ok(mark)
    }

    fn find(&self, is: impl Fn(&What) -> bool) -> Option<u64> {
        self.all.iter().find_map(|(mark, entry)| is(&entry.what).then_some(*mark))
    }

    fn take(&mut self, what: &str, is: impl Fn(&What) -> bool) -> VpResult<Entry> {
        let found = self.find(is).and_then(|mark| self.all.remove(&mark));
        found.ok_or_else(|| VpError::new(VpStatus::InvalidHandle, format!("there is no {what}")))
    }

    /// Removes a request, with the consumer's token.
    fn asking(&mut self, mark: u64) -> Option<u64> {
        match self.all.remove(&mark)?.what {
            What::Asking(token, _) => Some(token),
            What::Listening(_) | What::Asked => None,
        }
    }
}

/// Whether [`Services::step`] handles an event. The event of a removed device is for all.
pub(crate) fn is_mine(seen: &Seen) -> bool {
    seen.token & SERVICE != 0 && seen.kind != RDMA_CM_EVENT_DEVICE_REMOVAL
}

impl Services {
    pub(super) fn set_handler(&self, handler: Option<Arc<dyn ServiceHandler>>) {
        *self.handler.write().unwrap_or_else(PoisonError::into_inner) = handler;
    }

    pub(super) fn listen(
        &self,
        (context, channel): (&Arc<Context>, &EventChannel),
        token: u64,
        address: SocketAddr,
        backlog: u32,
    ) -> VpResult<SocketAddr> {
        let mut table = lock(&self.table);
        if table.find(|what| *what == What::Listening(token)).is_some() {
            return Err(taken(token));
        }
        let attempt = format!("listen for datagram services on {address}");
        let mut real = address;
        table.add(|mark| {
            let id = CmId::new(context, channel, mark, RDMA_PS_UDP).map_err(refused(&attempt))?;
            id.bind(address).map_err(refused(&attempt))?;
            if id.is_somewhere() && !id.is_here() {
                let detail = format!("{attempt}: the address is not one of {}", context.name);
                return Err(VpError::new(VpStatus::InvalidAddress, detail));
            }
            id.listen(backlog).map_err(refused(&attempt))?;
            real.set_port(id.source_port());
            Ok(Entry { id, what: What::Listening(token) })
        })?;
        Ok(real)
    }

    pub(super) fn unlisten(&self, token: u64) -> VpResult<()> {
        let what = format!("datagram service with the token {token}");
        lock(&self.table).take(&what, |what| *what == What::Listening(token)).map(drop)
    }

    pub(super) fn resolve(
        &self,
        (context, channel): (&Arc<Context>, &EventChannel),
        token: u64,
        peer: SocketAddr,
        private_data: Vec<u8>,
    ) -> VpResult<()> {
        let mut table = lock(&self.table);
        if table.find(|what| asks(what, token)).is_some() {
            return Err(taken(token));
        }
        let attempt = format!("ask the datagram service at {peer}");
        table.add(|mark| {
            let id = CmId::new(context, channel, mark, RDMA_PS_UDP).map_err(refused(&attempt))?;
            id.resolve_address(peer, RESOLVE_MS).map_err(refused(&attempt))?;
            Ok(Entry { id, what: What::Asking(token, private_data) })
        })?;
        Ok(())
    }

    pub(super) fn cancel(&self, token: u64) -> VpResult<()> {
        let what = format!("request with the token {token}");
        lock(&self.table).take(&what, |what| asks(what, token)).map(drop)
    }

    pub(super) fn accept(&self, request: u64, answer: UdAddress, data: &[u8]) -> VpResult<()> {
        let data = reply::pack(data, 0, answer.qkey);
        let asked = self.asked(request)?;
        asked.id.reply(answer.qpn, &data).map_err(refused("reply to the service request"))
    }

    pub(super) fn reject(&self, request: u64, why: ServiceRefusal, data: &[u8]) -> VpResult<()> {
        let data = reply::pack(data, why as u8, 0);
        let asked = self.asked(request)?;
        asked.id.reject(&data).map_err(refused("refuse the service request"))
    }

    /// Removes a request: it gets one reply, whether or not sending that succeeds.
    fn asked(&self, request: u64) -> VpResult<Entry> {
        let mut table = lock(&self.table);
        let is_asked = table.all.get(&request).is_some_and(|entry| entry.what == What::Asked);
        is_asked.then(|| table.all.remove(&request)).flatten().ok_or_else(|| {
            let detail =
                format!("there is no service request {request:#x}, or it has a reply already");
            VpError::new(VpStatus::InvalidHandle, detail)
        })
    }

    /// Drops every id.
    pub(crate) fn clear(&self) {
        let gone = std::mem::take(&mut lock(&self.table).all);
        drop(gone);
    }

    /// The result of handling an event.
    pub(crate) fn step(&self, context: &Arc<Context>, seen: Seen) {
        let Some(event) = self.follow(context, seen) else { return };
        let handler = self.handler.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(handler) = handler {
            handler.on_service(event);
        }
    }

    fn follow(&self, context: &Arc<Context>, seen: Seen) -> Option<ServiceEvent> {
        let mut table = lock(&self.table);
        let mark = seen.token;
        let went_on = match seen.kind {
            RDMA_CM_EVENT_CONNECT_REQUEST => return request(&mut table, context, seen),
            RDMA_CM_EVENT_ADDR_RESOLVED => table.all.get(&mark)?.resolved(context),
            RDMA_CM_EVENT_ROUTE_RESOLVED => table.all.get(&mark)?.routed(),
            RDMA_CM_EVENT_ESTABLISHED => {
                let gone = table.all.get(&mark)?;
                let port = gone.port(context);
                let token = table.asking(mark)?;
                drop(table);
                return resolved(context, token, &port, seen);
            }
            RDMA_CM_EVENT_UNREACHABLE
            | RDMA_CM_EVENT_REJECTED
            | RDMA_CM_EVENT_ADDR_ERROR
            | RDMA_CM_EVENT_ROUTE_ERROR
            | RDMA_CM_EVENT_CONNECT_ERROR => {
                let token = table.asking(mark)?;
                return Some(refusal(token, seen));
            }
            _ => return None,
        };
        let error = went_on.err()?;
        let token = table.asking(mark)?;
        Some(ServiceEvent::Failed {
            token,
            reason: format!("the request cannot be sent to the service: {error}"),
        })
    }
}

impl Entry {
    fn resolved(&self, context: &Context) -> io::Result<()> {
        if !self.id.is_here() {
            let name = &context.name;
            let detail = format!("the route to the peer does not lead over {name}");
            return Err(io::Error::other(detail));
        }
        self.id.resolve_route(RESOLVE_MS)
    }

    fn routed(&self) -> io::Result<()> {
        match &self.what {
            What::Asking(_, private_data) => self.id.request(private_data),
            What::Listening(_) | What::Asked => Ok(()),
        }
    }

    fn port(&self, context: &Arc<Context>) -> io::Result<Port> {
        let number = self.id.port();
        Port::query(context, ports::index(context, number.into()), number)
    }
}

fn asks(what: &What, token: u64) -> bool {
    matches!(what, What::Asking(other, _) if *other == token)
}

fn taken(token: u64) -> VpError {
    VpError::new(VpStatus::InUse, format!("the token {token} is in use"))
}

fn request(table: &mut Entries, context: &Arc<Context>, seen: Seen) -> Option<ServiceEvent> {
    let listener = match table.all.get(&seen.token).map(|entry| &entry.what) {
        Some(What::Listening(token)) => Some(*token),
        _ => None,
    };
    let mut born = None;
    let added = table.add(|mark| {
        let adopted = CmId::born(context, seen.born, mark);
        let id = adopted.map_err(refused("take a service request"))?;
        born = Some((id.is_here(), id.peer(), id.port()));
        Ok(Entry { id, what: What::Asked })
    });
    let (mark, (here, peer, number)) = (added.ok()?, born?);
    let (Some(listener), true, Some(peer)) = (listener, here, peer) else {
        // Of a service that is closed, or for another device on a wildcard address.
        let unwanted = table.all.remove(&mark)?;
        let _ = unwanted.id.reject(&[]);
        return None;
    };
    let port = ports::index(context, number.into());
    let private_data = private::unpack(seen.private_data, reply::QUESTION);
    Some(ServiceEvent::Request { listener, request: mark, peer, port, private_data })
}

fn resolved(
    context: &Context,
    token: u64,
    port: &io::Result<Port>,
    seen: Seen,
) -> Option<ServiceEvent> {
    let (private_data, ours) = reply::unpack(seen.private_data);
    let (Some(ud), Ok(port)) = (seen.ud, port) else {
        let reason = "the port of the reply no longer exists".into();
        return Some(ServiceEvent::Failed { token, reason });
    };
    let qkey = ours.map_or(ud.qkey, |(_, qkey)| qkey);
    let address = UdAddress { qpn: ud.qp_num, qkey };
    let path: DatagramPath = port.path(context, &ud.ah_attr);
    Some(ServiceEvent::Resolved { token, address, path, private_data })
}

fn refusal(token: u64, seen: Seen) -> ServiceEvent {
    let why = match (seen.kind, seen.status) {
        (RDMA_CM_EVENT_UNREACHABLE, 1) => Some(ServiceRefusal::NotSupported),
        (RDMA_CM_EVENT_UNREACHABLE, 2) => Some(ServiceRefusal::Rejected),
        (RDMA_CM_EVENT_UNREACHABLE, 3) => Some(ServiceRefusal::NoQueuePair),
        (RDMA_CM_EVENT_UNREACHABLE, 4) => Some(ServiceRefusal::Redirected),
        _ => None,
    };
    let Some(why) = why else {
        return ServiceEvent::Failed { token, reason: reason(&seen) };
    };
    let (private_data, ours) = reply::unpack(seen.private_data);
    // librdmacm has only one refusal.
    let why = match ours {
        Some((1, _)) => ServiceRefusal::NotSupported,
        Some((3, _)) => ServiceRefusal::NoQueuePair,
        Some((4, _)) => ServiceRefusal::Redirected,
        _ => why,
    };
    ServiceEvent::Refused { token, why, private_data }
}
