//! Completion queues of RoCE: the ring of `vp-soft`, with waiting and arming.
//!
//! Owner: the RNIC's table, and the QPs that complete here. Any thread polls, waits and arms; the thread that
//! serves a QP pushes. A poll that finds nothing receives from the sockets itself. If a peer dies, the QP's flushed
//! completions arrive like any others. Full: the CQ stays overrun, and its QPs end.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use kal_os::{Gate, Slept, Spinner, lock};
use vp_api::{
    AsyncEvent, Cq, CqHandler, CqId, DatagramSource, DeviceRef, EventSource, QpId, VpError,
    VpResult, VpStatus, WorkCompletion, room,
};
use vp_soft::events::EventSink;
use vp_soft::queue::cq_ring::{CqRing, Overrun, Put, WakeActions};
use vp_soft::queue::event_mode::{EventMode, InVain};
use vp_soft::queue::interrupts::Interrupts;
use vp_soft::queue::srq::Completes;

use crate::engine::{Engine, Served};
use crate::sources::Sources;
use crate::tuning::EVENT_MODE_POLLS;

/// Work left by pushes, to be done when no lock is held any more.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Pushed {
    put: Put,
    first_overrun: bool,
}

impl Pushed {
    pub(crate) fn is_empty(&self) -> bool {
        self.put.is_empty() && !self.first_overrun
    }
}

/// A completion queue.
pub(crate) struct RoceCq {
    id: CqId,
    ring: CqRing,
    handler: Option<Arc<dyn CqHandler>>,
    events: Arc<EventSink>,
    engine: Arc<Engine>,
    members: Mutex<Vec<(QpId, Weak<dyn Served>)>>,
    sources: Sources,
    interrupts: Interrupts,
    mode: EventMode,
    gate: Gate,
    spinner: Spinner,
    /// That of its RNIC in the process's state page.
    record: Arc<OnceLock<DeviceRef>>,
}

impl RoceCq {
    pub(crate) fn new(
        id: CqId,
        ring: CqRing,
        handler: Option<Arc<dyn CqHandler>>,
        events: Arc<EventSink>,
        engine: Arc<Engine>,
        record: Arc<OnceLock<DeviceRef>>,
    ) -> Self {
        let (members, sources, interrupts) =
            (Mutex::default(), Sources::default(), Interrupts::default());
        let (mode, gate, spinner) = (EventMode::default(), Gate::default(), Spinner::default());
        Self {
            id,
            ring,
            handler,
            events,
            engine,
            members,
            sources,
            interrupts,
            mode,
            gate,
            spinner,
            record,
        }
    }

    /// Registers a QP that completes here.
    pub(crate) fn join(&self, id: QpId, qp: Weak<dyn Served>) -> VpResult<()> {
        let mut members = lock(&self.members);
        if members.iter().any(|(member, _)| *member == id) {
            return Ok(());
        }
        room::push(&mut members, "QPs of a completion queue", (id, qp))
    }

    /// Removes a QP and its completions.
    pub(crate) fn leave(&self, id: QpId) {
        lock(&self.members).retain(|(member, _)| *member != id);
        self.ring.remove(id);
        self.sources.remove(id);
    }

    /// Removes the completions of a QP, which adds none meanwhile.
    pub(crate) fn discard(&self, id: QpId) {
        self.ring.remove(id);
    }

    /// Queues a completion and returns its position; `None` if it was lost.
    pub(crate) fn push(&self, completion: &WorkCompletion, pushed: &mut Pushed) -> Option<u64> {
        match self.ring.put(completion, &mut pushed.put) {
            Ok(place) => Some(place),
            Err(Overrun { first }) => {
                pushed.first_overrun |= first;
                None
            }
        }
    }

    /// The same for a received datagram, with its source.
    pub(crate) fn push_from(
        &self,
        mut completion: WorkCompletion,
        source: DatagramSource,
        pushed: &mut Pushed,
    ) -> Option<u64> {
        self.sources.add(&mut completion, source);
        let place = self.push(&completion, pushed);
        if place.is_none() {
            self.sources.take(&mut completion);
        }
        place
    }

    /// The position before which all completions were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.ring.taken()
    }

    /// Does the work that pushes left. Called without a lock.
    pub(crate) fn notify(&self, pushed: Pushed) {
        let WakeActions { notify, wake } = self.ring.notify(pushed.put);
        if wake {
            self.gate.open();
        }
        if let Some(handler) = &self.handler {
            (0..notify).for_each(|_| handler.on_completion(self.id));
        }
        if pushed.first_overrun {
            self.fail();
        }
    }

    /// Completions were lost: ends every QP that completes here, and no other (RFC 5042 section 6.4.6). [SEC-09]
    fn fail(&self) {
        self.events.emit(EventSource::Cq(self.id), AsyncEvent::CqOverrun);
        let members = lock(&self.members).clone();
        for qp in members.iter().filter_map(|(_, qp)| qp.upgrade()) {
            qp.end();
        }
        self.gate.open();
    }

    /// Destroys the CQ: after this every verb returns `InvalidHandle`.
    pub(crate) fn destroy(&self) {
        self.interrupts.end();
        self.end_events();
        self.interrupt();
    }

    fn end_events(&self) {
        if self.mode.end() {
            self.engine.end_events();
        }
    }

    /// A poll finds nothing: serves the sockets.
    fn progress(&self) {
        if self.mode.poll_in_vain() == InVain::Ended {
            self.engine.end_events();
        }
        self.engine.poll();
    }

    /// Moves completions to `out`; `each` gets the source of each, or `None`.
    fn pop(
        &self,
        out: &mut [WorkCompletion],
        mut each: impl FnMut(usize, Option<DatagramSource>),
    ) -> usize {
        let popped = self.ring.pop(out);
        out[..popped].iter_mut().enumerate().for_each(|(at, wc)| each(at, self.sources.take(wc)));
        popped
    }

    /// The same; receives first if there is none.
    fn poll_each(
        &self,
        out: &mut [WorkCompletion],
        mut each: impl FnMut(usize, Option<DatagramSource>),
    ) -> Result<usize, VpStatus> {
        self.interrupts.check_alive()?;
        let popped = self.pop(out, &mut each);
        if popped != 0 {
            self.engine.attend();
            return Ok(popped);
        }
        self.progress();
        match self.pop(out, each) {
            0 if self.ring.is_overrun() => Err(VpStatus::CqOverrun),
            0 => {
                if let Some(record) = self.record.get() {
                    record.count_vain_poll();
                }
                Ok(0)
            }
            popped => Ok(popped),
        }
    }

    /// Sleeps until woken, unless `done` is true.
    fn sleep(&self, deadline: Option<Instant>, done: impl Fn() -> bool) -> Slept {
        let ticket = self.gate.ticket();
        self.ring.enter_sleep();
        self.engine.begin_events();
        let slept = if done() {
            Slept::Woken
        } else {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            self.gate.wait(ticket, left)
        };
        self.engine.end_events();
        self.ring.leave_sleep();
        slept
    }
}

impl Completes for RoceCq {
    fn taken(&self) -> u64 {
        self.taken()
    }
}

impl Cq for RoceCq {
    fn id(&self) -> CqId {
        self.id
    }

    fn depth(&self) -> u32 {
        self.ring.depth()
    }

    fn queued(&self) -> usize {
        self.ring.queued()
    }

    fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus> {
        self.poll_each(out, |_, _| {})
    }

    fn poll_from(
        &self,
        out: &mut [WorkCompletion],
        from: &mut [Option<DatagramSource>],
    ) -> Result<usize, VpStatus> {
        let most = out.len().min(from.len());
        from.fill(None);
        self.poll_each(&mut out[..most], |at, source| from[at] = source)
    }

    fn arm(&self, solicited_only: bool) -> Result<(), VpStatus> {
        self.interrupts.check_alive()?;
        self.ring.arm(solicited_only);
        self.engine.rest();
        if let Some(record) = self.record.get() {
            record.arms.fetch_add(1, Relaxed);
        }
        if self.mode.begin(EVENT_MODE_POLLS) {
            self.engine.begin_events();
        }
        // `destroy` may have ended the mode before; it must stay ended.
        self.interrupts.check_alive().inspect_err(|_| self.end_events())
    }

    fn wait(&self, spin: Duration, timeout: Option<Duration>) -> Result<bool, VpStatus> {
        let before = self.interrupts.begin()?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let ready = || self.ring.has_any() || self.ring.is_overrun();
        let done = || ready() || self.interrupts.interrupted_since(before);
        let _waiting = self.record.get().map(|record| record.wait());
        let mut spins = self.spinner.begin(timeout.map_or(spin, |most| spin.min(most)));
        while !done() && spins.again() {
            self.engine.poll();
        }
        let mut slept = Slept::Woken;
        while !done() && slept == Slept::Woken {
            slept = self.sleep(deadline, done);
        }
        self.interrupts.check_alive()?;
        match ready() {
            false if slept == Slept::Signal => Err(VpStatus::Interrupted),
            is => Ok(is),
        }
    }

    fn interrupt(&self) {
        self.interrupts.interrupt();
        self.gate.open();
    }

    fn resize(&self, depth: u32) -> VpResult<u32> {
        self.interrupts
            .check_alive()
            .map_err(|status| VpError::new(status, format!("CQ {} was destroyed", self.id.0)))?;
        self.ring.resize(depth)
    }
}
