//! Table of the connection manager: listeners and connection exchanges of all RNICs of the process.
//!
//! An exchange is a [`Connection`] of `roce-proto`, together with the QP, the consumer's events and the address. It
//! outlives its QP until the peer has confirmed the end and late messages are gone.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use kal_os::lock;
use roce_proto::cm::addresses::Addresses;
use roce_proto::cm::connection::{Connection, Event, Patience, State};
use roce_proto::cm::mad::Mad;
use roce_proto::cm::message::{ConnectionIds, Message, Private, RejectReason, Rejected, Rep, Req};
use roce_proto::cm::private;
use roce_proto::psn::Psn;
use roce_proto::rc::Mtu;
use vp_api::{NativeEvent, NativeParams, Qp, QpId, VpError, VpResult, VpStatus};

use super::Events;
use super::wire::{self, Ends};
use crate::engine::{Engine, Socket, Touched};
use crate::qp::{Path, RoceQp};
use crate::tuning::{CM_DECISION, CM_RESPONSE, CM_RETRIES, RETRIES};

/// A listener.
pub(super) struct Listener {
    pub(super) events: Arc<Events>,
    pub(super) address: IpAddr,
    /// 0: a free port is chosen.
    pub(super) port: u16,
    pub(super) backlog: usize,
    pub(super) _sockets: Vec<Arc<Socket>>,
}

impl Listener {
    fn hears(&self, address: IpAddr, port: u16) -> bool {
        let here = self.address == address
            || (self.address.is_unspecified() && self.address.is_ipv4() == address.is_ipv4());
        here && self.port == port
    }
}

/// One exchange of messages with a peer, from the request to the end of the connection.
struct Exchange {
    machine: Connection,
    events: Arc<Events>,
    socket: Arc<Socket>,
    local: SocketAddr,
    peer: SocketAddr,
    /// Set from connect or accept on, until the QP is destroyed or reset.
    qp: Option<Arc<RoceQp>>,
    /// The queue pair number that the QP has, or will have.
    number: Option<u32>,
    /// The request that this end sent or received.
    req: Req,
    /// The parameters that this end's application asked for.
    wishes: NativeParams,
    /// IRD and ORD that both ends agreed on.
    settled: (u16, u16),
    listener: u64,
    /// The application got the event that the connection is established.
    is_up: bool,
    /// The application got the event that the connection is over, or ended it itself.
    is_told: bool,
}

#[derive(Default)]
struct Inner {
    last: u64,
    listeners: BTreeMap<u64, Listener>,
    exchanges: HashMap<u32, Exchange>,
}

/// Listeners and exchanges of the process.
#[derive(Default)]
pub(crate) struct ConnectionTable(Mutex<Inner>);

/// First port of the range from which free ports are chosen.
const FIRST_PORT: u16 = 32_768;

fn unknown(what: &str, id: u64) -> VpError {
    VpError::new(VpStatus::InvalidHandle, format!("there is no {what} {id}, or it is over"))
}

/// How long this end waits for a reply.
fn patience() -> Patience {
    Patience::of(CM_RESPONSE, CM_RETRIES)
}

impl Exchange {
    /// Sends the messages that the state machine has queued.
    fn send(&mut self) {
        while let Some(mad) = self.machine.poll_transmit() {
            self.socket.send_message(self.peer.ip(), &mad);
        }
    }

    /// Detaches the exchange from its QP.
    fn drop_qp(&mut self, engine: &Engine) -> Option<Arc<RoceQp>> {
        if let Some(number) = self.number.take() {
            engine.numbers.release(number);
        }
        self.qp.take()
    }

    fn id(&self) -> Option<QpId> {
        self.qp.as_ref().map(|qp| qp.id())
    }

    /// Reports that the connection was not made.
    fn fail(
        &mut self,
        engine: &Engine,
        event: impl FnOnce(QpId) -> NativeEvent,
        touched: &mut Touched,
    ) {
        let Some(qp) = self.drop_qp(engine) else { return };
        qp.not_connected();
        if !std::mem::replace(&mut self.is_told, true) {
            self.events.push(event(qp.id()));
        }
        touched.add(qp);
    }

    /// Reports that the connection is over.
    fn over(&mut self, touched: &mut Touched) {
        let Some(qp) = &self.qp else { return };
        qp.disconnected();
        touched.add(qp.clone());
        if !std::mem::replace(&mut self.is_told, true) {
            self.events.push(NativeEvent::Disconnected { qp: qp.id() });
        }
    }

    fn up(&mut self, private_data: Vec<u8>, touched: &mut Touched) {
        let Some(qp) = &self.qp else { return };
        if std::mem::replace(&mut self.is_up, true) {
            return;
        }
        // From here on the QP owns the number.
        self.number = None;
        let (ird, ord) = self.settled;
        let params = NativeParams { private_data, ird, ord };
        let event = NativeEvent::Established { qp: qp.id(), local: Some(self.local), params };
        qp.ready((ird, ord), self.local, self.peer);
        self.events.push(event);
        touched.add(qp.clone());
    }

    fn step(&mut self, engine: &Engine, event: Event, now: u64, touched: &mut Touched) {
        match event {
            Event::Replied(rep) => self.replied(engine, &rep, now, touched),
            Event::Established => self.up(Vec::new(), touched),
            Event::Rejected { reason: RejectReason::CONSUMER, private } => {
                let private_data = private::unpack(private.0.to_vec(), private::REJECT);
                self.fail(engine, |qp| NativeEvent::Rejected { qp, private_data }, touched);
            }
            Event::Rejected { reason, .. } => {
                let reason = match reason {
                    RejectReason::INVALID_SERVICE_ID => {
                        format!("there is no RoCE listener at {}", self.peer)
                    }
                    _ => format!("{} rejected the request: reason {reason}", self.peer),
                };
                self.fail(engine, |qp| NativeEvent::Failed { qp, reason }, touched);
            }
            Event::Unreachable => {
                let reason = format!(
                    "{} does not reply to RoCE's messages at UDP port {}",
                    self.peer.ip(),
                    crate::engine::PORT
                );
                self.fail(engine, |qp| NativeEvent::Failed { qp, reason }, touched);
            }
            Event::Disconnected => self.over(touched),
            Event::Ended => {}
        }
        self.send();
    }

    /// The peer accepted the request.
    fn replied(&mut self, engine: &Engine, rep: &Rep, now: u64, touched: &mut Touched) {
        let (Some(qp), Some(number)) = (self.qp.clone(), self.number) else { return };
        self.settled = wire::settle(&self.wishes, wire::offer_in(rep));
        let mtu = Mtu::from_code(self.req.mtu).unwrap_or(Mtu::Octets256);
        let psns = (rep.starting_psn, self.req.starting_psn);
        let retries = (RETRIES, rep.rnr_retry_count);
        let config =
            wire::config(rep.qpn, mtu, psns, self.settled, qp.send_depth(), qp.settings(), retries);
        let begun = qp.begin(self.path(config, number, rep.ca_guid, None));
        if let Err(error) = begun {
            // A reject is valid in this state.
            let _ = self.machine.reject(RejectReason::NO_RESOURCES, Private::default(), now);
            let reason = error.to_string();
            return self.fail(engine, |qp| NativeEvent::Failed { qp, reason }, touched);
        }
        // A reject is valid in this state.
        let _ = self.machine.ready();
        self.up(private::unpack(rep.private.0.to_vec(), private::REPLY), touched);
    }

    fn path(
        &self,
        config: roce_proto::rc::RcConfig,
        number: u32,
        guid: u64,
        unconfirmed: Option<u32>,
    ) -> Path {
        Path {
            config,
            number,
            socket: self.socket.clone(),
            peer: self.peer.ip(),
            ours: guid == wire::GUID,
            unconfirmed,
        }
    }
}

impl Inner {
    fn free_id(&self, engine: &Engine) -> u32 {
        loop {
            let id = engine.numbers.random();
            if id != 0 && !self.exchanges.contains_key(&id) {
                return id;
            }
        }
    }

    /// The exchange of a QP.
    fn of(&mut self, qp: &RoceQp) -> Option<&mut Exchange> {
        let is = |one: &&mut Exchange| {
            one.qp.as_ref().is_some_and(|own| std::ptr::eq(Arc::as_ptr(own), qp))
        };
        self.exchanges.values_mut().find(is)
    }

    /// A request to an RNIC that the application has not decided.
    fn offered(&mut self, events: &Arc<Events>, request: u64) -> VpResult<&mut Exchange> {
        let id = u32::try_from(request).ok();
        id.and_then(|id| self.exchanges.get_mut(&id))
            .filter(|one| one.machine.state() == State::Offered && Arc::ptr_eq(&one.events, events))
            .ok_or_else(|| unknown("connection request", request))
    }

    fn undecided(&self, listener: u64) -> usize {
        let offered =
            |one: &&Exchange| one.listener == listener && one.machine.state() == State::Offered;
        self.exchanges.values().filter(offered).count()
    }
}

impl ConnectionTable {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.0)
    }

    /// Whether no exchange is left, except in the time-wait state.
    pub(crate) fn is_empty(&self) -> bool {
        let inner = self.lock();
        let waits = |one: &Exchange| one.machine.state() == State::TimeWait;
        inner.exchanges.values().all(waits)
    }

    /// Drops the exchanges, which keep sockets open.
    pub(crate) fn clear(&self) {
        self.lock().exchanges.clear();
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<u64> {
        self.lock().exchanges.values().filter_map(|one| one.machine.deadline()).min()
    }

    pub(super) fn listen(&self, mut listener: Listener) -> VpResult<(u64, u16)> {
        let mut inner = self.lock();
        let taken = |port| {
            inner.listeners.values().any(|one| {
                one.port == port
                    && (one.address == listener.address
                        || one.address.is_unspecified()
                        || listener.address.is_unspecified())
            })
        };
        if listener.port == 0 {
            let free = (FIRST_PORT..=u16::MAX).find(|port| !taken(*port));
            listener.port = free.ok_or_else(|| {
                VpError::new(VpStatus::InsufficientResources, "all ports of RoCE are in use")
            })?;
        } else if taken(listener.port) {
            let address = SocketAddr::new(listener.address, listener.port);
            let detail = format!("another listener of this process has {address} for RoCE");
            return Err(VpError::new(VpStatus::Os, detail));
        }
        let port = listener.port;
        inner.last += 1;
        let token = inner.last;
        inner.listeners.insert(token, listener);
        Ok((token, port))
    }

    pub(super) fn unlisten(&self, listener: u64, events: &Arc<Events>) -> VpResult<()> {
        let mut inner = self.lock();
        match inner.listeners.get(&listener) {
            Some(found) if Arc::ptr_eq(&found.events, events) => {
                inner.listeners.remove(&listener);
                Ok(())
            }
            _ => Err(unknown("listener", listener)),
        }
    }

    /// Closes an RNIC: its listeners end, and its undecided requests are refused.
    pub(super) fn close(&self, engine: &Engine, events: &Arc<Events>) {
        let mut inner = self.lock();
        inner.listeners.retain(|_, one| !Arc::ptr_eq(&one.events, events));
        let now = engine.now();
        for one in inner.exchanges.values_mut().filter(|one| Arc::ptr_eq(&one.events, events)) {
            one.is_told = true;
            // Refuses a request that is not decided; has no effect on other exchanges.
            if one.machine.reject(RejectReason::CONSUMER, Private::default(), now).is_ok() {
                one.send();
            }
        }
        drop(inner);
        engine.wake();
    }

    pub(super) fn connect(
        &self,
        engine: &Engine,
        events: &Arc<Events>,
        qp: &Arc<RoceQp>,
        socket: Arc<Socket>,
        peer: SocketAddr,
        params: NativeParams,
    ) -> VpResult<()> {
        let local = socket.local();
        let mtu = wire::path_mtu(local)?;
        let mut inner = self.lock();
        let id = inner.free_id(engine);
        // The rdma_cm port of this end; no peer connects to it.
        let port = FIRST_PORT | (engine.numbers.random() as u16);
        let source = SocketAddr::new(local, port);
        let private = wire::addresses(source, peer.ip())
            .and_then(|addresses| {
                addresses.with(&private::pack(&params.private_data, private::REQUEST))
            })
            .ok_or_else(|| {
                let detail = format!("{peer} cannot be reached from {local}");
                VpError::new(VpStatus::Os, detail)
            })?;
        let number = engine.numbers.assign(Arc::downgrade(qp));
        let psn = Psn::new(engine.numbers.random());
        let reads = (params.ird, params.ord);
        let ends = Ends { local, peer };
        let req = Req {
            local_id: id,
            srq: qp.has_srq(),
            rnr_retry_count: qp.settings().rnr_retry,
            private,
            ..wire::request(&ends, number, psn, mtu, reads)
        };
        let machine = Connection::connect(req, id.into(), patience(), engine.now());
        let mut exchange = Exchange {
            machine,
            events: events.clone(),
            socket,
            local: source,
            peer,
            qp: Some(qp.clone()),
            number: Some(number),
            req,
            wishes: params,
            settled: (0, 0),
            listener: 0,
            is_up: false,
            is_told: false,
        };
        exchange.send();
        inner.exchanges.insert(id, exchange);
        drop(inner);
        // It stays in the table for its time-out.
        engine.wake();
        Ok(())
    }

    pub(super) fn accept(
        &self,
        engine: &Engine,
        events: &Arc<Events>,
        request: u64,
        qp: &Arc<RoceQp>,
        params: NativeParams,
    ) -> VpResult<()> {
        let mut inner = self.lock();
        let one = inner.offered(events, request)?;
        let packed = private::pack(&params.private_data, private::REPLY);
        let private = Private::new(&packed).unwrap_or_default();
        one.wishes = params;
        one.settled = wire::settle(&one.wishes, wire::offer_of(&one.req));
        let number = engine.numbers.assign(Arc::downgrade(qp));
        let psn = Psn::new(engine.numbers.random());
        let mtu = Mtu::from_code(one.req.mtu).unwrap_or(Mtu::Octets256);
        let config = wire::config(
            one.req.qpn,
            mtu,
            (one.req.starting_psn, psn),
            one.settled,
            qp.send_depth(),
            qp.settings(),
            (one.req.retry_count, one.req.rnr_retry_count),
        );
        let id = one.machine.ids().local;
        let path = one.path(config, number, one.req.ca_guid, Some(id));
        qp.begin(path).inspect_err(|_| engine.numbers.release(number))?;
        let (ird, ord) = one.settled;
        let small = |reads: u16| u8::try_from(reads).unwrap_or(u8::MAX);
        let rep = Rep {
            ids: one.machine.ids(),
            qpn: number,
            starting_psn: psn,
            responder_resources: small(ird),
            initiator_depth: small(ord),
            target_ack_delay: 0,
            rnr_retry_count: qp.settings().rnr_retry,
            srq: qp.has_srq(),
            ca_guid: wire::GUID,
            private,
        };
        (one.qp, one.number) = (Some(qp.clone()), Some(number));
        // `offered` has checked the state.
        let _ = one.machine.accept(rep, engine.now());
        one.send();
        drop(inner);
        engine.wake();
        Ok(())
    }

    pub(super) fn reject(
        &self,
        engine: &Engine,
        events: &Arc<Events>,
        request: u64,
        private_data: &[u8],
    ) -> VpResult<()> {
        let mut inner = self.lock();
        let one = inner.offered(events, request)?;
        let packed = private::pack(private_data, private::REJECT);
        let private = Private::new(&packed).unwrap_or_default();
        // `offered` has checked the state.
        let _ = one.machine.reject(RejectReason::CONSUMER, private, engine.now());
        one.send();
        drop(inner);
        engine.wake();
        Ok(())
    }

    /// Whether a QP is connected or being connected.
    pub(super) fn has(&self, qp: &RoceQp) -> bool {
        self.lock().of(qp).is_some_and(|one| !one.is_told)
    }

    /// A QP ended its connection: disconnects the peer. Called without the QP's lock.
    pub(crate) fn abandon(&self, engine: &Engine, qp: &RoceQp) {
        let mut inner = self.lock();
        if let Some(one) = inner.of(qp) {
            end(one, engine);
        }
        drop(inner);
        engine.wake();
    }

    /// A QP is destroyed: its exchange continues without it.
    pub(crate) fn forget(&self, engine: &Engine, qp: &RoceQp) {
        let mut inner = self.lock();
        if let Some(one) = inner.of(qp) {
            one.is_told = true;
            end(one, engine);
            one.drop_qp(engine);
        }
        drop(inner);
        engine.wake();
    }

    /// A QP is reset: reports the end of its connection if that was not reported yet. The exchange continues
    /// without the QP.
    pub(crate) fn renew(&self, engine: &Engine, qp: &RoceQp) {
        let mut inner = self.lock();
        if let Some(one) = inner.of(qp) {
            if let Some(qp) = one.id().filter(|_| one.is_up && !one.is_told) {
                one.events.push(NativeEvent::Disconnected { qp });
            }
            one.is_told = true;
            end(one, engine);
            one.drop_qp(engine);
        }
        drop(inner);
        engine.wake();
    }

    /// A packet arrived for a QP whose exchange `id` waits for the last message of the handshake.
    pub(crate) fn confirm(&self, engine: &Engine, id: u32, touched: &mut Touched) {
        let mut inner = self.lock();
        let Some(one) = inner.exchanges.get_mut(&id) else { return };
        if let Some(event) = one.machine.handle_packet() {
            one.step(engine, event, engine.now(), touched);
        }
    }

    /// Handles a message of a peer.
    pub(crate) fn handle(
        &self,
        engine: &Engine,
        socket: &Arc<Socket>,
        from: IpAddr,
        mad: &Mad,
        touched: &mut Touched,
    ) {
        let Ok(message) = Message::parse(mad) else { return };
        let id = match &message {
            Message::Req(req) => return self.request(engine, socket, from, mad, req),
            Message::Mra { ids, .. }
            | Message::Rej { ids, .. }
            | Message::Rtu { ids, .. }
            | Message::Dreq { ids, .. }
            | Message::Drep { ids, .. } => ids.remote,
            Message::Rep(rep) => rep.ids.remote,
            Message::SidrReq { .. } | Message::SidrRep { .. } => return,
        };
        let mut inner = self.lock();
        let known = |one: &&mut Exchange| one.peer.ip() == from && Arc::ptr_eq(&one.socket, socket);
        match inner.exchanges.get_mut(&id).filter(known) {
            Some(one) => {
                let now = engine.now();
                if let Some(event) = one.machine.handle(&message, now) {
                    one.step(engine, event, now, touched);
                }
                one.send();
            }
            None => refuse_unknown(socket, from, mad, &message),
        }
    }

    /// Handles a connection request of a peer.
    fn request(&self, engine: &Engine, socket: &Arc<Socket>, from: IpAddr, mad: &Mad, req: &Req) {
        let mut inner = self.lock();
        let repeated = |one: &&mut Exchange| {
            one.peer.ip() == from && one.machine.ids().remote == req.local_id && one.listener != 0
        };
        if let Some(one) = inner.exchanges.values_mut().find(repeated) {
            // No event results from it.
            let _ = one.machine.handle(&Message::Req(*req), engine.now());
            if one.machine.state() == State::Offered {
                wait_for_decision(one, mad.transaction);
            }
            return one.send();
        }
        let refuse = |reason| {
            let ids = ConnectionIds { local: 0, remote: req.local_id };
            let (of, private) = (Rejected::Req, Private::default());
            let refusal = Message::Rej { ids, of, reason, private };
            socket.send_message(from, &refusal.emit(mad.transaction));
        };
        // The service ids of rdma_cm's TCP port space.
        let port = (req.service & 0xffff) as u16;
        let is_tcp = req.service == roce_proto::cm::tcp_service(port);
        let addresses = Addresses::parse(&req.private.0);
        let heard = |one: &Listener| is_tcp && one.hears(socket.local(), port);
        let found = inner.listeners.iter().find(|(_, one)| heard(one));
        let (Some((&listener, found)), Some(addresses)) = (found, addresses) else {
            return refuse(RejectReason::INVALID_SERVICE_ID);
        };
        if req.transport != 0 {
            return refuse(RejectReason::INVALID_TRANSPORT);
        }
        let fits = |own: Mtu| Mtu::from_code(req.mtu).is_some_and(|mtu| mtu.code() <= own.code());
        if !wire::path_mtu(socket.local()).is_ok_and(fits) {
            return refuse(RejectReason::INVALID_MTU);
        }
        let (events, backlog) = (found.events.clone(), found.backlog);
        if inner.undecided(listener) >= backlog {
            return;
        }
        let id = inner.free_id(engine);
        let machine = Connection::offered(mad, req, id, patience());
        let (local, peer) =
            (SocketAddr::new(socket.local(), port), SocketAddr::new(from, addresses.source_port));
        let private_data = req.private.0[Addresses::LEN..].to_vec();
        let private_data = private::unpack(private_data, private::REQUEST);
        let (ird, ord) = wire::offer_of(req);
        let mut exchange = Exchange {
            machine,
            events,
            socket: socket.clone(),
            local,
            peer,
            qp: None,
            number: None,
            req: *req,
            wishes: NativeParams { private_data: Vec::new(), ird, ord },
            settled: (0, 0),
            listener,
            is_up: false,
            is_told: false,
        };
        wait_for_decision(&mut exchange, mad.transaction);
        exchange.events.push(NativeEvent::Request {
            listener,
            request: id.into(),
            peer,
            local: Some(local),
            params: NativeParams { private_data, ird, ord },
        });
        inner.exchanges.insert(id, exchange);
    }

    /// Handles all time-outs that are due.
    pub(crate) fn run(&self, engine: &Engine, now: u64, touched: &mut Touched) {
        let mut inner = self.lock();
        inner.exchanges.retain(|_, one| {
            if let Some(event) = one.machine.handle_timeout(now) {
                one.step(engine, event, now, touched);
            }
            one.send();
            if one.machine.state() == State::Ended {
                one.drop_qp(engine);
            }
            one.machine.state() != State::Ended
        });
    }
}

/// Tells the peer that the application needs more time.
fn wait_for_decision(one: &mut Exchange, transaction: u64) {
    let (ids, of, private) = (one.machine.ids(), Rejected::Req, Private::default());
    let wait = Message::Mra { ids, of, timeout: CM_DECISION, private };
    one.socket.send_message(one.peer.ip(), &wait.emit(transaction));
}

/// Ends the connection of a QP that flushed, or abandons an attempt to connect.
fn end(one: &mut Exchange, engine: &Engine) {
    let now = engine.now();
    let disconnects = one.machine.disconnect(now).is_ok();
    if !disconnects && one.machine.give_up(now).is_ok() {
        one.is_told = true;
        one.drop_qp(engine);
    }
    one.send();
}

/// Replies to a message about an unknown exchange, so that the peer ends it.
fn refuse_unknown(socket: &Socket, from: IpAddr, mad: &Mad, message: &Message) {
    let reply = match message {
        Message::Rep(rep) => Message::Rej {
            ids: ConnectionIds { local: rep.ids.remote, remote: rep.ids.local },
            of: Rejected::Rep,
            reason: RejectReason::INVALID_COMM_ID,
            private: Private::default(),
        },
        Message::Dreq { ids, .. } => Message::Drep {
            ids: ConnectionIds { local: ids.remote, remote: ids.local },
            private: Private::default(),
        },
        _ => return,
    };
    socket.send_message(from, &reply.emit(mad.transaction));
}
