//! Shared receive queue: receives for several QPs, the limit event, and the QPs that wait for a receive.
//!
//! Owner: the RNIC's table and the QPs on it, through an `Arc`. One small lock protects it. A QP takes a whole
//! receive out, so nothing here depends on the life of a peer; receives that no QP took are never flushed by a QP
//! (RDMAC 6.3). A receive that was taken occupies its slot until its completion was polled; when the queue looks
//! full, it asks each CQ how far it was polled.
//!
//! A QP that found no receive for a message that may wait is entered in a list. The thread that posts has it served
//! without holding the lock of this queue.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use vp_api::{
    AsyncEvent, CqId, EventSource, PdId, PostFailure, QpId, RecvWr, Sge, Srq, SrqId, SrqInfo,
    SrqInit, VpError, VpResult, VpStatus, room,
};

use crate::events::EventSink;
use crate::limits;
use crate::objects::InUse;
use crate::queue::wq::{RecvRing, RecvWqe};
use crate::sync::{Mutex, lock};

/// A QP with a message that waits for a receive.
pub trait Waiter: Send + Sync {
    /// There may be a receive now: the QP takes it, or waits again.
    fn on_receives(&self);
}

/// An SRQ.
pub struct SoftSrq {
    id: SrqId,
    pd: PdId,
    events: Arc<EventSink>,
    /// `None` once destroyed.
    state: Mutex<Option<State>>,
}

struct State {
    ring: RecvRing,
    /// Receives that a QP took and has not completed.
    begun: u32,
    /// Completions that were not polled at the last check: their CQ, and their position there.
    untaken: VecDeque<(CqId, u64)>,
    /// The CQs in which receives complete.
    cqs: Vec<Sink>,
    /// QPs with messages that wait for a receive, each once. Has room for all that may wait.
    waiting: VecDeque<(QpId, Weak<dyn Waiter>)>,
    /// Number of QPs whose messages may wait.
    waiters: usize,
    /// One-shot: fires when fewer receives remain; 0 means not armed.
    limit: u32,
    _pd: InUse,
}

/// A CQ in which receives complete.
pub trait Completes: Send + Sync {
    /// The position before which completions were polled.
    fn taken(&self) -> u64;
}

/// A CQ in which receives complete, as the queue knows it.
struct Sink {
    id: CqId,
    queue: Weak<dyn Completes>,
    /// The last value of [`Completes::taken`].
    taken: u64,
}

impl State {
    /// Slots that are occupied.
    fn slots(&self) -> usize {
        self.ring.posted() as usize + self.begun as usize + self.untaken.len()
    }

    /// Frees slots of completions that were polled: at least one slot, if there is any. CQs that are seldom polled
    /// move to the end, so that not every post reads them.
    fn reap(&mut self) {
        for cq in &mut self.cqs {
            // If the CQ is destroyed, its completions will never be polled.
            cq.taken = cq.queue.upgrade().map_or(u64::MAX, |queue| queue.taken());
        }
        let cqs = &self.cqs;
        let is_free = |(id, place): (CqId, u64)| {
            cqs.iter().find(|cq| cq.id == id).is_none_or(|cq| place < cq.taken)
        };
        let mut freed = false;
        for _ in 0..self.untaken.len() {
            let Some(oldest) = self.untaken.pop_front() else { return };
            if is_free(oldest) {
                freed = true;
            } else if freed {
                return self.untaken.push_front(oldest);
            } else {
                self.untaken.push_back(oldest);
            }
        }
    }

    fn resize(&mut self, depth: u32) -> VpResult<()> {
        while self.slots() > depth as usize {
            let before = self.slots();
            self.reap();
            if self.slots() == before {
                let detail = format!(
                    "{before} receives are posted or their completions not polled, more than the new \
                     depth of {depth}"
                );
                return Err(VpError::new(VpStatus::CannotChange, detail));
            }
        }
        let mut untaken = list_for(depth)?;
        untaken.extend(&self.untaken);
        self.ring.resize(depth).map_err(|status| match status {
            VpStatus::InsufficientResources => {
                room::none::<(u64, Sge)>("receives of a queue", depth as usize)
            }
            _ => VpError::new(status, format!("{depth} receives do not fit")),
        })?;
        self.untaken = untaken;
        Ok(())
    }

    fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), VpStatus> {
        self.ring.check(wr)?;
        let depth = self.ring.depth() as usize;
        if self.slots() >= depth {
            self.reap();
            if self.slots() >= depth {
                return Err(VpStatus::TooManyWrs);
            }
        }
        self.ring.post(wr)
    }

    fn take(&mut self, into: &mut RecvWqe) -> (bool, bool) {
        let taken = self.ring.take(into);
        self.begun += u32::from(taken);
        (taken, taken && self.limit_reached())
    }

    /// Takes the limit event if it is due.
    // RFC 5042 6.4.3.1 [SEC-11]; one shot [VERBS-26]
    fn limit_reached(&mut self) -> bool {
        let reached = self.ring.posted() < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }
}

impl SoftSrq {
    /// Creates an empty SRQ; `pd` keeps its protection domain in use. The limit is checked when receives are taken,
    /// so the empty queue does not fire at once.
    pub fn create(
        id: SrqId,
        init: &SrqInit,
        pd: InUse,
        events: Arc<EventSink>,
    ) -> VpResult<Arc<Self>> {
        limits::check("receives of the SRQ", init.depth, 1, limits::MAX_WR, VpStatus::TooManyWrs)?;
        limits::check("SGEs of the SRQ", init.max_sge, 1, limits::MAX_SGE, VpStatus::InvalidSgl)?;
        limits::check("SRQ limit", init.limit, 0, init.depth, VpStatus::InvalidModifier)?;
        let state = State {
            ring: RecvRing::new(init.depth, init.max_sge)?,
            begun: 0,
            untaken: list_for(init.depth)?,
            cqs: Vec::new(),
            waiting: VecDeque::new(),
            waiters: 0,
            limit: init.limit,
            _pd: pd,
        };
        let state = Mutex::new(Some(state));
        Ok(Arc::new(Self { id, pd: init.pd, events, state }))
    }

    /// The PD against which the buffers of this queue are checked.
    pub fn pd(&self) -> PdId {
        self.pd
    }

    /// The maximum number of SGEs of a receive; needed for a [`RecvWqe`] for [`SoftSrq::take`].
    pub fn max_sge(&self) -> u32 {
        lock(&self.state).as_ref().map_or(0, |state| state.ring.max_sge())
    }

    /// Moves the oldest receive to `into`, and returns whether there was one. The second half of the result is true
    /// if the limit event is due: then the caller must call [`SoftSrq::raise_limit`] once it holds no lock.
    pub fn take(&self, into: &mut RecvWqe) -> (bool, bool) {
        let mut state = lock(&self.state);
        let Some(state) = state.as_mut() else { return (false, false) };
        state.take(into)
    }

    /// As [`SoftSrq::take`]. If there is no receive, QP `qp` is served at the next post; `waiter` makes a reference
    /// to the QP.
    pub fn take_or_wait<W: Waiter + 'static>(
        &self,
        into: &mut RecvWqe,
        qp: QpId,
        waiter: impl FnOnce() -> Weak<W>,
    ) -> (bool, bool) {
        let mut state = lock(&self.state);
        let Some(state) = state.as_mut() else { return (false, false) };
        let taken = state.take(into);
        if !taken.0 && state.waiting.iter().all(|(waits, _)| *waits != qp) {
            state.waiting.push_back((qp, waiter()));
        }
        taken
    }

    /// The QP no longer waits.
    pub fn stop_waiting(&self, qp: QpId) {
        if let Some(state) = lock(&self.state).as_mut() {
            state.waiting.retain(|(waits, _)| *waits != qp);
        }
    }

    /// Reserves room for one more QP whose messages may wait.
    pub fn reserve_waiter(&self) -> VpResult<()> {
        let mut state = lock(&self.state);
        let Some(state) = state.as_mut() else { return Ok(()) };
        let all = state.waiters + 1;
        state
            .waiting
            .try_reserve(all - state.waiting.len())
            .map_err(|_| room::none::<(QpId, Weak<dyn Waiter>)>("queue pairs that wait", all))?;
        state.waiters = all;
        Ok(())
    }

    /// A QP whose messages may wait was destroyed.
    pub fn release_waiter(&self) {
        if let Some(state) = lock(&self.state).as_mut() {
            state.waiters = state.waiters.saturating_sub(1);
        }
    }

    /// Serves the waiting QPs in order, as long as there are receives. A QP that gets none waits again, after the
    /// others.
    fn wake(&self) {
        loop {
            let next = match lock(&self.state).as_mut() {
                Some(state) if state.ring.posted() != 0 => state.waiting.pop_front(),
                _ => None,
            };
            let Some((_, next)) = next else { return };
            if let Some(waiter) = next.upgrade() {
                waiter.on_receives();
            }
        }
    }

    /// A receive that a QP took completes. `push` queues the completion and returns its position in the CQ; `None`
    /// if there is none, because the QP was destroyed or the CQ is overrun. It is called under this queue's lock, so
    /// that who polls the completion can post a receive in its place.
    pub fn complete(&self, cq: CqId, push: impl FnOnce() -> Option<u64>) {
        let mut state = lock(&self.state);
        let place = push();
        let Some(state) = state.as_mut() else { return };
        state.begun = state.begun.saturating_sub(1);
        state.untaken.extend(place.map(|place| (cq, place)));
    }

    /// Receives complete in this CQ from now on.
    pub fn completes_to(&self, id: CqId, queue: Weak<dyn Completes>) -> VpResult<()> {
        let mut state = lock(&self.state);
        let Some(state) = state.as_mut() else { return Ok(()) };
        state.cqs.retain(|known| known.queue.strong_count() != 0 && known.id != id);
        let sink = Sink { id, queue, taken: 0 };
        room::push(&mut state.cqs, "completion queues of a shared receive queue", sink)
    }

    /// Raises the limit event.
    pub fn raise_limit(&self) {
        self.events.emit(EventSource::Srq(self.id), AsyncEvent::SrqLimit);
    }

    /// Destroys the queue: after this every verb returns `InvalidHandle`. Unused receives are dropped.
    pub fn destroy(&self) {
        *lock(&self.state) = None;
    }

    fn gone(&self) -> VpError {
        VpError::new(VpStatus::InvalidHandle, format!("SRQ {} was destroyed", self.id.0))
    }
}

impl Srq for SoftSrq {
    fn id(&self) -> SrqId {
        self.id
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        let mut guard = lock(&self.state);
        let Some(state) = guard.as_mut() else {
            return Err(PostFailure { posted: 0, status: VpStatus::InvalidHandle });
        };
        let mut each = wrs.iter().enumerate();
        let result = each.try_for_each(|(posted, wr)| {
            state.post(wr).map_err(|status| PostFailure { posted, status })
        });
        let wakes = !state.waiting.is_empty();
        drop(guard);
        if wakes {
            self.wake();
        }
        result
    }

    fn modify(&self, depth: Option<u32>, limit: Option<u32>) -> VpResult<SrqInfo> {
        let reached = {
            let mut state = lock(&self.state);
            let state = state.as_mut().ok_or_else(|| self.gone())?;
            let new_depth = depth.unwrap_or(state.ring.depth());
            limits::check(
                "receives of the SRQ",
                new_depth,
                1,
                limits::MAX_WR,
                VpStatus::TooManyWrs,
            )?;
            let new_limit = limit.unwrap_or(state.limit);
            limits::check("SRQ limit", new_limit, 0, new_depth, VpStatus::InvalidModifier)?;
            if new_depth != state.ring.depth() {
                state.resize(new_depth)?;
            }
            state.limit = new_limit;
            limit.is_some() && state.limit_reached()
        };
        if reached {
            self.raise_limit();
        }
        self.query()
    }

    fn query(&self) -> VpResult<SrqInfo> {
        let state = lock(&self.state);
        let state = state.as_ref().ok_or_else(|| self.gone())?;
        Ok(SrqInfo {
            pd: self.pd,
            depth: state.ring.depth(),
            max_sge: state.ring.max_sge(),
            limit: state.limit,
            posted: state.ring.posted(),
        })
    }
}

/// Room for the completions of a queue.
fn list_for(depth: u32) -> VpResult<VecDeque<(CqId, u64)>> {
    room::list("completions of a queue", depth as usize).map(VecDeque::from)
}

#[cfg(all(test, not(loom)))]
#[path = "srq_tests.rs"]
mod tests;
