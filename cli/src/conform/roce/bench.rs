//! The test bench of RoCE: connections with the peer in either role, and what is known about it. Main thread only.
//! Between cases it keeps only the findings of the first probe.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::time::{Duration, Instant};

use roce_proto::cm::addresses::{Addresses, Pair};
use roce_proto::cm::message::{ConnectionIds, Gid, Message, Private, Rep, Req};
use roce_proto::cm::{tcp_service, udp_service};
use roce_proto::psn::Psn;

use super::exchange::{self, Told};
use super::link::{Link, Terms};
use super::packet::MASK;
use super::peer::Peer;
use super::wire::{Wire, wide};
use crate::conform::record::Record;
use crate::conform::verdict::{Needs, Play, Presence, Progress, Role, Verdict, fail, skip};
use crate::signals;

/// The beginning of the text about a peer that should connect and does not.
const ABSENT: &str = "the peer did not connect";
/// How long a server that serves one connection may take to start again.
const RESTART: Duration = Duration::from_secs(2);
/// How long a listening peer may be away.
const AWAY: Duration = Duration::from_secs(10);
/// Between two repetitions of a message without reply.
pub(super) const AGAIN: Duration = Duration::from_millis(300);

/// How connections are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// By the connection manager.
    Manager,
    /// By path: ibv_rc_pingpong exchanges numbers over TCP.
    Pingpong,
}

pub(crate) struct Bench {
    pub(super) role: Role,
    pub(super) way: Way,
    /// The peer's address, or ours if it connects.
    pub(super) address: SocketAddr,
    pub(super) wire: Rc<Wire>,
    pub(super) peer: Peer,
    pub(super) progress: Progress,
    pub(super) patience: Duration,
    /// How long the peer may take to connect.
    wait: Duration,
    random: u64,
}

impl Bench {
    /// For a peer that listens at `address`.
    pub(super) fn connecting(
        address: SocketAddr,
        from: Option<IpAddr>,
        way: Way,
        patience: Duration,
    ) -> io::Result<Self> {
        let wire = match from {
            Some(here) => Wire::bind(here, address.ip())?,
            None => own_address(address)?,
        };
        Ok(Self::new(Role::Responder, way, address, wire, patience, patience))
    }

    /// For a peer that connects to `address`; port 0 takes one.
    pub(super) fn listening(
        mut address: SocketAddr,
        patience: Duration,
        wait: Duration,
    ) -> io::Result<Self> {
        let nobody = if address.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
        let wire = Wire::bind(address.ip(), nobody)?;
        if address.port() == 0 {
            address.set_port(0xc000 | (seed() as u16 & 0x3fff));
        }
        Ok(Self::new(Role::Initiator, Way::Manager, address, wire, patience, wait))
    }

    fn new(
        role: Role,
        way: Way,
        address: SocketAddr,
        wire: Wire,
        patience: Duration,
        wait: Duration,
    ) -> Self {
        Self {
            role,
            way,
            address,
            wire: Rc::new(wire),
            peer: Peer::default(),
            progress: Progress::default(),
            patience,
            wait,
            random: seed(),
        }
    }

    /// A random number.
    pub(super) fn random(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) as u32
    }

    pub(super) fn qpn(&mut self) -> u32 {
        (self.random() & 0x7f_ffff) | 0x10_0000
    }

    /// A fresh record for the next case.
    pub(super) fn begin(&mut self) -> Rc<Record> {
        let record = Record::new();
        self.wire.begin(record.clone());
        self.wire.drain();
        record
    }

    /// The peer's state after a case: one that listens must accept a good request; one that connects must have
    /// connected.
    pub(super) fn presence(&mut self, verdict: &Verdict) -> Presence {
        if self.role == Role::Initiator {
            let absent = matches!(verdict, Verdict::Skip(why) if why.starts_with(ABSENT));
            return if absent { Presence::Gone } else { Presence::There };
        }
        // By path each connection costs the peer a process.
        if self.way == Way::Pingpong {
            return Presence::There;
        }
        let record = self.wire.record();
        self.wire.begin(Record::new());
        let started = Instant::now();
        let presence = loop {
            let there = self.operating().is_ok();
            match started.elapsed() {
                time if there && time < RESTART => break Presence::There,
                time if there => break Presence::Away(time),
                time if time >= AWAY || signals::caught() => break Presence::Gone,
                _ => {}
            }
        };
        self.wire.begin(record);
        presence
    }

    /// A request for a connection as it should be.
    pub(super) fn usual(&mut self) -> Req {
        let (here, there) = (self.wire.here, self.wire.there());
        let pair = match (here, there) {
            (IpAddr::V4(here), IpAddr::V4(there)) => {
                Pair::V4 { source: here.octets(), destination: there.octets() }
            }
            _ => Pair::V6 { source: wide(here), destination: wide(there) },
        };
        let addresses = Addresses { source_port: 0x8000 | self.random() as u16, pair };
        Req {
            local_id: self.random() | 1,
            service: tcp_service(self.address.port()),
            ca_guid: 0x0200_00ff_fe00_0001,
            qpn: self.qpn(),
            responder_resources: 4,
            initiator_depth: 4,
            remote_response_timeout: 18,
            local_response_timeout: 14,
            transport: 0,
            starting_psn: Psn::new(self.random() & MASK),
            retry_count: 7,
            rnr_retry_count: 7,
            pkey: 0xffff,
            mtu: 3,
            max_cm_retries: 15,
            srq: false,
            local_gid: Gid(wide(here)),
            remote_gid: Gid(wide(there)),
            flow_label: 0,
            rate: 3,
            traffic_class: 0,
            hop_limit: 64,
            service_level: 0,
            ack_timeout: 14,
            private: addresses.with(&self.peer.request()).unwrap_or_default(),
        }
    }

    /// Sends a request, again while no reply comes, and returns the reply. Tells of time that the peer needs are obeyed.
    pub(super) fn ask(&mut self, req: &Req) -> Option<Told> {
        let octets = Message::Req(*req).emit(u64::from(req.local_id) << 8).emit();
        self.ask_with(req.local_id, &octets)
    }

    /// The same with these octets.
    pub(super) fn ask_with(&mut self, id: u32, octets: &[u8]) -> Option<Told> {
        let until = Instant::now() + self.patience;
        while Instant::now() < until && !signals::caught() {
            exchange::send(&self.wire, self.wire.there(), octets);
            if let Some(told) = self.reply_to(id, AGAIN) {
                return Some(told);
            }
        }
        None
    }

    /// The next REP or REJ for our id.
    pub(super) fn reply_to(&self, id: u32, wait: Duration) -> Option<Told> {
        exchange::next(&self.wire, wait, |told| {
            let is_reply = matches!(told.1, Message::Rep(_) | Message::Rej { .. });
            (is_reply && exchange::of(&told.1) == id).then_some(*told)
        })
    }

    /// Sends a request, and fails unless the peer accepts.
    pub(super) fn accepted(&mut self, req: &Req) -> Play<Rep> {
        if self.way != Way::Manager {
            return skip(Needs::Manager.lacking());
        }
        match self.ask(req) {
            Some((_, Message::Rep(rep))) => Ok(rep),
            Some((_, Message::Rej { reason, .. })) => {
                fail(format!("the request was rejected: {reason}"))
            }
            _ => fail("the request for a connection was not answered"),
        }
    }

    /// The connection that a request and its reply make; the tester is not ready yet.
    pub(super) fn linked(&self, req: &Req, rep: &Rep) -> Link {
        self.wire.open(req.qpn);
        let terms = Terms {
            qpn: req.qpn,
            peer_qpn: rep.qpn,
            ours: rep.starting_psn.get(),
            theirs: req.starting_psn.get(),
            mtu: 128 << req.mtu,
            resources: rep.responder_resources,
            ids: Some(ConnectionIds { local: req.local_id, remote: rep.ids.local }),
            private: rep.private.0.to_vec(),
            writes: self.peer.writes,
        };
        Link::new(self.wire.clone(), terms, self.patience)
    }

    /// Says that the tester is ready.
    pub(super) fn ready(&self, ids: ConnectionIds) {
        let message = Message::Rtu { ids, private: Private::default() };
        exchange::send(
            &self.wire,
            self.wire.there(),
            &message.emit(u64::from(ids.local) << 8).emit(),
        );
    }

    /// A connection in operation by this request.
    pub(super) fn connected(&mut self, req: &Req) -> Play<Link> {
        let rep = self.accepted(req)?;
        let link = self.linked(req, &rep);
        self.ready(ConnectionIds { local: req.local_id, remote: rep.ids.local });
        Ok(link)
    }

    /// A connection in operation, in either role.
    pub(super) fn operating(&mut self) -> Play<Link> {
        match (self.role, self.way) {
            (_, Way::Pingpong) => self.by_path(),
            (Role::Initiator, _) => {
                let (req, transaction) = self.requested()?;
                self.accept(&req, transaction)
            }
            _ => {
                let req = self.usual();
                self.connected(&req)
            }
        }
    }

    /// As passive end: the peer's next request.
    pub(super) fn requested(&mut self) -> Play<(Req, u64)> {
        let service = tcp_service(self.address.port());
        self.wire.meet(if self.wire.here.is_ipv4() { [0; 4].into() } else { [0; 16].into() });
        let found = exchange::next(&self.wire, self.wait, |(mad, message)| match message {
            Message::Req(req) if req.service == service => Some((*req, mad.transaction)),
            _ => None,
        });
        let Some((req, transaction)) = found else {
            return skip(format!("{ABSENT} within {:?}", self.wait));
        };
        self.wire.record().event("peer asks for a connection");
        self.meet(&req)?;
        Ok((req, transaction))
    }

    /// The peer is who asks. It may be a new process at another address.
    fn meet(&self, req: &Req) -> Play {
        let address = Addresses::parse(&req.private.0).map(|addresses| match addresses.pair {
            Pair::V4 { source, .. } => IpAddr::from(source),
            Pair::V6 { source, .. } => IpAddr::from(source),
        });
        let Some(address) = address else {
            let text = "the request's private data does not begin with the addresses";
            self.wire.record().broken(&["IBCM-07"], text);
            return fail(text);
        };
        self.wire.meet(address);
        Ok(())
    }

    /// The reply that accepts a request.
    pub(super) fn usual_reply(&mut self, req: &Req) -> Rep {
        Rep {
            ids: ConnectionIds { local: self.random() | 1, remote: req.local_id },
            qpn: self.qpn(),
            starting_psn: Psn::new(self.random() & MASK),
            responder_resources: req.initiator_depth.min(4),
            initiator_depth: req.responder_resources.min(4),
            target_ack_delay: 15,
            rnr_retry_count: 7,
            srq: false,
            ca_guid: 0x0200_00ff_fe00_0001,
            private: Private::default(),
        }
    }

    pub(super) fn reply(&self, message: &Message, transaction: u64) {
        exchange::send(&self.wire, self.wire.there(), &message.emit(transaction).emit());
    }

    /// Replies to a request; returns the connection once the peer is ready.
    pub(super) fn accept(&mut self, req: &Req, transaction: u64) -> Play<Link> {
        let rep = self.usual_reply(req);
        let link = self.offered(req, &rep);
        let until = Instant::now() + self.patience;
        loop {
            self.reply(&Message::Rep(rep), transaction);
            let id = rep.ids.local;
            let is_ready = exchange::next(&self.wire, AGAIN, |told| {
                (matches!(told.1, Message::Rtu { .. }) && exchange::of(&told.1) == id).then_some(())
            });
            if is_ready.is_some() {
                return Ok(link);
            }
            if Instant::now() > until || signals::caught() {
                return fail("the peer did not say that it is ready after our reply");
            }
        }
    }

    /// The connection that a peer's request and our reply make.
    pub(super) fn offered(&self, req: &Req, rep: &Rep) -> Link {
        self.wire.open(rep.qpn);
        let terms = Terms {
            qpn: rep.qpn,
            peer_qpn: req.qpn,
            ours: req.starting_psn.get(),
            theirs: rep.starting_psn.get(),
            mtu: 128 << req.mtu.clamp(1, 5),
            resources: req.responder_resources,
            ids: Some(rep.ids),
            private: req.private.0[Addresses::LEN..].to_vec(),
            writes: self.peer.writes,
        };
        Link::new(self.wire.clone(), terms, self.patience)
    }

    /// The datagram service beside the peer's port.
    pub(super) const fn datagram_service(&self) -> u64 {
        udp_service(self.address.port())
    }
}

fn seed() -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    time.map_or(1, |time| time.as_nanos() as u64) ^ u64::from(std::process::id()) << 32 | 1
}

/// The own address on the way to a peer; of 127.0.0.0/8 one that nobody has.
fn own_address(peer: SocketAddr) -> io::Result<Wire> {
    if let IpAddr::V4(there) = peer.ip()
        && there.is_loopback()
    {
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for number in 0..200u8 {
            let here = Ipv4Addr::new(127, 0, 45, 2 + number);
            if here == there {
                continue;
            }
            match Wire::bind(here.into(), there.into()) {
                Ok(wire) => return Ok(wire),
                Err(error) => last = error,
            }
        }
        return Err(last);
    }
    let any: IpAddr = if peer.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let probe = UdpSocket::bind((any, 0))?;
    probe.connect(peer)?;
    Wire::bind(probe.local_addr()?.ip(), peer.ip())
}
