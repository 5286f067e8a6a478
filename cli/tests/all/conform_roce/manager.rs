//! The connection manager of the simple peer: it listens, and resolves one datagram service.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use itapi::RemoteRange;
use roce_proto::cm::mad::Mad;
use roce_proto::cm::message::{
    ConnectionIds, Message, Private, RejectReason, Rejected, Rep, Req, SidrStatus,
};
use roce_proto::cm::{tcp_service, udp_service};
use roce_proto::psn::Psn;

use super::faults::Fault;
use super::memory::{READ, Region, WRITE};
use super::peer::{Connection, DATAGRAMS, QKEY, Shared, State};
use super::requester::Requester;
use super::responder::Responder;
use super::wire::{self, MASK, Packet};

/// The key of the connection manager.
const GSI: u32 = 0x8001_0000;
/// Until a message without reply is repeated, and how often.
const AGAIN: Duration = Duration::from_millis(150);
/// An ended connection keeps its ids for so long.
const TIME_WAIT: Duration = Duration::from_millis(400);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Accepted,
    Up,
    Ending,
    Over,
}

/// The messages of one connection.
pub(super) struct Exchange {
    ids: ConnectionIds,
    peer: Ipv4Addr,
    qpn: u32,
    peer_qpn: u32,
    transaction: u64,
    rep: Message,
    most: u32,
    stage: Stage,
    due: Instant,
    sent: u32,
    /// Packets of the peer's are longer than the path MTU by so many octets.
    pub(super) longer: usize,
}

fn mad(shared: &Shared, to: Ipv4Addr, message: &Message, transaction: u64) {
    let other = u64::from(shared.has(Fault::OtherTransaction));
    let octets = message.emit(transaction ^ other).emit();
    let header = [GSI.to_be_bytes(), 1u32.to_be_bytes()].concat();
    shared.send(to, wire::build(0x64, 0, 1, 0, &header, &octets));
}

impl Exchange {
    pub(super) fn is_up(&self) -> bool {
        self.stage == Stage::Up || self.stage == Stage::Accepted
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Ending | Stage::Over)
    }

    pub(super) fn is_gone(&self, now: Instant) -> bool {
        self.stage == Stage::Over && self.due + TIME_WAIT < now
    }

    /// A packet arrived; whether it may be executed.
    pub(super) fn confirm(&mut self, shared: &Shared) -> bool {
        if self.stage == Stage::Accepted {
            if shared.has(Fault::ReadyRequired) {
                return false;
            }
            self.stage = Stage::Up;
        }
        true
    }

    pub(super) fn end(&mut self, shared: &Shared) {
        self.stage = Stage::Ending;
        (self.sent, self.due) = (0, Instant::now() + AGAIN);
        self.ask_to_end(shared);
    }

    fn ask_to_end(&self, shared: &Shared) {
        let (ids, remote_qpn) = (self.ids, self.peer_qpn);
        let message = Message::Dreq { ids, remote_qpn, private: Private::default() };
        mad(shared, self.peer, &message, self.transaction);
    }

    fn over(&mut self) {
        (self.stage, self.due) = (Stage::Over, Instant::now());
    }

    pub(super) fn tick(&mut self, shared: &Shared, now: Instant) {
        if self.due > now || matches!(self.stage, Stage::Up | Stage::Over) {
            return;
        }
        self.due = now + AGAIN;
        self.sent += 1;
        if self.sent > self.most {
            if self.stage == Stage::Accepted {
                let (ids, reason) = (self.ids, RejectReason::TIMEOUT);
                let of = Rejected::Rep;
                let message = Message::Rej { ids, of, reason, private: Private::default() };
                mad(shared, self.peer, &message, self.transaction);
            }
            return self.over();
        }
        match self.stage {
            Stage::Accepted
                if shared.has(Fault::ReplyNotRepeated)
                    || shared.has(Fault::RepeatedRequestIgnored) => {}
            Stage::Accepted => mad(shared, self.peer, &self.rep, self.transaction),
            _ => self.ask_to_end(shared),
        }
    }
}

impl State {
    pub(super) fn message(&mut self, packet: &Packet, from: Ipv4Addr) {
        if packet.u32(0) != GSI {
            return;
        }
        let mut octets = packet.payload.clone();
        if self.shared.has(Fault::ClassNotChecked) && octets.len() == 256 {
            octets[..4].copy_from_slice(&[1, 7, 2, 3]);
        }
        let Ok(told) = Mad::parse(&octets) else { return };
        let Ok(message) = Message::parse(&told) else { return };
        let transaction = told.transaction;
        match message {
            Message::Req(req) => self.asked(&req, from, transaction),
            Message::SidrReq { request, service, .. } => {
                self.resolve(request, service, from, transaction);
            }
            Message::Rtu { ids, .. } => self.with(ids, |one| {
                if one.stage == Stage::Accepted {
                    one.stage = Stage::Up;
                }
            }),
            Message::Mra { ids, timeout, .. } if !self.shared.has(Fault::MraIgnored) => {
                let time = Duration::from_nanos(4096 << timeout);
                self.with(ids, |one| one.due = Instant::now() + time);
            }
            Message::Rej { ids, .. } | Message::Drep { ids, .. } => self.with(ids, Exchange::over),
            Message::Dreq { ids, .. } if !self.shared.has(Fault::EndNotAnswered) => {
                self.with(ids, Exchange::over);
                let ids = ConnectionIds { local: ids.remote, remote: ids.local };
                let reply = Message::Drep { ids, private: Private::default() };
                mad(&self.shared, from, &reply, transaction);
            }
            _ => {}
        }
    }

    /// The exchange with these ids.
    fn with(&mut self, ids: ConnectionIds, act: impl FnOnce(&mut Exchange)) {
        let strange = self.shared.has(Fault::StrangeIdEnds);
        let all = &mut self.connections;
        let is = |one: &Connection| {
            one.exchange.ids == ConnectionIds { local: ids.remote, remote: ids.local }
        };
        let index = all.iter().position(is);
        let index = index.or_else(|| all.len().checked_sub(1).filter(|_| strange));
        if let Some(index) = index {
            act(&mut all[index].exchange);
        }
    }

    fn reject(&self, to: Ipv4Addr, req: &Req, transaction: u64, reason: u16, data: &[u8]) {
        let ids = ConnectionIds { local: 0, remote: req.local_id };
        let private = Private::new(data).unwrap();
        let (of, reason) = (Rejected::Req, RejectReason(reason));
        mad(&self.shared, to, &Message::Rej { ids, of, reason, private }, transaction);
    }

    fn asked(&mut self, req: &Req, from: Ipv4Addr, transaction: u64) {
        let is = |one: &&Connection| one.exchange.ids.remote == req.local_id && one.peer == from;
        let known = self.connections.iter().find(is).map(|one| one.exchange.rep);
        if let Some(rep) = known.filter(|_| !self.shared.has(Fault::RepeatedRequestIsNew)) {
            if !self.shared.has(Fault::RepeatedRequestIgnored) {
                mad(&self.shared, from, &rep, transaction);
            }
            return;
        }
        if req.service != tcp_service(self.shared.port) || req.private.0[0] != 0 {
            if self.shared.has(Fault::UnknownServiceIsSilent) {
                return;
            }
            let other = u16::from(self.shared.has(Fault::UnknownServiceOtherReason));
            return self.reject(from, req, transaction, 8 + 20 * other, b"");
        }
        if !(1..=5).contains(&req.mtu) && !self.shared.has(Fault::MtuNotChecked) {
            return self.reject(from, req, transaction, 26, b"");
        }
        let stale = |one: &Connection| {
            one.peer_qpn == req.qpn && one.peer == from && !one.exchange.is_over()
        };
        let repeats = self.shared.has(Fault::RepeatedRequestIsNew);
        let stale = self.connections.iter().position(stale).filter(|_| !repeats);
        if let Some(index) = stale.filter(|_| !self.shared.has(Fault::StaleAccepted)) {
            self.connections[index].exchange.over();
            return self.reject(from, req, transaction, 10, b"");
        }
        let config = req.private.0[36..].strip_prefix(b"WLC1").unwrap_or(&[16, 0, 0]);
        if config[2] == 1 {
            let data: &[u8] =
                if self.shared.has(Fault::RejectWithoutData) { b"" } else { b"as commanded" };
            let other = u16::from(self.shared.has(Fault::RejectOtherReason));
            return self.reject(from, req, transaction, 28 - other, data);
        }
        self.accept(req, from, transaction, usize::from(config[0]));
    }

    fn accept(&mut self, req: &Req, from: Ipv4Addr, transaction: u64, receives: usize) {
        let shared = &mut self.shared;
        let (qpn, psn) = (shared.random() & 0xff_ff | 0x2_0000, shared.random() & MASK);
        let (own, base) = (0x2000_0000 | shared.random(), 0xb0_0000);
        let region = Region {
            key: own,
            base,
            rights: READ | WRITE,
            is_foreign: false,
            data: vec![0x11; 64],
        };
        shared.memory.0.push(region);
        let all = [0, 1, 2, 3, shared.memory.0.len() - 1].map(|at| &shared.memory.0[at]);
        let mut data = b"WLC1".to_vec();
        for region in all {
            let (context, addr) = (itapi::RmrContext(region.key), region.base);
            let len = region.data.len() as u64;
            data.extend(RemoteRange { context, addr, len }.to_octets());
        }
        if shared.has(Fault::PrivateDataCut) {
            data.truncate(50);
        }
        let more = 5 * u8::from(shared.has(Fault::MoreReadsThanOffered));
        let ids = ConnectionIds { local: shared.random() | 1, remote: req.local_id };
        let rep = Message::Rep(Rep {
            ids,
            qpn,
            starting_psn: Psn::new(psn),
            responder_resources: req.initiator_depth.min(4) + more,
            initiator_depth: req.responder_resources.min(4),
            target_ack_delay: 15,
            rnr_retry_count: 7,
            srq: false,
            ca_guid: 0x0200_00ff_fe00_0002,
            private: Private::new(&data).unwrap(),
        });
        let longer = 256 * usize::from(shared.has(Fault::LongPackets));
        let exchange = Exchange {
            ids,
            peer: from,
            qpn,
            peer_qpn: req.qpn,
            transaction,
            rep,
            most: req.max_cm_retries.into(),
            stage: Stage::Accepted,
            due: Instant::now() + AGAIN,
            sent: 0,
            longer,
        };
        mad(shared, from, &exchange.rep, transaction);
        let expected = psn ^ u32::from(shared.has(Fault::ExpectsOther)) << 20;
        let responder = Responder::new(expected, receives, own);
        let start = req.starting_psn.get() ^ u32::from(shared.has(Fault::OtherStart)) << 20;
        let at_once = usize::from(req.responder_resources.clamp(1, 4));
        let requester = Requester::new(start, req.rnr_retry_count.into(), at_once);
        self.connections.push(Connection {
            qpn: exchange.qpn,
            peer_qpn: req.qpn,
            peer: from,
            mtu: 128 << req.mtu.clamp(1, 5),
            exchange,
            responder,
            requester,
        });
    }

    fn resolve(&self, request: u32, service: u64, from: Ipv4Addr, transaction: u64) {
        let shared = &self.shared;
        let known =
            service == udp_service(shared.port) || shared.has(Fault::UnknownServiceResolved);
        let (status, qpn, qkey) = match known {
            true => (SidrStatus::VALID, DATAGRAMS, QKEY),
            false => (SidrStatus::UNSUPPORTED_SERVICE, 0, 0),
        };
        let request = request ^ u32::from(shared.has(Fault::ResolvesOtherRequest));
        let private = Private::default();
        let reply = Message::SidrRep { request, status, qpn, service, qkey, private };
        mad(shared, from, &reply, transaction);
    }
}
