//! What datagram services do: calls of the application, messages of peers, and time-outs.
//!
//! Runs with the table of services locked, in the thread that calls or receives. A peer's octets are used as addresses
//! and numbers only.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use kal_os::lock;
use roce_proto::cm::addresses::Addresses;
use roce_proto::cm::connection::Patience;
use roce_proto::cm::mad::Mad;
use roce_proto::cm::message::{Message, Private, SidrStatus};
use roce_proto::cm::sidr::{self, Lookup, Outcome};
use roce_proto::cm::{private, reply, udp_service};
use vp_api::{DatagramPath, ServiceEvent, ServiceRefusal, UdAddress, VpError, VpResult, VpStatus};

use super::listeners::{FIRST_PORT, Listener};
use super::services::{Asked, Asking, Ears, Inner, Services};
use super::wire;
use crate::engine::{Engine, HOPS, PORT, Socket, Touched};
use crate::path::{self, Port};
use crate::tuning::{MAX_REPLIES, SIDR_RESPONSE, SIDR_RETRIES};

/// Where a message came from, and the message.
struct Arrival<'a> {
    socket: &'a Arc<Socket>,
    from: IpAddr,
    mad: &'a Mad,
}

/// A request to a service.
struct Request<'a> {
    /// The peer's id of it.
    id: u32,
    service: u64,
    private: &'a Private<216>,
}

/// How long this end waits for a reply.
fn patience() -> Patience {
    Patience::of(SIDR_RESPONSE, SIDR_RETRIES)
}

/// For how long a peer may repeat a request that has a reply.
fn repeats() -> u64 {
    let Patience { response, retries, .. } = patience();
    response * (u64::from(retries) + 1)
}

fn taken(token: u64) -> VpError {
    VpError::new(VpStatus::InUse, format!("the token {token} is in use"))
}

fn none(what: &str, id: u64) -> VpError {
    VpError::new(VpStatus::InvalidHandle, format!("there is no {what} {id}, or it is over"))
}

/// The path from a local address to a peer.
fn way(local: IpAddr, peer: IpAddr) -> VpResult<DatagramPath> {
    let port = Port::of(local)?;
    Ok(DatagramPath {
        port: port.as_ref().map_or(0, |port| port.index),
        local_gid: path::gid(local),
        remote_gid: path::gid(peer),
        mtu_code: path::mtu_of_local(local)?.code(),
        hop_limit: HOPS,
        ..DatagramPath::default()
    })
}

impl Inner {
    /// The request of a peer to an RNIC that has no reply yet.
    fn undecided(&mut self, ears: &Arc<Ears>, request: u64) -> VpResult<&mut Asked> {
        let found = self.asked.get_mut(&request);
        found
            .filter(|one| one.reply.is_none() && Arc::ptr_eq(&one.ears, ears))
            .ok_or_else(|| none("service request", request))
    }

    /// Sends the reply to a request, and keeps it.
    fn reply(
        &mut self,
        engine: &Engine,
        ears: &Arc<Ears>,
        request: u64,
        result: Result<UdAddress, SidrStatus>,
        private_data: &[u8],
    ) -> VpResult<()> {
        let one = self.undecided(ears, request)?;
        let (refusal, key) = match result {
            Ok(address) => (0, address.qkey),
            Err(status) => (status.0, 0),
        };
        let packed = Private::new(&reply::pack(private_data, refusal, key)).unwrap_or_default();
        let result = result.map(|address| (address.qpn, address.qkey));
        // It was a request when it arrived.
        let Some(mad) = sidr::reply(&one.mad, result, packed) else { return Ok(()) };
        one.socket.send_message(one.from, &mad);
        one.reply = Some((mad, engine.now() + repeats()));
        let kept = self.asked.iter().filter(|(_, one)| one.reply.is_some());
        if kept.clone().count() > MAX_REPLIES
            && let Some(oldest) = kept.map(|(id, _)| *id).next()
        {
            self.asked.remove(&oldest);
        }
        Ok(())
    }
}

/// Calls of the application.
impl Services {
    pub(crate) fn listen(
        &self,
        engine: &Engine,
        ears: &Arc<Ears>,
        token: u64,
        listener: Listener<(Arc<Ears>, u64)>,
    ) -> VpResult<u16> {
        let sockets = listener.sockets.clone();
        let add = |is_taken: &dyn Fn(u32) -> bool| {
            let is_elsewhere = |port| is_taken(udp_service(port) as u32);
            self.add(ears, token, listener, is_elsewhere)
        };
        let remove = |(id, _)| {
            lock(&self.0).listeners.remove(|own, _| own == id);
        };
        engine.announce(&sockets, add, remove).map(|(_, port)| port)
    }

    fn add(
        &self,
        ears: &Arc<Ears>,
        token: u64,
        listener: Listener<(Arc<Ears>, u64)>,
        is_elsewhere: impl Fn(u16) -> bool,
    ) -> VpResult<(u64, u16)> {
        let mut inner = lock(&self.0);
        if ears.is_closed() {
            return Err(VpError::new(VpStatus::InvalidHandle, "the device was closed"));
        }
        if inner.listeners.has(|(owner, own)| Arc::ptr_eq(owner, ears) && *own == token) {
            return Err(taken(token));
        }
        inner.listeners.add(listener, is_elsewhere)
    }

    /// Adds the services that have a listener at an address, the lower halves of their ids, as far as there is room.
    pub(crate) fn services(&self, address: IpAddr, all: &mut Vec<u32>) {
        let room = all.capacity() - all.len();
        let inner = lock(&self.0);
        all.extend(inner.listeners.ports(address).map(|port| udp_service(port) as u32).take(room));
    }

    pub(crate) fn unlisten(&self, ears: &Arc<Ears>, token: u64) -> VpResult<()> {
        let is = |owner: &Arc<Ears>, own| Arc::ptr_eq(owner, ears) && own == token;
        let removed = lock(&self.0).listeners.remove(|_, (owner, own)| is(owner, *own));
        removed.then_some(()).ok_or_else(|| none("datagram service with the token", token))
    }

    pub(crate) fn resolve(
        &self,
        engine: &Engine,
        ears: &Arc<Ears>,
        token: u64,
        peer: SocketAddr,
        private_data: &[u8],
    ) -> VpResult<()> {
        let socket = engine.socket_towards(peer)?;
        let local = socket.local();
        // The rdma_cm port of this end.
        let source = socket.on_link(local, FIRST_PORT | (engine.numbers.random() as u16));
        let private = wire::addresses(source, peer.ip())
            .and_then(|addresses| addresses.with(&private::pack(private_data, reply::QUESTION)))
            .ok_or_else(|| {
                let detail = format!("{peer} cannot be reached from {local}");
                VpError::new(VpStatus::Os, detail)
            })?;
        let mut inner = lock(&self.0);
        if ears.is_closed() {
            return Err(VpError::new(VpStatus::InvalidHandle, "the device was closed"));
        }
        if inner.asking.values().any(|one| Arc::ptr_eq(&one.ears, ears) && one.token == token) {
            return Err(taken(token));
        }
        let id = loop {
            let id = engine.numbers.id();
            if !inner.asking.contains_key(&id) {
                break id;
            }
        };
        let service = udp_service(peer.port());
        let lookup = Lookup::new(id, service, private, patience(), engine.now());
        let mut asking = Asking { ears: ears.clone(), token, lookup, socket, peer };
        asking.send();
        inner.asking.insert(id, asking);
        drop(inner);
        // For its time-out.
        engine.wake();
        Ok(())
    }

    pub(crate) fn cancel(&self, ears: &Arc<Ears>, token: u64) -> VpResult<()> {
        let mut inner = lock(&self.0);
        let before = inner.asking.len();
        inner.asking.retain(|_, one| !(Arc::ptr_eq(&one.ears, ears) && one.token == token));
        let cancelled = inner.asking.len() != before;
        cancelled.then_some(()).ok_or_else(|| none("request with the token", token))
    }

    pub(crate) fn accept(
        &self,
        engine: &Engine,
        ears: &Arc<Ears>,
        request: u64,
        answer: UdAddress,
        private_data: &[u8],
    ) -> VpResult<()> {
        lock(&self.0).reply(engine, ears, request, Ok(answer), private_data)
    }

    pub(crate) fn reject(
        &self,
        engine: &Engine,
        ears: &Arc<Ears>,
        request: u64,
        why: ServiceRefusal,
        private_data: &[u8],
    ) -> VpResult<()> {
        let status = match why {
            ServiceRefusal::NotSupported => SidrStatus::UNSUPPORTED_SERVICE,
            ServiceRefusal::Rejected => SidrStatus::REJECTED,
            ServiceRefusal::NoQueuePair => SidrStatus::NO_QP,
            ServiceRefusal::Redirected => SidrStatus::REDIRECTED,
        };
        lock(&self.0).reply(engine, ears, request, Err(status), private_data)
    }
}

/// Messages of peers, and time-outs.
impl Services {
    /// Handles a message of a peer.
    pub(super) fn handle(
        &self,
        engine: &Engine,
        socket: &Arc<Socket>,
        from: IpAddr,
        mad: &Mad,
        message: &Message,
        touched: &mut Touched,
    ) {
        let mut inner = lock(&self.0);
        match message {
            Message::SidrReq { request, service, private, .. } => {
                let request = Request { id: *request, service: *service, private };
                let arrival = Arrival { socket, from, mad };
                let status = request_of(&mut inner, &arrival, &request, touched);
                if let Err(status) = status
                    && let Some(refusal) = sidr::reply(mad, Err(status), Private::default())
                {
                    socket.send_message(from, &refusal);
                }
            }
            Message::SidrRep { request, .. } => {
                let known =
                    |one: &&mut Asking| one.peer.ip() == from && Arc::ptr_eq(&one.socket, socket);
                let Some(one) = inner.asking.get_mut(request).filter(known) else { return };
                let Some(outcome) = one.lookup.handle(message) else { return };
                if let Some(one) = inner.asking.remove(request) {
                    touched.tell(&one.ears, event_of(&one, outcome));
                }
            }
            _ => {}
        }
        drop(inner);
        engine.wake();
    }

    /// Handles all time-outs that are due.
    pub(crate) fn run(&self, now: u64, touched: &mut Touched) {
        let mut inner = lock(&self.0);
        inner.asked.retain(|_, one| one.reply.as_ref().is_none_or(|(_, until)| *until > now));
        inner.asking.retain(|_, one| {
            let outcome = one.lookup.handle_timeout(now);
            one.send();
            match outcome {
                None => true,
                Some(outcome) => {
                    touched.tell(&one.ears, event_of(one, outcome));
                    false
                }
            }
        });
    }
}

/// Takes a request of a peer; or the status with which it is refused.
fn request_of(
    inner: &mut Inner,
    Arrival { socket, from, mad }: &Arrival<'_>,
    request: &Request<'_>,
    touched: &mut Touched,
) -> Result<(), SidrStatus> {
    let repeated = |one: &&Asked| {
        one.from == *from && one.id == request.id && Arc::ptr_eq(&one.socket, socket)
    };
    if let Some(one) = inner.asked.values().find(repeated) {
        if let Some((reply, _)) = &one.reply {
            socket.send_message(*from, reply);
        }
        return Ok(());
    }
    let port = (request.service & 0xffff) as u16;
    let found =
        inner.listeners.find(socket.local(), port).filter(|_| request.service == udp_service(port));
    let (Some((listener, found)), Some(addresses)) = (found, Addresses::parse(&request.private.0))
    else {
        return Err(SidrStatus::UNSUPPORTED_SERVICE);
    };
    let undecided = |one: &&Asked| one.listener == listener && one.reply.is_none();
    if inner.asked.values().filter(undecided).count() >= found.backlog {
        return Ok(());
    }
    let (ears, token) = found.owner.clone();
    let local = Port::of(socket.local()).ok().flatten();
    inner.last += 1;
    let data = request.private.0[Addresses::LEN..].to_vec();
    touched.tell(
        &ears,
        ServiceEvent::Request {
            listener: token,
            request: inner.last,
            peer: socket.on_link(*from, addresses.source_port),
            port: local.map_or(0, |port| port.index),
            private_data: private::unpack(data, reply::QUESTION),
        },
    );
    let (socket, from, mad, id) = (Arc::clone(socket), *from, **mad, request.id);
    inner.asked.insert(inner.last, Asked { ears, listener, socket, from, mad, id, reply: None });
    Ok(())
}

/// The event of a request that ended.
fn event_of(asking: &Asking, outcome: Outcome) -> ServiceEvent {
    let (token, peer) = (asking.token, asking.peer);
    match outcome {
        Outcome::Found { qpn, qkey, private } => {
            let (private_data, ours) = reply::unpack(private.0.to_vec());
            let qkey = ours.map_or(qkey, |(_, qkey)| qkey);
            match way(asking.socket.local(), peer.ip()) {
                Ok(path) => {
                    let address = UdAddress { qpn, qkey };
                    ServiceEvent::Resolved { token, address, path, private_data }
                }
                Err(error) => ServiceEvent::Failed { token, reason: error.to_string() },
            }
        }
        Outcome::Refused { status, private } => {
            let (private_data, ours) = reply::unpack(private.0.to_vec());
            // librdmacm has only one refusal; a peer of ours behind it says which it was.
            let status = ours.map_or(status, |(refusal, _)| SidrStatus(refusal));
            let why = match status {
                SidrStatus::UNSUPPORTED_SERVICE => ServiceRefusal::NotSupported,
                SidrStatus::NO_QP => ServiceRefusal::NoQueuePair,
                SidrStatus::REDIRECTED => ServiceRefusal::Redirected,
                _ => ServiceRefusal::Rejected,
            };
            ServiceEvent::Refused { token, why, private_data }
        }
        Outcome::Unreachable => {
            let reason = format!(
                "{} does not reply to RoCE's messages at UDP port {PORT}, or its application took too long",
                peer.ip()
            );
            ServiceEvent::Failed { token, reason }
        }
    }
}
