//! RoCE queue pairs: the protocol core of `roce-proto` with its queues, under one lock.
//!
//! Owner: the RNIC's table; the connection manager and the engine's table of numbers have references. Any thread
//! posts; the thread that receives delivers packets. If the peer dies, a request or a probe of this end fails after
//! its retries, and the connection ends: both queues are flushed, and the event has the reason. Reuse: a connection
//! begins with a new core and a new number; only completions remain of the earlier one. Full: posts are refused.
//!
//! # Life cycle
//!
//! In Idle, receives can be posted. The connection manager begins a connection ([`RoceQp::begin`]); from then on
//! packets of the peer are served. The QP is in RTS once the peer is known to be ready ([`RoceQp::ready`]). Without the
//! connection manager the consumer does both steps (`paths`).
//! InfiniBand has no orderly close of its own: every end of a connection flushes, and the connection manager tells
//! the peer.

mod core;
mod deferral;
mod drive;
mod ending;
mod habit;
mod host;
mod paths;
mod post;
mod publish;
mod queues;
mod send;
mod served;
pub(crate) mod status;
mod telling;
mod transmit;
mod verbs;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use kal_os::lock;
use roce_proto::rc::RcConfig;
use vp_api::{
    AsyncEvent, PathSender, PeerPath, QpId, QpInit, QpState, Role, VpError, VpResult, VpStatus,
};
use vp_soft::events::EventSink;
use vp_soft::memory::stag_table::StagTable;
use vp_soft::queue::srq::SoftSrq;

use self::core::Core;
use self::telling::Telling;
use crate::cq::RoceCq;
use crate::engine::{Engine, Socket};
use crate::path;
use crate::settings::Settings;
use crate::tuning::ACK_TIMEOUT;
use deferral::Deferral;
use habit::Habit;
pub(crate) use paths::RocePaths;
pub(crate) use post::{GONE, each};
use publish::Record;
use queues::{Context, Queues};

/// The parts of a queue pair, apart from its sizes.
pub(crate) struct QpParts {
    pub(crate) send_cq: Arc<RoceCq>,
    pub(crate) recv_cq: Arc<RoceCq>,
    pub(crate) srq: Option<Arc<SoftSrq>>,
    pub(crate) table: Arc<StagTable>,
    pub(crate) windows: Arc<AtomicU32>,
    pub(crate) events: Arc<EventSink>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) settings: Settings,
}

/// A queue pair.
pub(crate) struct RoceQp {
    me: Weak<Self>,
    context: Context,
    init: QpInit,
    engine: Arc<Engine>,
    settings: Settings,
    events: Arc<EventSink>,
    state: Mutex<State>,
    /// Ended connections whose event is not delivered yet.
    telling: Telling,
}

struct State {
    phase: QpState,
    destroyed: bool,
    /// The connection manager is connecting it.
    claimed: bool,
    ird: u16,
    ord: u16,
    /// The number for bring-up by path, which is its until it is destroyed.
    path_number: Option<u32>,
    /// It stands for an exchange whose messages name this number, and takes no part.
    carried: Option<u32>,
    /// Why the peer rejected the last attempt to connect it.
    refusal: Option<u16>,
    /// Its connections are unreliable.
    unreliable: bool,
    link: Option<Link>,
    queues: Queues,
    ended: Option<AsyncEvent>,
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
    /// Code of the acknowledge timeout that was asked for.
    ack_timeout: Option<u8>,
    /// Of the connection, also when it is over.
    in_force: Option<(PeerPath, PathSender)>,
    record: Record,
}

impl State {
    /// Whether requests may be sent. An end that accepted need not wait for the peer's last message: rdma-core's
    /// rdma_accept brings the queue pair to RTS.
    fn takes_sends(&self) -> bool {
        let accepted = || self.link.as_ref().is_some_and(|link| link.unconfirmed.is_some());
        self.phase == QpState::Rts || (self.phase == QpState::Idle && accepted())
    }
}

/// A connection.
struct Link {
    core: Core,
    number: u32,
    /// The peer's queue pair.
    destination: u32,
    /// Octets of the path MTU.
    mtu: u32,
    socket: Arc<Socket>,
    peer: IpAddr,
    /// The peer is on this host.
    near: bool,
    /// A packet of the peer had this provider's mark, so that the invariant CRC is checked in full.
    ours: bool,
    /// Our id of the exchange whose last message has not arrived. A packet of the peer counts as that message.
    unconfirmed: Option<u32>,
    /// Of this end; `None`: neither end initiated.
    role: Option<Role>,
    /// Whether this end probes an idle peer.
    probes: bool,
    /// When the last packet of the peer arrived.
    heard: u64,
    /// A probe is outstanding.
    probing: bool,
    /// The earliest timer that is set.
    timer: Option<u64>,
    habit: Habit,
    deferral: Deferral,
    /// The engine's list of those that keep something has it.
    listed: bool,
}

/// The parameters of a connection that begins.
pub(crate) struct Path {
    pub(crate) config: RcConfig,
    pub(crate) number: u32,
    pub(crate) socket: Arc<Socket>,
    pub(crate) peer: IpAddr,
    pub(crate) unconfirmed: Option<u32>,
    pub(crate) role: Option<Role>,
    pub(crate) probes: bool,
    /// Code of the acknowledge timeout.
    pub(crate) ack_timeout: u8,
}

impl Path {
    fn in_force(&self) -> (PeerPath, PathSender) {
        let Self { config, socket, peer, ack_timeout, .. } = self;
        let receives = PeerPath {
            local_gid: path::gid(socket.local()),
            remote_gid: path::gid(*peer),
            qpn: config.destination,
            psn: config.receive_psn.get(),
            mtu_code: config.mtu.code(),
            ird: config.responder_resources.into(),
            min_rnr_timer: config.min_rnr_timer,
        };
        let sends = PathSender {
            psn: config.send_psn.get(),
            ack_timeout: *ack_timeout,
            retry_count: config.retry_count,
            rnr_retry: config.rnr_retry,
            ord: config.initiator_depth.into(),
        };
        (receives, sends)
    }
}

/// The slot number of a probe; no request of the consumer has it.
const PROBE: u32 = u32::MAX;

impl RoceQp {
    pub(crate) fn create(id: QpId, parts: QpParts, init: &QpInit) -> VpResult<Arc<Self>> {
        let QpParts { send_cq, recv_cq, srq, table, windows, events, engine, settings } = parts;
        let [caller, peer, receiver] = Context::callers(id, init, srq.as_deref());
        let queues = Queues::new(init, peer, srq.as_deref())?;
        let context = Context { id, caller, receiver, table, windows, send_cq, recv_cq, srq };
        let state = State {
            phase: QpState::Idle,
            destroyed: false,
            claimed: false,
            ird: init.ird,
            ord: init.ord,
            path_number: None,
            carried: None,
            refusal: None,
            unreliable: false,
            link: None,
            queues,
            ended: None,
            local: None,
            remote: None,
            ack_timeout: None,
            in_force: None,
            record: Record::default(),
        };
        let qp = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            context,
            init: init.clone(),
            engine,
            settings,
            events,
            state: Mutex::new(state),
            telling: Telling::default(),
        });
        let Context { send_cq, recv_cq, srq, .. } = &qp.context;
        if let Some(srq) = srq {
            srq.completes_to(init.recv_cq, Arc::<RoceCq>::downgrade(recv_cq))?;
        }
        let joined = send_cq.join(id, qp.me.clone());
        let joined = joined.and_then(|()| recv_cq.join(id, qp.me.clone()));
        joined.inspect_err(|_| qp.leave_queues())?;
        Ok(qp)
    }

    fn leave_queues(&self) {
        self.context.send_cq.leave(self.context.id);
        self.context.recv_cq.leave(self.context.id);
    }

    pub(crate) fn has_srq(&self) -> bool {
        self.context.srq.is_some()
    }

    /// The settings of its RNIC.
    pub(crate) fn settings(&self) -> Settings {
        self.settings
    }

    /// How many send requests may be posted.
    pub(crate) fn send_depth(&self) -> u32 {
        self.init.send_depth
    }

    /// Code of the time after which it repeats packets on connections of the connection manager.
    pub(crate) fn ack_timeout(&self) -> u8 {
        lock(&self.state).ack_timeout.map_or(ACK_TIMEOUT, paths::granted)
    }

    /// For the connection manager: claims the queue pair for a connection.
    pub(crate) fn claim(&self) -> VpResult<()> {
        let mut state = self.alive()?;
        if state.phase != QpState::Idle || state.claimed {
            let what = if state.claimed { "is being connected" } else { "must be in Idle" };
            let detail =
                format!("queue pair {} {what}; it is {:?}", self.context.id.0, state.phase);
            return Err(VpError::new(VpStatus::InvalidState, detail));
        }
        state.claimed = true;
        Ok(())
    }

    /// For the connection manager: releases the claim; the queue pair is not connected.
    pub(crate) fn disclaim(&self) {
        lock(&self.state).claimed = false;
    }

    /// For the connection manager: its messages name this number from now on.
    pub(crate) fn carry(&self, number: u32) -> VpResult<()> {
        self.alive()?.carried = Some(number);
        Ok(())
    }

    /// The number that it carries.
    pub(crate) fn carried(&self) -> Option<u32> {
        lock(&self.state).carried
    }

    /// For the connection manager: whether the connection that it has now is to end.
    pub(crate) fn abandons(&self) -> bool {
        let state = lock(&self.state);
        state.phase == QpState::Error || state.carried.is_some()
    }

    /// For the connection manager: why the peer rejected it, if it did.
    pub(crate) fn set_refusal(&self, reason: Option<u16>) {
        lock(&self.state).refusal = reason;
    }

    pub(crate) fn refusal(&self) -> Option<u16> {
        lock(&self.state).refusal
    }

    /// For the connection manager: serves packets of the peer from now on.
    pub(crate) fn begin(&self, path: Path) -> VpResult<()> {
        let mut state = self.alive()?;
        let core = Core::new(path.config, state.unreliable).map_err(|_| {
            vp_api::room::none::<u64>("requests of a connection", path.config.send_depth as usize)
        })?;
        let now = self.engine.now();
        state.in_force = Some(path.in_force());
        let near = path.socket.is_near(path.peer);
        let Path { config, number, socket, peer, unconfirmed, role, probes, .. } = path;
        let (destination, mtu) = (config.destination, config.mtu.octets());
        let (probing, timer) = (false, None);
        state.link = Some(Link {
            core,
            number,
            destination,
            mtu,
            socket,
            peer,
            near,
            ours: false,
            unconfirmed,
            role,
            probes,
            heard: now,
            probing,
            timer,
            habit: Habit::default(),
            deferral: Deferral::new(self.init.send_depth),
            listed: false,
        });
        state.ended = None;
        (state.queues.sends_lost, state.queues.receives_lost) = (0, 0);
        state.queues.refused = None;
        state.publish_begin();
        self.advance(&mut state, now);
        Ok(())
    }

    /// For the connection manager: the peer is ready. Returns false if the connection has ended already.
    pub(crate) fn ready(&self, depths: (u16, u16), local: SocketAddr, remote: SocketAddr) -> bool {
        let mut state = lock(&self.state);
        let Some(link) = &mut state.link else { return false };
        link.unconfirmed = None;
        state.phase = QpState::Rts;
        (state.ird, state.ord) = depths;
        (state.local, state.remote) = (Some(local), Some(remote));
        state.publish_ready();
        true
    }

    fn alive(&self) -> VpResult<MutexGuard<'_, State>> {
        let state = lock(&self.state);
        if state.destroyed {
            let detail = format!("queue pair {} was destroyed", self.context.id.0);
            return Err(VpError::new(VpStatus::InvalidHandle, detail));
        }
        Ok(state)
    }
}
