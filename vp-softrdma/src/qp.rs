//! Queue pairs: the protocol core bound to a socket, rings and memory.
//!
//! Owner: the RNIC's table; the engine holds a reference while the QP is connected. All mutable state is
//! under one lock per QP ([`CombiningLock`]): the application's threads take it to post, and the thread
//! that finds octets or room in the socket takes it to serve. Nothing is shared between QPs on the data
//! path but the lock-free CQs and the STag table. When the peer dies, the thread that notices has the
//! core flush all work; events and notifications are delivered after unlocking.

mod at_once;
mod coalesce;
pub(crate) mod combining;
pub(crate) mod context;
mod event_delivery;
mod hold;
mod host;
mod inner;
mod link;
mod liveness;
mod modify;
mod post;
pub(crate) mod protocol_core;
mod publish;
mod refused;
mod registration;

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use vp_api::{
    AsyncEvent, EventSource, PostFailure, QpChange, QpId, QpInfo, QpInit, RecvWr, SendWr, SlotRef,
    VpError, VpResult, VpStatus, WorkCompletion,
};
use vp_soft::queue::srq::Waiter;
use vp_soft::queue::untaken::Untaken;
use vp_soft::queue::wq::{RecvRing, RecvWqe, SendRing};

use crate::engine::{Member, Ready, Timer};
use crate::limits;
use crate::parts::QpParts;
use crate::qp::combining::{CombiningLock, Guard, Served};
use crate::queue::cq::SoftCq;
use crate::tuning;
use context::{Context, Deferred, Direct, Lost, Queues};
use event_delivery::EventDelivery;
use inner::{Inner, Limits};
use link::Link;
use protocol_core::ProtocolCore;

const WRITABLE: u8 = 1;
const OVER: u8 = 2;
const RECEIVES: u8 = 4;
const LIFE_LINE: u8 = 8;

/// What a poller learns of a QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Polled {
    /// Everything that the poll could find.
    All,
    /// It waits for room to send, which only the engine's events report.
    Stalled,
    /// Its stream is shared memory, without system calls to count.
    Local,
}

/// What a poll for completions found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Visit {
    pub(crate) polled: Polled,
    /// A completion was passed to the poller, and not queued.
    pub(crate) passed: bool,
    /// There may be completions in the CQ that were not there before.
    pub(crate) found: bool,
}

/// A queue pair.
pub(crate) struct SoftQp {
    context: Context,
    inner: CombiningLock<Inner>,
    delivery: EventDelivery,
    /// What the engine has reported about the socket and no thread has handled yet: bits of [`WRITABLE`],
    /// [`OVER`], [`LIFE_LINE`]. And about an SRQ: [`RECEIVES`].
    readiness: AtomicU8,
    /// How often a poller found another thread inside.
    times_shut_out: AtomicU32,
}

impl SoftQp {
    /// Creates a QP in Idle and enters it at its CQs.
    pub(crate) fn create(parts: QpParts, init: &QpInit) -> VpResult<Arc<Self>> {
        limits::check_qp(init)?;
        let inner = CombiningLock::new(Inner::new(core_of(&parts, init)?, Limits::new(init)));
        let qp = Arc::new_cyclic(|me| Self {
            context: context_of(&parts, init, me),
            inner,
            delivery: EventDelivery::new(),
            readiness: AtomicU8::new(0),
            times_shut_out: AtomicU32::new(0),
        });
        qp.context.arm_recv_limit(init.recv_limit);
        let Context { id, send_cq, recv_cq, .. } = &qp.context;
        if let Some(srq) = &qp.context.srq {
            srq.completes_to(init.recv_cq, Arc::<SoftCq>::downgrade(recv_cq))?;
        }
        send_cq.add_qp(*id, Arc::downgrade(&qp))?;
        let joined = recv_cq.add_qp(*id, Arc::downgrade(&qp));
        joined
            .and_then(|()| qp.context.reserve_waiter())
            .inspect_err(|_| qp.remove_from_queues())?;
        Ok(qp)
    }

    /// Its receives complete in this CQ.
    #[inline]
    pub(crate) fn receives_to(&self, cq: &SoftCq) -> bool {
        std::ptr::eq(&*self.context.recv_cq, cq)
    }

    /// Removes the QP from its CQs.
    fn remove_from_queues(&self) {
        let Context { id, send_cq, recv_cq, .. } = &self.context;
        send_cq.remove_qp(*id);
        if !Arc::ptr_eq(send_cq, recv_cq) {
            recv_cq.remove_qp(*id);
        }
    }

    /// Destroys the QP in any state. Its completions are removed from its CQs, unless they are kept, and it
    /// adds no more.
    /// Requests that have completed take effect at the peer: the stream is closed, or, if that loses
    /// work, reset once everything has arrived.
    /// RDMAC 6.1.4 [VERBS-20]
    pub(crate) fn destroy(&self) {
        let mut inner = self.inner.lock();
        inner.drive_to_end(&self.context);
        let first = !std::mem::replace(&mut inner.destroyed, true);
        inner.core.queues.silent = true;
        // Refused unless in RTS; then there is nothing to close.
        let _ = inner.core.close(&self.context);
        inner.drive_to_end(&self.context);
        inner.leave_stream(&self.context);
        inner.core.abort(&self.context);
        inner.drive(&self.context);
        // The end that follows raises no event either.
        inner.events.clear();
        inner.publish_to(&self.context, None);
        drop(inner);
        if first {
            self.context.release_waiter();
        }
        self.remove_from_queues();
    }

    /// A CQ of this QP lost completions.
    pub(crate) fn fail_locally(&self) {
        let mut inner = self.inner.lock();
        inner.core.fail(&self.context);
        inner.drive(&self.context);
        self.unlock_and_serve(inner);
    }

    /// Reads from the stream, unless another thread is inside.
    pub(crate) fn poll(&self) -> Polled {
        self.poll_into(None).polled
    }

    /// The same for a thread that polls the CQ of the receives, and has room for a completion.
    #[inline]
    pub(crate) fn poll_into(&self, room: Option<&mut WorkCompletion>) -> Visit {
        let mut visit = Visit { polled: Polled::All, passed: false, found: true };
        let Some(mut inner) = self.inner.try_lock() else {
            self.yield_to_holder();
            return visit;
        };
        let read = match &mut inner.link {
            None => None,
            Some(link) => {
                visit.polled = link.polled();
                let unsent = link.unsent && visit.polled != Polled::Local;
                let busy = unsent || visit.polled == Polled::Stalled;
                let engine = &self.context.engine;
                link.registration.count_poll(engine, self.context.id.0, &link.stream, busy);
                inner.core.queues.direct =
                    if room.is_some() { Direct::Open } else { Direct::Closed };
                self.read(&mut inner)
            }
        };
        if let Some(room) = room {
            visit.passed = inner.core.queues.direct.pass_to(room);
        }
        visit.found = read.is_some();
        match read {
            None => drop(inner),
            Some(readiness) => {
                if self.leave(inner, readiness) == Served::More {
                    return visit;
                }
            }
        }
        visit.found |= self.inner.serve_wanted(|inner| self.serve(inner));
        visit
    }

    /// A poller found another thread inside. That thread may be waiting for this processor, and would
    /// wait for as long as this thread may keep it by polling an empty CQ.
    #[cold]
    fn yield_to_holder(&self) {
        let times = self.times_shut_out.load(Ordering::Relaxed).wrapping_add(1);
        self.times_shut_out.store(times, Ordering::Relaxed);
        if times.is_multiple_of(tuning::SHUT_OUTS_PER_YIELD) {
            std::thread::yield_now();
        }
    }

    /// Transmits deferred posts, unless another thread is inside.
    pub(crate) fn flush(&self) {
        if let Some(mut inner) = self.inner.try_lock() {
            inner.flush(&self.context);
            self.unlock_and_serve(inner);
        }
    }

    /// The consumer is about to sleep or relies on notifications: the engine has to watch the socket.
    pub(crate) fn prepare_to_wait(&self) {
        self.stays_unregistered(None);
    }

    fn serve(&self, mut inner: Guard<'_, Inner>) -> Served {
        match self.read(&mut inner) {
            Some(readiness) => self.leave(inner, readiness),
            None => Served::Done,
        }
    }

    /// Reads from the stream. Returns what the engine and an SRQ have reported; `None`: there was nothing to do.
    fn read(&self, inner: &mut Inner) -> Option<u8> {
        // Mostly the flags are 0; the lock orders this thread after those that set them.
        let readiness = match self.readiness.load(Ordering::Acquire) {
            0 => 0,
            _ => self.take_readiness(inner),
        };
        let received =
            inner.receive(&self.context, readiness & OVER != 0, readiness & WRITABLE != 0);
        if !received && readiness & (RECEIVES | LIFE_LINE) == 0 {
            return None;
        }
        self.context.recv_cq.count_arrival();
        Some(readiness)
    }

    /// Ends a visit that found something to do.
    fn leave(&self, mut inner: Guard<'_, Inner>, readiness: u8) -> Served {
        // Last: octets that follow the messages placed now may be a new event.
        if readiness & RECEIVES != 0 {
            inner.give_receives(&self.context);
        }
        self.unlock(inner)
    }

    fn take_readiness(&self, inner: &mut Inner) -> u8 {
        let readiness = self.readiness.swap(0, Ordering::AcqRel);
        if readiness & LIFE_LINE != 0 {
            inner.check_life_line(&self.context);
        }
        readiness
    }

    /// Unlocks, and serves what other threads asked for meanwhile.
    fn unlock_and_serve(&self, inner: Guard<'_, Inner>) {
        if self.unlock(inner) == Served::Done {
            self.inner.serve_wanted(|inner| self.serve(inner));
        }
    }

    /// Unlocks, and does what must not be done under the lock.
    fn unlock(&self, mut inner: Guard<'_, Inner>) -> Served {
        if inner.leaves_nothing() {
            return Served::Done;
        }
        let over = inner.take_over_budget(&self.context);
        let deferred = inner.take_deferred();
        let delivers = !inner.events.is_empty() && self.delivery.begin();
        drop(inner);
        let served = match over {
            Some(stream) => {
                // First: requests from now on may be about what is reported here.
                self.inner.pass_on();
                self.context.engine.rearm(self.context.id.0, &*stream);
                Served::More
            }
            None => Served::Done,
        };
        self.run_deferred(deferred);
        if delivers {
            self.deliver_events();
        }
        served
    }

    #[inline]
    fn post_by(
        &self,
        post: impl FnOnce(&mut Inner) -> Result<(), PostFailure>,
    ) -> Result<(), PostFailure> {
        let mut inner = self.inner.lock();
        let before = inner.coalesce.deferred();
        let result = post(&mut inner);
        let began = before == 0 && inner.coalesce.deferred() != 0;
        self.unlock_and_serve(inner);
        if began {
            self.context.defer();
        }
        result
    }

    fn run_deferred(&self, deferred: Deferred) {
        if !deferred.send_cq.is_empty() {
            self.context.send_cq.run_deferred(deferred.send_cq);
        }
        if !deferred.recv_cq.is_empty() {
            self.context.recv_cq.run_deferred(deferred.recv_cq);
        }
        if deferred.srq_limit
            && let Some(srq) = &self.context.srq
        {
            srq.raise_limit();
        }
        if deferred.recv_limit {
            self.context.events.emit(EventSource::Qp(self.context.id), AsyncEvent::RecvLimit);
        }
    }

    /// Delivers events in the order in which they arose, whichever threads caused them.
    fn deliver_events(&self) {
        loop {
            let mut inner = self.inner.lock();
            let event = inner.events.pop_front();
            if event.is_none() {
                self.delivery.end();
                // Most connections raise no more events: free the memory.
                inner.events.shrink_to_fit();
            }
            drop(inner);
            self.inner.serve_wanted(|inner| self.serve(inner));
            let Some(event) = event else { return };
            self.context.events.emit(EventSource::Qp(self.context.id), event);
        }
    }

    /// The lock, for a change that begins a new stream: taken once the last stream's events are
    /// delivered.
    fn lock_after_delivery(&self) -> VpResult<Guard<'_, Inner>> {
        loop {
            let inner = self.inner.lock();
            if inner.events.is_empty() && self.delivery.is_over() {
                return Ok(inner);
            }
            self.unlock_and_serve(inner);
            if !self.delivery.wait() {
                let detail = format!(
                    "QP {} cannot begin anew in this handler: more events of its stream follow",
                    self.context.id.0
                );
                return Err(VpError::new(VpStatus::StillFlushing, detail));
            }
        }
    }

    /// Feeds octets as if they had come from the socket.
    #[cfg(feature = "bench")]
    pub(crate) fn feed(&self, octets: &[u8]) {
        let mut inner = self.inner.lock();
        inner.receive_early(&self.context, octets);
        self.unlock_and_serve(inner);
    }

    fn gone(&self) -> VpError {
        VpError::new(VpStatus::InvalidHandle, format!("QP {} was destroyed", self.context.id.0))
    }
}

impl Member for SoftQp {
    fn on_ready(&self, ready: Ready) {
        let readiness = match ready {
            Ready { life_line: true, .. } => LIFE_LINE,
            Ready { writable, over, .. } => {
                (u8::from(writable) * WRITABLE) | (u8::from(over) * OVER)
            }
        };
        self.readiness.fetch_or(readiness, Ordering::AcqRel);
        self.inner.serve(|inner| self.serve(inner));
    }

    fn on_timer(&self, stream: u32, timer: Timer) {
        let inner = match timer {
            // The thread that holds the lock may be sending for long, and is probably sending what this
            // timer is about. Waiting for the lock would delay the next post.
            Timer::Coalesce => self.inner.try_lock(),
            _ => Some(self.inner.lock()),
        };
        let Some(mut inner) = inner else {
            let at = self.context.engine.now() + tuning::LAZY_NS;
            return self.context.engine.set_timer(at, self.context.id.0, stream, timer);
        };
        inner.handle_timer(&self.context, stream, timer);
        self.unlock_and_serve(inner);
    }

    fn poll_as_other(&self) -> bool {
        let before = self.context.recv_cq.arrivals();
        self.poll();
        self.context.recv_cq.arrivals() != before
    }

    fn stays_unregistered(&self, back_off: Option<u32>) -> bool {
        let inner = match back_off {
            Some(_) => self.inner.try_lock(),
            None => Some(self.inner.lock()),
        };
        let Some(mut inner) = inner else {
            // A thread that is inside also reads the socket before it leaves.
            self.inner.serve(|inner| self.serve(inner));
            return true;
        };
        let attended =
            |link: &Link| back_off.is_some_and(|back_off| link.registration.is_attended(back_off));
        let stays = inner.link.as_ref().is_some_and(attended);
        if !stays {
            inner.register_again(&self.context);
        }
        self.unlock_and_serve(inner);
        stays
    }
}

impl Waiter for SoftQp {
    fn on_receives(&self) {
        self.readiness.fetch_or(RECEIVES, Ordering::AcqRel);
        self.inner.serve(|inner| self.serve(inner));
    }
}

impl vp_api::Qp for SoftQp {
    fn id(&self) -> QpId {
        self.context.id
    }

    fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        self.post_by(|inner| inner.post_sends(&self.context, wrs))
    }

    fn post_send_whole(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        self.post_by(|inner| inner.post_whole(&self.context, wrs))
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        let mut inner = self.inner.lock();
        let result = inner.post_receives(&self.context, wrs);
        self.unlock_and_serve(inner);
        result
    }

    fn modify(&self, change: QpChange) -> VpResult<()> {
        let mut inner = match change {
            QpChange::Rts(_) | QpChange::Idle => self.lock_after_delivery()?,
            _ => self.inner.lock(),
        };
        if inner.destroyed {
            return Err(self.gone());
        }
        let result = match change {
            QpChange::Rts(llp) => match self.context.me.upgrade() {
                Some(me) => inner.connect(&self.context, *llp, me),
                None => Err(self.gone()),
            },
            change => inner.change(&self.context, change),
        };
        self.unlock_and_serve(inner);
        result
    }

    fn query(&self) -> VpResult<QpInfo> {
        let inner = self.inner.lock();
        let info = if inner.destroyed { Err(self.gone()) } else { Ok(inner.info(&self.context)) };
        let stream = inner.link.as_ref().map(|link| link.stream.sockets());
        self.unlock_and_serve(inner);
        // A system call; made without the lock, so that a thread that serves the stream need not wait
        // for it.
        let tcp = stream.and_then(|stream| stream.tcp_info().ok());
        info.map(|mut info| {
            info.tcp = tcp;
            info
        })
    }

    fn publish(&self, record: SlotRef) {
        let mut inner = self.inner.lock();
        let record = Some(record).filter(|_| !inner.destroyed);
        inner.publish_to(&self.context, record);
        self.unlock_and_serve(inner);
    }
}

fn context_of(parts: &QpParts, init: &QpInit, me: &Weak<SoftQp>) -> Context {
    let caller = Context::caller(parts.id, parts.pd, init.allow, init.privileged);
    let receiver = match &parts.srq {
        Some(srq) => Context::caller(parts.id, srq.pd(), init.allow, init.privileged),
        None => caller,
    };
    Context {
        id: parts.id,
        me: me.clone(),
        hold: hold::time(init.unready),
        caller,
        receiver,
        table: parts.table.clone(),
        windows: parts.windows.clone(),
        send_cq: parts.send_cq.clone(),
        recv_cq: parts.recv_cq.clone(),
        srq: parts.srq.clone(),
        outstanding: OnceLock::new(),
        events: parts.events.clone(),
        engine: parts.engine.clone(),
    }
}

fn core_of(parts: &QpParts, init: &QpInit) -> VpResult<ProtocolCore> {
    let proto = iwarp_proto::Qp::new(Limits::new(init).config());
    let (recv_depth, max_recv_sge) = match &parts.srq {
        Some(srq) => (0, srq.max_sge()),
        None => (init.recv_depth, init.max_recv_sge),
    };
    let queues = Queues {
        sends: SendRing::new(init.send_depth, init.max_send_sge, init.max_inline)?,
        untaken_sends: Untaken::new(init.send_depth)?,
        receives: RecvRing::new(recv_depth, max_recv_sge)?,
        untaken_receives: Untaken::new(recv_depth)?,
        current: RecvWqe::new(max_recv_sge)?,
        receiving: false,
        receive_fault: None,
        tagged: None,
        peer: Context::caller(parts.id, parts.pd, init.allow, init.privileged),
        silent: false,
        deferred: Deferred::default(),
        lost: Lost::default(),
        direct: Direct::Closed,
    };
    Ok(ProtocolCore { proto, queues })
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
impl SoftQp {
    /// Calls `f` with what the lock protects. Only the caller's thread drives the QP.
    pub(crate) fn inside<R>(&self, f: impl FnOnce(&mut Inner, &Context) -> R) -> R {
        f(&mut self.inner.lock(), &self.context)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[path = "qp/budget_tests.rs"]
mod budget_tests;

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[path = "qp/fault_tests.rs"]
mod fault_tests;

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[path = "qp/registration_tests.rs"]
mod registration_tests;

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[path = "qp/liveness_tests.rs"]
mod liveness_tests;

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[path = "qp/hold_tests.rs"]
mod hold_tests;

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[path = "qp/post_tests.rs"]
mod post_tests;

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[path = "qp/serve_tests.rs"]
mod serve_tests;
