//! Table of the connection manager: listeners and connection exchanges of all RNICs of the process.
//!
//! Owner: the engine. An exchange outlives its QP until the peer has confirmed the end and late messages are gone.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use kal_os::lock;
use roce_proto::cm::connection::{Connection, Patience, State};
use roce_proto::cm::message::Req;
use roce_proto::psn::Psn;
use vp_api::{NativeEvent, NativeParams, VpError, VpResult, VpStatus};

use super::Events;
use super::listeners::Listeners;
use crate::engine::{Engine, Socket, Touched};
use crate::qp::RoceQp;
use crate::tuning::{CM_RESPONSE, CM_RETRIES};

/// One exchange of messages with a peer, from the request to the end of the connection.
pub(super) struct Exchange {
    pub(super) machine: Connection,
    pub(super) events: Arc<Events>,
    pub(super) socket: Arc<Socket>,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    /// Set from connect or accept on, until the QP is destroyed or reset.
    pub(super) qp: Option<Arc<RoceQp>>,
    /// The queue pair number that the QP will have; it is the QP's once that has begun.
    pub(super) number: Option<u32>,
    /// The request that this end sent or received.
    pub(super) req: Req,
    /// The PSN with which the peer begins.
    pub(super) receive_psn: Psn,
    /// The number and the PSN of the peer's message.
    pub(super) told: Option<Told>,
    /// The parameters that this end's application asked for.
    pub(super) wishes: NativeParams,
    /// IRD and ORD that both ends agreed on.
    pub(super) settled: (u16, u16),
    pub(super) listener: u64,
    /// The application got the event that the connection is established.
    pub(super) is_up: bool,
    /// The application got the event that the connection is over, or ended it itself.
    pub(super) is_told: bool,
}

/// What the peer's message says of its queue pair.
#[derive(Clone, Copy)]
pub(super) struct Told {
    pub(super) qpn: u32,
    /// With which this end begins.
    pub(super) psn: Psn,
    pub(super) rnr_retry: u8,
    pub(super) srq: bool,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) listeners: Listeners<Arc<Events>>,
    pub(super) exchanges: BTreeMap<u32, Exchange>,
}

/// Listeners and exchanges of the process.
#[derive(Default)]
pub(crate) struct ConnectionTable(Mutex<Inner>);

pub(super) fn unknown(what: &str, id: u64) -> VpError {
    VpError::new(VpStatus::InvalidHandle, format!("there is no {what} {id}, or it is over"))
}

/// How long this end waits for a reply.
pub(super) fn patience() -> Patience {
    Patience::of(CM_RESPONSE, CM_RETRIES)
}

impl Inner {
    pub(super) fn free_id(&self, engine: &Engine) -> u32 {
        loop {
            let id = engine.numbers.id();
            if id != 0 && !self.exchanges.contains_key(&id) {
                return id;
            }
        }
    }

    /// The exchange of a QP.
    pub(super) fn of(&mut self, qp: &RoceQp) -> Option<&mut Exchange> {
        let is = |one: &&mut Exchange| {
            one.qp.as_ref().is_some_and(|own| std::ptr::eq(Arc::as_ptr(own), qp))
        };
        self.exchanges.values_mut().find(is)
    }

    /// A request to an RNIC that the application has not decided.
    pub(super) fn offered(
        &mut self,
        events: &Arc<Events>,
        request: u64,
    ) -> VpResult<&mut Exchange> {
        let id = u32::try_from(request).ok();
        id.and_then(|id| self.exchanges.get_mut(&id))
            .filter(|one| one.machine.state() == State::Offered && Arc::ptr_eq(&one.events, events))
            .ok_or_else(|| unknown("connection request", request))
    }

    /// The exchange that a peer's request with its id began.
    pub(super) fn asked_by(&self, peer: IpAddr, its_id: u32) -> Option<u32> {
        let is = |one: &Exchange| {
            one.peer.ip() == peer && one.machine.ids().remote == its_id && one.listener != 0
        };
        self.exchanges.iter().find(|(_, one)| is(one)).map(|(id, _)| *id)
    }

    /// Whether there is a connection with a peer's queue pair.
    pub(super) fn is_connected_to(&self, peer: IpAddr, qpn: u32) -> bool {
        self.exchanges.values().any(|one| {
            let connected = matches!(one.machine.state(), State::Accepted | State::Established);
            connected && one.peer.ip() == peer && one.told.is_some_and(|told| told.qpn == qpn)
        })
    }

    pub(super) fn undecided(&self, listener: u64) -> usize {
        let offered =
            |one: &&Exchange| one.listener == listener && one.machine.state() == State::Offered;
        self.exchanges.values().filter(offered).count()
    }
}

impl ConnectionTable {
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
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

    /// A QP ended its connection: disconnects the peer. Called without the QP's lock, and perhaps late, when another
    /// thread has reset the QP and connects it again.
    pub(crate) fn abandon(&self, engine: &Engine, qp: &RoceQp) {
        let mut inner = self.lock();
        if let Some(one) = inner.of(qp).filter(|_| qp.abandons()) {
            one.end(engine);
        }
        drop(inner);
        engine.wake();
    }

    /// A QP is destroyed: its exchange continues without it.
    pub(crate) fn forget(&self, engine: &Engine, qp: &RoceQp) {
        let mut inner = self.lock();
        if let Some(one) = inner.of(qp) {
            one.is_told = true;
            one.end(engine);
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
            one.end(engine);
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
