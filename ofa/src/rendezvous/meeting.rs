//! One rendezvous: a queue pair in RTR or RTS, its peer, and the attempts to connect them.
//!
//! Owned by the queue pair, whose [`Owner`](crate::qp::Owner) it is. Connection events are delivered one
//! after the other. Attempts are begun by the thread that changes the queue pair, by the connection manager's for a
//! request of the peer, and by that of the repetitions: one at a time, and none once the rendezvous is over.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use ibv_sys::IBV_QPS_ERR;
use kal_os::lock;
use ual_cm::{
    AcceptParams, ConnEvent, ConnState, ConnectParams, Connectee, Connection, Disconnect,
    Established,
};
use vp_api::StreamParams;

use crate::adapter::Adapter;
use crate::advice;
use crate::errno::{EINVAL, Errno};
use crate::qp::{Owner, Qp};
use crate::rendezvous::name::{Hello, IMMEDIATES, Name, parts};
use crate::rendezvous::point::{self, PeerRequest};
use crate::rendezvous::retry::Retry;
use crate::rendezvous::steady::Steady;
use crate::tuning::{FIRST_ATTEMPT, LONGEST_ATTEMPT, PEER_CHECK};

/// The shortest time that a send waits for a peer.
const LEAST: Duration = Duration::from_secs(2);
/// The longest, if the program waits without end.
const MOST: Duration = Duration::from_secs(3600);

/// The peer of a queue pair, and the parameters.
pub(crate) struct Peer {
    pub(crate) own: Name,
    pub(crate) own_gid: [u8; 16],
    pub(crate) peer: Name,
    /// Concurrent reads and atomics, in and out.
    pub(crate) ird: u16,
    pub(crate) ord: u16,
    /// This end accepts Sends with Immediate.
    pub(crate) immediates: bool,
}

/// A rendezvous.
pub(crate) struct Meeting {
    qp: Weak<Qp>,
    /// Of the queue pair, when it began.
    life: u64,
    steady: Steady,
    connection: Connection,
    peer: Peer,
    /// The peer accepts Sends with Immediate, as its request said.
    peer_takes: AtomicBool,
    attempts: AtomicU32,
    /// Held while an attempt is begun.
    attempting: Mutex<()>,
    /// The event of a failed attempt was delivered, and no other attempt has begun.
    failed: AtomicBool,
    /// No attempt follows: the stream is over, or the queue pair was reset.
    over: AtomicBool,
    /// When a waiting send was first seen.
    waiting: Mutex<Option<Instant>>,
    /// The peer is gone, and a send found out.
    lost: AtomicBool,
}

impl Meeting {
    pub(crate) fn new(qp: &Arc<Qp>, adapter: &Adapter, peer: Peer) -> Arc<Self> {
        Arc::new(Self {
            qp: Arc::downgrade(qp),
            life: qp.life(),
            steady: Steady::new(qp.vp().clone()),
            connection: adapter.cm().connection(peer.ird, peer.ord),
            peer,
            peer_takes: AtomicBool::new(false),
            attempts: AtomicU32::new(0),
            attempting: Mutex::default(),
            failed: AtomicBool::new(false),
            over: AtomicBool::new(false),
            waiting: Mutex::default(),
            lost: AtomicBool::new(false),
        })
    }

    /// Whether this end is the one that connects.
    pub(crate) fn connects(&self) -> bool {
        self.peer.own < self.peer.peer
    }

    /// Whether the queue pair is its own peer.
    pub(crate) fn is_with_itself(&self) -> bool {
        self.peer.own == self.peer.peer
    }

    /// Concurrent reads and atomics, in and out.
    pub(crate) fn reads(&self) -> (u16, u16) {
        (self.peer.ird, self.peer.ord)
    }

    /// Whether this end accepts Sends with Immediate.
    pub(crate) fn takes_immediates(&self) -> bool {
        self.peer.immediates
    }

    /// The name of the peer.
    pub(crate) fn peer(&self) -> Name {
        self.peer.peer
    }

    fn hello(&self) -> Vec<u8> {
        let Peer { own, own_gid, peer, immediates, .. } = self.peer;
        let flags = if immediates { IMMEDIATES } else { 0 };
        Hello { flags, to: peer.number, from: own.number, gid: own_gid }.octets()
    }

    /// Ends the rendezvous: no attempt begins any more, and one that is under way is cancelled. A stream goes on.
    pub(crate) fn end(self: &Arc<Self>, adapter: &Adapter) {
        self.over.store(true, Ordering::Release);
        let _none_begins = lock(&self.attempting);
        if matches!(self.connection.state(), ConnState::ActivePending | ConnState::PassivePending) {
            let party: Arc<dyn Connectee> = self.clone();
            // Refused: it has ended by itself.
            let _ = adapter.cm().disconnect(&party, Disconnect::Abrupt);
        }
    }

    /// Connects to the peer's listening point.
    ///
    /// # Errors
    /// EINVAL: the rendezvous is over. Those of the connection manager for this process.
    pub(crate) fn connect(self: &Arc<Self>, adapter: &Adapter) -> Result<(), Errno> {
        let Peer { own, peer, .. } = self.peer;
        let (port, _) = parts(peer.number);
        let policy = point::patient(adapter.cm().policies().of(peer.address));
        let params = ConnectParams {
            // The peer checks the address that we connect from.
            local: (!point::meets_any() && is_own(own.address)).then_some(own.address),
            private_data: self.hello(),
            policy: Some(policy),
            ..ConnectParams::new(on_link_of(own.address, peer.address, port))
        };
        let party: Arc<dyn Connectee> = self.clone();
        self.attempt(|| Ok(adapter.cm().connect(&party, params)?))
    }

    /// Accepts the peer.
    ///
    /// # Errors
    /// EINVAL: the rendezvous is over. Those of the connection manager.
    pub(crate) fn accept(
        self: &Arc<Self>,
        adapter: &Adapter,
        PeerRequest { request, immediates, .. }: PeerRequest,
    ) -> Result<(), Errno> {
        self.peer_takes.store(immediates, Ordering::Relaxed);
        let (ird, ord) = (Some(self.peer.ird), Some(self.peer.ord));
        let params = AcceptParams { private_data: self.hello(), ird, ord };
        let party: Arc<dyn Connectee> = self.clone();
        self.attempt(|| Ok(adapter.cm().accept(&party, request, params)?))
    }

    fn attempt(&self, begin: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let _one = lock(&self.attempting);
        if self.is_over() { Err(EINVAL) } else { begin() }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// An attempt failed: repeats it later, or gives up.
    fn failed(self: &Arc<Self>, event: &ConnEvent) {
        tracing::debug!("rendezvous of queue pair {:#x}: {event}", self.peer.own.number);
        self.failed.store(true, Ordering::Release);
        if !self.connects() {
            // The checks below handle it while it waits.
            return;
        }
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        self.later(FIRST_ATTEMPT.saturating_mul(1 << attempt.min(8)).min(LONGEST_ATTEMPT));
    }

    /// Has the waiting time checked now and then, until the peer has come.
    pub(crate) fn wait(self: &Arc<Self>) {
        self.later(PEER_CHECK);
    }

    /// Tries again after a pause, unless a send has waited too long.
    fn later(self: &Arc<Self>, pause: Duration) {
        let Some(qp) = self.qp.upgrade() else { return };
        let now = Instant::now();
        let this: Weak<Self> = Arc::downgrade(self);
        let again = |adapter: &Arc<Adapter>| adapter.points().retries.at(now + pause, this);
        if !(self.is_patient(&qp, now) && qp.adapter().is_ok_and(again)) {
            self.give_up(&qp);
        }
    }

    /// The peer is gone: the queue pair learns it when a send has been tried for as long as its attributes say,
    /// at most [`LEAST`].
    pub(crate) fn lose(self: &Arc<Self>) {
        self.lost.store(true, Ordering::Release);
        let Some(qp) = self.qp.upgrade() else { return };
        let when = Instant::now() + qp.retry_time().min(LEAST);
        let this: Weak<Self> = Arc::downgrade(self);
        let later = |adapter: &Arc<Adapter>| adapter.points().retries.at(when, this);
        if !qp.adapter().is_ok_and(later) {
            self.give_up(&qp);
        }
    }

    /// Makes the connection ready for another attempt. False: the event that says how the last one ended, or the
    /// stream that it established, is still to come.
    fn restart(&self, adapter: &Adapter) -> Result<bool, Errno> {
        let _one = lock(&self.attempting);
        if self.is_over() {
            return Err(EINVAL);
        }
        if self.connection.state() != ConnState::Nonoperational {
            return Ok(true);
        }
        let failed = self.failed.swap(false, Ordering::AcqRel);
        if failed {
            adapter.cm().reset(self)?;
        }
        Ok(failed)
    }

    fn is_patient(&self, qp: &Qp, now: Instant) -> bool {
        let sends = qp.vp().query().is_ok_and(|info| info.sends_outstanding > 0);
        let mut waiting = lock(&self.waiting);
        let bound = qp.retry_time().clamp(LEAST, MOST);
        !sends || now - *waiting.get_or_insert(now) < bound
    }

    fn give_up(&self, qp: &Qp) {
        if !self.lost.load(Ordering::Acquire) {
            advice::no_peer();
        }
        self.steady.allow_changes();
        qp.ended(self.life, true);
    }
}

/// The peer's address: a link-local one is on the link of this end's.
fn on_link_of(own: IpAddr, peer: IpAddr, port: u16) -> SocketAddr {
    match (kal_os::socket_address(own, 0), peer) {
        (SocketAddr::V6(own), IpAddr::V6(peer)) if peer.is_unicast_link_local() => {
            SocketAddrV6::new(peer, port, 0, own.scope_id()).into()
        }
        _ => SocketAddr::new(peer, port),
    }
}

/// Not every GID that a program uses is of an address that can be bound to.
fn is_own(address: IpAddr) -> bool {
    !address.is_unspecified()
}

impl Retry for Meeting {
    fn retry(self: Arc<Self>) {
        let Some(qp) = self.qp.upgrade().filter(|qp| qp.life() == self.life) else { return };
        if self.lost.load(Ordering::Acquire) {
            return self.give_up(&qp);
        }
        let Ok(adapter) = qp.adapter() else { return };
        let connected = self.connection.state() == ConnState::Connected;
        if connected || qp.state() == IBV_QPS_ERR || self.is_over() {
            return;
        }
        let result = match self.restart(adapter) {
            Ok(false) => Ok(()),
            Ok(true) if self.connects() => match self.connect(adapter) {
                // Its event follows.
                Ok(()) => return,
                refused => refused,
            },
            // It comes again if its first request was not accepted.
            Ok(true) => qp.accept_early(&self),
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => self.wait(),
            Err(_) if self.is_over() => {}
            Err(_) => self.give_up(&qp),
        }
    }
}

impl Connectee for Meeting {
    fn qp(&self) -> &dyn vp_api::Qp {
        &self.steady
    }

    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn is_open(&self) -> bool {
        self.qp.strong_count() > 0
    }

    /// Sends with Immediate are used if both ends announce in their private data that they accept them.
    fn adjust(&self, established: &Established, params: &mut StreamParams) {
        let peer_takes = match self.connects() {
            true => Hello::parse(&established.private_data).is_some_and(|it| it.takes_immediates()),
            false => self.peer_takes.load(Ordering::Relaxed),
        };
        params.send_immediates = self.peer.immediates && peer_takes;
    }

    fn deliver(self: Arc<Self>, event: ConnEvent) {
        match &event {
            ConnEvent::Established(_) => self.steady.allow_changes(),
            ConnEvent::Rejected { .. } | ConnEvent::Failed(_) => self.failed(&event),
            _ => {
                self.over.store(true, Ordering::Release);
                if let Some(qp) = self.qp.upgrade() {
                    qp.peer_left(self.life);
                }
            }
        }
    }
}

impl Owner for Meeting {
    fn close(&self, destroy: &mut dyn FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
        self.connection.close(destroy)
    }
}
