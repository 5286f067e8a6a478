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
mod habit;
mod host;
mod paths;
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
use roce_proto::rc::{self, PostError, RcConfig, SendOp};
use roce_proto::uc::Dropped;
use roce_proto::wire::packet::Packet;
use vp_api::state_page::layout::end;
use vp_api::{
    AsyncEvent, EventSource, PathSender, PeerPath, PostFailure, QpId, QpInit, QpState, RecvWr,
    Role, SendWr, VpError, VpResult, VpStatus, WcStatus,
};
use vp_soft::events::EventSink;
use vp_soft::memory::stag_table::StagTable;
use vp_soft::queue::srq::SoftSrq;

use self::core::Core;
use self::telling::Telling;
use crate::cq::RoceCq;
use crate::engine::{Arrived, Engine, Reason, Socket};
use crate::path;
use crate::settings::Settings;
use crate::tuning::{ACK_TIMEOUT, BATCH_OCTETS, PROBE_AFTER_US};
use deferral::Deferral;
use habit::Habit;
use host::View;
pub(crate) use paths::RocePaths;
use publish::{Record, end_of};
use queues::{Context, Deferred, Pending, Queues};

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

    /// Handles a packet for its number. Returns our id of the exchange that the packet confirms, if any.
    pub(crate) fn receive(
        &self,
        now: u64,
        socket: &Arc<Socket>,
        arrived: &Arrived<'_>,
        packet: &Packet<'_>,
    ) -> Option<u32> {
        let mut state = lock(&self.state);
        let State { link, queues, record, .. } = &mut *state;
        let link = link.as_mut()?;
        let number = packet.headers.bth.destination;
        // Only packets with the peer's address are served. A peer's address can be forged.
        let expected = link.number == number && link.peer == arrived.from.ip();
        if !expected || !Arc::ptr_eq(&link.socket, socket) {
            self.engine.drops.count(Reason::Stray);
            return None;
        }
        // [IBRC-24]
        let ours = link.ours || packet.headers.bth.has_own_mark();
        if !socket.is_whole(arrived, ours) {
            self.engine.drops.count(Reason::Damaged);
            return None;
        }
        if ours && !link.ours {
            link.ours = true;
            link.core.divide_writes();
        }
        link.heard = now;
        record.packets_received += 1;
        record.octets_received += packet.payload.len() as u64;
        // Once it is broken, the peer gets one refusal.
        if link.core.broken().is_none() {
            if arrived.is_marked() {
                link.core.handle_mark(now, packet);
            }
            let mut view = View { context: &self.context, queues };
            match link.core.handle_packet(now, packet, &mut view) {
                Ok(()) => {}
                Err(Dropped::Stray) => self.engine.drops.count(Reason::Stray),
                Err(Dropped::Unready) => self.engine.drops.count(Reason::Unready),
            }
        }
        link.unconfirmed
    }

    /// Acts on the packets that were received, and sends what they ask for. `may_keep`: an acknowledgement may be kept
    /// for the consumer's next request. Returns whether one is.
    pub(crate) fn reply(&self, may_keep: bool) -> bool {
        let mut state = lock(&self.state);
        if let Some(link) = state.link.as_mut().filter(|_| !may_keep) {
            link.listed = false;
        }
        self.work(&mut state, self.engine.now(), may_keep);
        state.publish();
        let Some(link) = &mut state.link else { return false };
        let keeps = may_keep && link.core.owes_reply();
        keeps && !std::mem::replace(&mut link.listed, true)
    }

    /// Whether requests that were just posted wait for others.
    fn defers(&self, state: &mut State, (posts, octets): (u32, u64), now: u64) -> bool {
        let may = self.engine.may_keep() && state.takes_sends();
        let Some(link) = state.link.as_mut().filter(|_| may) else { return false };
        self.may_wait(link, &state.queues) && link.deferral.add(posts, octets, now)
    }

    /// Whether an acknowledgement, or at once the next poll, ends the wait of posts.
    fn may_wait(&self, link: &Link, queues: &Queues) -> bool {
        queues.is_under_way() || (link.deferral.follow() && self.engine.is_polled())
    }

    /// The timer that was set for `at` is due.
    pub(crate) fn on_timer(&self, at: u64, now: u64) {
        let mut state = lock(&self.state);
        let established = state.phase == QpState::Rts;
        let Some(link) = state.link.as_mut().filter(|link| link.timer == Some(at)) else { return };
        link.timer = None;
        link.core.handle_timeout(now);
        if established && link.probes && !link.probing && link.heard + PROBE_AFTER_US <= now {
            // A zero-length Write needs no key.
            let op = SendOp::Write { address: 0, rkey: 0, immediate: None };
            let probe = rc::Post { slot: PROBE, op, len: 0, solicited: false };
            link.probing = link.core.post(probe).is_ok();
        }
        self.advance(&mut state, now);
    }

    /// Completes, posts and sends what it can, and ends the connection if it broke.
    fn advance(&self, state: &mut State, now: u64) {
        self.work(state, now, false);
        state.publish();
    }

    fn work(&self, state: &mut State, now: u64, may_keep: bool) {
        loop {
            self.take_completions(state);
            let State { link: Some(link), queues, record, .. } = state else { return };
            // Each acknowledgement would send the few posts since the last one.
            let waits = may_keep && link.deferral.any() && self.may_wait(link, queues);
            if !waits {
                link.deferral.end(now);
            }
            if let Some(broken) = link.core.broken() {
                // Tells the peer why.
                self.transmit(link, queues, record, now, false);
                record.publish_end(end_of(broken));
                let why = status::of_end(broken, queues.refused, link.core.failed_post());
                return self.finish(state, Some(why));
            }
            if !waits && let Some(pending) = queues.next_ready() {
                match self.start(link, queues, pending) {
                    Ok(()) => continue,
                    Err(status) => {
                        queues.complete_send(&self.context, pending.slot, status);
                        record.publish_end(end::LOCAL_FAULT);
                        return self.finish(state, Some(status::local_fault()));
                    }
                }
            }
            if self.transmit(link, queues, record, now, may_keep) {
                record.publish_end(end::TOO_LONG);
                return self.finish(state, Some(AsyncEvent::ConnectionLost));
            }
            if link.core.broken().is_none() && !link.core.has_completed() {
                return self.set_timer(link, now);
            }
        }
    }

    fn take_completions(&self, state: &mut State) {
        let State { link: Some(link), queues, .. } = state else { return };
        while let Some(done) = link.core.poll_completion() {
            if done.slot == PROBE {
                link.probing = false;
                continue;
            }
            let fault =
                if done.status == rc::Status::LocalProtection { queues.fault } else { None };
            let status = status::of_send(done.status, fault);
            queues.complete_send(&self.context, done.slot, status);
        }
    }

    /// Executes a request, or hands it to the core.
    fn start(
        &self,
        link: &mut Link,
        queues: &mut Queues,
        Pending { slot, post, .. }: Pending,
    ) -> Result<(), WcStatus> {
        let Some(post) = post else {
            queues.execute_local(&self.context, slot).map_err(status::of_local)?;
            queues.complete_send(&self.context, slot, WcStatus::Success);
            return Ok(());
        };
        link.core.post(post).map_err(|error| match error {
            PostError::NoReads => WcStatus::ZeroReadResources,
            PostError::Length => WcStatus::InvalidLength,
            _ => WcStatus::InvalidWqe,
        })
    }

    /// Sets a timer, unless one is set that fires early enough.
    fn set_timer(&self, link: &mut Link, now: u64) {
        let waits = link.probes && !link.probing;
        let probe = waits.then_some(link.heard + PROBE_AFTER_US);
        let Some(at) = [link.core.deadline(), probe].into_iter().flatten().min() else { return };
        if link.timer.is_none_or(|timer| at < timer) {
            let at = at.max(now);
            link.timer = Some(at);
            self.engine.set_timer(at, link.number);
        }
    }

    /// Ends the connection and flushes everything. With `why`, reports the event and disconnects the peer.
    fn finish(&self, state: &mut State, why: Option<AsyncEvent>) {
        let State { link, queues, record, .. } = state;
        if let Some(link) = link {
            link.core.flush();
            // The consumer may have seen the completion of a receive before its acknowledgement left. Without that,
            // the peer's request would fail, or be repeated for ever.
            self.transmit(link, queues, record, self.engine.now(), false);
        }
        self.take_completions(state);
        if let Some(link) = state.link.take() {
            state.record.keep(link.core.stats());
            if Some(link.number) != state.path_number {
                self.engine.numbers.release(link.number);
            }
        }
        state.queues.flush(&self.context);
        if state.phase == QpState::Error {
            return state.publish();
        }
        state.phase = QpState::Error;
        state.publish();
        if let Some(why) = why {
            state.ended = Some(why);
            self.telling.add();
            (state.queues.deferred.event, state.queues.deferred.abandon) = (Some(why), true);
        }
    }

    /// Ends the connection from this end: disconnects the peer, and reports no event unless it was broken before.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        self.conclude(&mut state);
        state.queues.deferred.abandon = true;
        drop(state);
        self.settle();
    }

    /// For the connection manager, which holds a lock: ends the connection. Afterwards [`RoceQp::settle`] must be
    /// called without the lock.
    pub(crate) fn disconnected(&self) {
        let mut state = lock(&self.state);
        state.claimed = false;
        self.conclude(&mut state);
    }

    /// For the connection manager, which holds a lock: the connection was not made. Ends it if it had begun.
    pub(crate) fn not_connected(&self) {
        let mut state = lock(&self.state);
        state.claimed = false;
        if state.link.is_some() {
            self.conclude(&mut state);
        }
    }

    /// Ends the connection after all packets that have arrived: a refusal among them is the cause, although the peer's
    /// disconnection arrived with it.
    fn conclude(&self, state: &mut State) {
        self.advance(state, self.engine.now());
        self.finish(state, None);
    }

    /// Does the work that was deferred until no lock is held.
    pub(crate) fn settle(&self) {
        loop {
            let deferred = std::mem::take(&mut lock(&self.state).queues.deferred);
            if deferred.is_empty() {
                return;
            }
            let Deferred { send_cq, recv_cq, srq_limit, event, abandon } = deferred;
            if event.is_some() {
                self.telling.begin();
            }
            if !send_cq.is_empty() {
                self.context.send_cq.notify(send_cq);
            }
            if !recv_cq.is_empty() {
                self.context.recv_cq.notify(recv_cq);
            }
            if let Some(srq) = self.context.srq.as_ref().filter(|_| srq_limit) {
                srq.raise_limit();
            }
            if let Some(event) = event {
                self.events.emit(EventSource::Qp(self.context.id), event);
                self.telling.told();
            }
            if abandon {
                self.engine.connections.abandon(&self.engine, self);
            }
        }
    }

    /// Destroys the QP: after this every verb returns `InvalidHandle`.
    pub(crate) fn destroy(&self) {
        let mut state = lock(&self.state);
        state.destroyed = true;
        state.queues.silent = true;
        self.conclude(&mut state);
        if let Some(number) = state.path_number {
            self.engine.numbers.release(number);
        }
        state.publish_to(&self.context, &self.init, None);
        drop(state);
        self.engine.connections.forget(&self.engine, self);
        self.settle();
        self.leave_queues();
    }

    fn alive(&self) -> VpResult<MutexGuard<'_, State>> {
        let state = lock(&self.state);
        if state.destroyed {
            let detail = format!("queue pair {} was destroyed", self.context.id.0);
            return Err(VpError::new(VpStatus::InvalidHandle, detail));
        }
        Ok(state)
    }

    /// Returns the octets that it sends.
    fn post_one(&self, state: &mut State, wr: &SendWr<'_>) -> Result<u64, VpStatus> {
        let takes_sends = state.takes_sends();
        let State { queues, record, .. } = state;
        let slot = queues.send_slot();
        let post = send::post_of(wr, slot)?;
        queues.sends.check(wr)?;
        if !queues.has_send_slot(&self.context) {
            record.publish_refusal();
            return Err(VpStatus::TooManyWrs);
        }
        queues.sends.store(slot, wr);
        queues.take_send_slot();
        if takes_sends {
            queues.pending.push_back(Pending { slot, flags: wr.flags, post });
        } else {
            queues.complete_send(&self.context, slot, WcStatus::Flushed);
        }
        // An operation on local memory has an effect for which the consumer may wait without a poll.
        Ok(post.map_or(BATCH_OCTETS, |post| if post.is_sent() { post.len.into() } else { 0 }))
    }

    fn post_one_receive(&self, state: &mut State, wr: &RecvWr<'_>) -> Result<(), VpStatus> {
        let State { phase, queues, record, .. } = state;
        queues.receives.check(wr)?;
        if !queues.has_receive_slot(&self.context) {
            record.publish_refusal();
            return Err(VpStatus::TooManyWrs);
        }
        queues.receives.post(wr)?;
        if *phase == QpState::Error {
            queues.flush(&self.context);
        }
        Ok(())
    }

    /// Error to Idle.
    fn renew(&self) -> VpResult<()> {
        // What no other thread has taken yet.
        self.settle();
        if !self.telling.wait() {
            let detail = "the event of the end of the connection is being delivered by this thread";
            return Err(VpError::new(VpStatus::StillFlushing, detail));
        }
        // The end of the connection was reported before. Its remaining work is done without this queue pair.
        self.engine.connections.renew(&self.engine, self);
        let mut state = self.alive()?;
        state.queues.untaken_sends.forget_silent();
        state.phase = QpState::Idle;
        state.claimed = false;
        (state.ird, state.ord) = (self.init.ird, self.init.ord);
        (state.local, state.remote, state.ended) = (None, None, None);
        (state.ack_timeout, state.in_force) = (None, None);
        (state.queues.sends_lost, state.queues.receives_lost) = (0, 0);
        state.queues.refused = None;
        state.publish_limits();
        Ok(())
    }

    /// In Idle: the completions of earlier connections leave the CQs.
    fn discard(&self) -> VpResult<()> {
        let mut state = self.alive()?;
        // Under the lock: another thread may have begun a connection.
        if state.phase != QpState::Idle {
            let detail = format!("the queue pair is {:?}; Idle is needed", state.phase);
            return Err(VpError::new(VpStatus::InvalidState, detail));
        }
        self.context.send_cq.discard(self.context.id);
        self.context.recv_cq.discard(self.context.id);
        state.queues.clear_untaken();
        Ok(())
    }
}

/// Posts requests one after the other, and returns how many were posted.
pub(crate) fn each<T>(
    wrs: &[T],
    mut post: impl FnMut(&T) -> Result<(), VpStatus>,
) -> Result<(), PostFailure> {
    let post = |(posted, wr)| post(wr).map_err(|status| PostFailure { posted, status });
    wrs.iter().enumerate().try_for_each(post)
}

pub(crate) const GONE: PostFailure = PostFailure { posted: 0, status: VpStatus::InvalidHandle };
