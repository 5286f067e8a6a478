//! Completion queue: the ring of completions, polling, waiting and arming.
//!
//! Owner: the RNIC's table and the QPs on it. Any thread polls, waits and arms; the QPs' threads
//! push. When a peer dies the QP's flushed completions arrive like any others.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::{Duration, Instant};

use kal_os::Spinner;
use vp_api::{
    AsyncEvent, Cq, CqHandler, CqId, EventSource, QpId, VpError, VpResult, VpStatus, WcOpcode,
    WorkCompletion, room,
};
use vp_soft::events::EventSink;
use vp_soft::queue::cq_ring::{CqRing, Overrun, Put, WakeActions};
use vp_soft::queue::event_mode::{EventMode, InVain};
use vp_soft::queue::interrupts::Interrupts;
use vp_soft::queue::outstanding::OutstandingReceives;
use vp_soft::queue::srq::Completes;

use crate::engine::{Engine, Slept, Waited};
use crate::parts::CqParts;
use crate::qp::{Polled, SoftQp, Visit};
use crate::queue::other_qps::{OtherQps, Serve};
use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering, lock};
use crate::tuning::{DIRECT_QPS, EVENT_MODE_POLLS, FLUSH_EVERY, RENEWALS};

/// Work that a push leaves to do when no lock is held any more.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct DeferredActions {
    put: Put,
    /// The completion was lost.
    pub(crate) overrun: bool,
    first_overrun: bool,
}

impl DeferredActions {
    /// There is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.put.is_empty() && !self.overrun
    }
}

/// What a poll found that served the sockets.
struct Progress {
    /// Completions that were passed to the poller, and not queued.
    passed: usize,
    /// There may be completions in the ring that were not there before.
    found: bool,
}

/// A completion queue.
pub(crate) struct SoftCq {
    id: CqId,
    ring: CqRing,
    handler: Option<Arc<dyn CqHandler>>,
    events: Arc<EventSink>,
    engine: Arc<Engine>,
    members: RwLock<Vec<(QpId, Weak<SoftQp>)>>,
    /// It has too many QPs to poll them one by one.
    many: AtomicBool,
    /// Used then: the QPs with deferred posts, and whether there are any.
    deferring: Mutex<Vec<Weak<SoftQp>>>,
    defers: AtomicBool,
    /// QPs whose receives are counted until they are polled.
    counted: RwLock<BTreeMap<QpId, Arc<OutstandingReceives>>>,
    /// `counted` is not empty.
    counts: AtomicBool,
    interrupts: Interrupts,
    /// Polls that found completions.
    found: AtomicU32,
    others: OtherQps,
    /// How often its QPs received, about.
    arrivals: AtomicU32,
    mode: EventMode,
    spinner: Spinner,
}

impl SoftCq {
    /// An empty CQ.
    pub(crate) fn create(parts: CqParts) -> Arc<Self> {
        Arc::new(Self {
            id: parts.id,
            ring: parts.ring,
            handler: parts.handler,
            events: parts.events,
            engine: parts.engine,
            members: RwLock::default(),
            many: AtomicBool::new(false),
            deferring: Mutex::default(),
            defers: AtomicBool::new(false),
            counted: RwLock::default(),
            counts: AtomicBool::new(false),
            interrupts: Interrupts::default(),
            found: AtomicU32::new(0),
            others: OtherQps::default(),
            arrivals: AtomicU32::new(0),
            mode: EventMode::default(),
            spinner: Spinner::default(),
        })
    }

    /// A QP completes here from now on.
    pub(crate) fn add_qp(&self, id: QpId, qp: Weak<SoftQp>) -> VpResult<()> {
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        if members.iter().all(|(member, _)| *member != id) {
            self.reserve_deferring(members.len() + 1)?;
            room::push(&mut members, "QPs of a completion queue", (id, qp))?;
        }
        self.many.store(members.len() > DIRECT_QPS, Ordering::Relaxed);
        Ok(())
    }

    fn reserve_deferring(&self, qps: usize) -> VpResult<()> {
        let mut deferring = lock(&self.deferring);
        let more = qps.saturating_sub(deferring.len());
        deferring
            .try_reserve(more)
            .map_err(|_| room::none::<Weak<SoftQp>>("QPs that defer posts", qps))
    }

    /// A QP completes here no more; its completions are removed.
    pub(crate) fn remove_qp(&self, id: QpId) {
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        members.retain(|(member, _)| *member != id);
        self.many.store(members.len() > DIRECT_QPS, Ordering::Relaxed);
        drop(members);
        let mut counted = self.counted.write().unwrap_or_else(PoisonError::into_inner);
        counted.remove(&id);
        self.counts.store(!counted.is_empty(), Ordering::Release);
        drop(counted);
        self.ring.remove(id);
    }

    /// Removes the completions of a QP, which adds none meanwhile.
    pub(crate) fn discard(&self, id: QpId) {
        self.ring.remove(id);
    }

    /// From now on the QP's outstanding receives are counted down as they are polled.
    pub(crate) fn count(&self, id: QpId, outstanding: Arc<OutstandingReceives>) {
        let mut counted = self.counted.write().unwrap_or_else(PoisonError::into_inner);
        counted.insert(id, outstanding);
        self.counts.store(true, Ordering::Release);
    }

    /// There are completions that were not polled.
    pub(crate) fn has_any(&self) -> bool {
        self.ring.has_any()
    }

    /// Takes completions out of the ring.
    #[inline]
    fn pop(&self, out: &mut [WorkCompletion]) -> usize {
        let popped = self.ring.pop(out);
        if self.counts.load(Ordering::Relaxed) {
            self.give_back(&out[..popped]);
        }
        popped
    }

    #[cold]
    fn give_back(&self, polled: &[WorkCompletion]) {
        let counted = self.counted.read().unwrap_or_else(PoisonError::into_inner);
        for completion in polled {
            if let WcOpcode::Recv | WcOpcode::RecvImmediate = completion.opcode
                && let Some(outstanding) = counted.get(&completion.qp)
            {
                outstanding.give_back(1);
            }
        }
    }

    /// Queues a completion and returns its place, `None` if it was lost; `left` collects the work for
    /// when no lock is held.
    #[inline]
    pub(crate) fn push(
        &self,
        completion: &WorkCompletion,
        deferred: &mut DeferredActions,
    ) -> Option<u64> {
        match self.ring.put(completion, &mut deferred.put) {
            Ok(place) => Some(place),
            Err(Overrun { first }) => {
                deferred.overrun = true;
                deferred.first_overrun |= first;
                None
            }
        }
    }

    /// Completions before this place were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.ring.taken()
    }

    /// Does the work that pushes left; called without a lock.
    pub(crate) fn run_deferred(&self, deferred: DeferredActions) {
        let WakeActions { notify, wake } = self.ring.notify(deferred.put);
        if wake {
            self.engine.wake(self);
        }
        if notify != 0
            && let Some(handler) = &self.handler
        {
            (0..notify).for_each(|_| handler.on_completion(self.id));
        }
        if deferred.first_overrun {
            self.fail();
        }
    }

    /// Completions were lost: every QP that completes here terminates.
    /// RFC 5042 6.4.6: only those. [SEC-09]
    fn fail(&self) {
        self.events.emit(EventSource::Cq(self.id), AsyncEvent::CqOverrun);
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner).clone();
        for qp in members.iter().filter_map(|(_, qp)| qp.upgrade()) {
            qp.fail_locally();
        }
        self.engine.wake(self);
    }

    /// After this every verb returns `InvalidHandle`.
    pub(crate) fn destroy(&self) {
        self.interrupts.end();
        self.end_events();
        self.interrupt();
    }

    /// Enters a QP whose posts are deferred until a thread finds this CQ empty. Not needed for few QPs,
    /// which every poll visits. If the CQ gets many at this moment, the engine's timer transmits them.
    pub(crate) fn defer(&self, qp: &Weak<SoftQp>) {
        if self.many.load(Ordering::Relaxed) {
            let mut deferring = lock(&self.deferring);
            deferring.push(qp.clone());
            self.defers.store(true, Ordering::Relaxed);
        }
    }

    /// Transmits deferred posts.
    fn flush(&self) {
        if self.defers.load(Ordering::Relaxed) && self.defers.swap(false, Ordering::Relaxed) {
            // Popped one by one, so that no lock is held and nothing is allocated.
            let next = || lock(&self.deferring).pop();
            while let Some(qp) = next() {
                qp.upgrade().inspect(|qp| qp.flush());
            }
        }
    }

    /// The same, whether the CQ has few QPs or many. Not inlined, as [`Self::progress_and_pop`].
    #[inline(never)]
    fn flush_all(&self) {
        if !self.each_of_few(SoftQp::flush) {
            self.flush();
        }
    }

    /// After an arm the engine's thread serves the sockets, and a poll only takes from the ring.
    fn begin_events(&self) {
        if self.mode.begin(EVENT_MODE_POLLS) {
            self.each_of_few(SoftQp::prepare_to_wait);
            self.engine.begin_events();
        }
        // `destroy` may have ended the mode before; it must stay ended.
        if self.interrupts.check_alive().is_err() {
            self.end_events();
        }
    }

    fn end_events(&self) {
        if self.mode.end() {
            self.engine.end_events();
        }
    }

    /// A poll found nothing. Returns false if the poll serves the sockets itself.
    fn leaves_to_engine(&self) -> bool {
        match self.mode.poll_in_vain() {
            InVain::Off => false,
            InVain::Stays => true,
            InVain::Ended => {
                self.engine.end_events();
                false
            }
        }
    }

    /// Serves the sockets and polls for completions again. Not inlined, so that a poll that finds some
    /// at once pays nothing for it.
    #[inline(never)]
    fn progress_and_pop(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus> {
        let Progress { passed, found } = match self.leaves_to_engine() {
            true => {
                self.flush_all();
                Progress { passed: 0, found: true }
            }
            false => self.progress(out),
        };
        // Those in the ring are younger.
        let popped = if found { self.pop(&mut out[passed..]) } else { 0 };
        match passed + popped {
            0 if self.ring.is_overrun() => Err(VpStatus::CqOverrun),
            0 => {
                self.engine.count_vain_poll();
                Ok(0)
            }
            all => Ok(all),
        }
    }

    /// Serves sockets in the calling thread, without sleeping. `out` has room for completions of receives.
    fn progress(&self, out: &mut [WorkCompletion]) -> Progress {
        self.engine.mark_polled();
        let mut progress = Progress { passed: 0, found: false };
        let serve = self.others.next();
        if let Serve::Other(id) | Serve::LastOther(id) = serve {
            self.flush_all();
            self.poll_other(id, serve == Serve::LastOther(id));
            return Progress { found: true, ..progress };
        }
        let (mut stalled, mut local) = (false, 0);
        let few = self.each_of_few(|qp| {
            let room = out.get_mut(progress.passed).filter(|_| qp.receives_to(self));
            let Visit { polled, passed, found } = qp.poll_into(room);
            progress.passed += usize::from(passed);
            progress.found |= found;
            stalled |= polled == Polled::Stalled;
            local += usize::from(polled == Polled::Local);
        });
        if !few {
            self.flush();
            self.engine.poll();
            progress.found = true;
        } else if stalled || serve == Serve::All && self.engine.serves_more_than(local) {
            self.poll_others();
        }
        progress
    }

    /// Whether a completion may go to a poller past the ring: no other is before it, and nobody waits for it. The
    /// caller holds the lock of the QP, so that no other of this QP follows meanwhile.
    pub(crate) fn passes_on(&self) -> bool {
        !self.counts.load(Ordering::Relaxed) && self.ring.passes_on()
    }

    /// Serves the QPs that complete elsewhere. Not inlined, as [`Self::progress_and_pop`].
    #[inline(never)]
    fn poll_others(&self) {
        if let Some(id) = self.engine.poll_others(|id| self.has_member(id)) {
            self.other_had_work(id);
        }
    }

    /// Serves one QP that completes elsewhere; `last`: it is not polled again for now.
    #[inline(never)]
    fn poll_other(&self, id: u32, last: bool) {
        if self.engine.poll_member(id) {
            self.other_had_work(id);
        } else if last {
            self.engine.watch_again(id);
        }
    }

    fn other_had_work(&self, id: u32) {
        if let Some(before) = self.others.had_work(id) {
            self.engine.watch_again(before);
        }
    }

    fn has_member(&self, id: u32) -> bool {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        members.iter().any(|(member, _)| member.0 == id)
    }

    /// A poll found this many completions without serving the sockets: transmits deferred posts every so
    /// many polls. Not inlined, as [`Self::progress_and_pop`].
    #[inline(never)]
    fn flush_after_completions(&self, popped: usize) -> Result<usize, VpStatus> {
        let found = self.found.load(Ordering::Relaxed).wrapping_add(1);
        self.found.store(found, Ordering::Relaxed);
        if found.is_multiple_of(FLUSH_EVERY) {
            self.progress(&mut []);
        }
        Ok(popped)
    }

    /// Calls `f` for each QP if they are few, without the lock; false if they are many.
    #[inline]
    fn each_of_few(&self, mut f: impl FnMut(&SoftQp)) -> bool {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        // Mostly there is one, which needs no list.
        let [(_, one)] = &members[..] else {
            return several(members).map(|few| few.iter().flatten().for_each(|qp| f(qp))).is_some();
        };
        let one = one.upgrade();
        drop(members);
        if let Some(qp) = one {
            f(&qp);
        }
        true
    }

    /// Before a sleep: polls the sockets for at most `spin`, then has the engine watch them. True if
    /// `done` returned true meanwhile.
    fn spin_before_sleep(
        &self,
        spin: Duration,
        deadline: Option<Instant>,
        done: impl Fn() -> bool,
    ) -> bool {
        let left = || deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let found = self.spin(|| left().map_or(spin, |left| spin.min(left)), done);
        if !found {
            self.each_of_few(SoftQp::prepare_to_wait);
        }
        found
    }

    /// Polls the sockets for at most the time that `most` returns; true if `done` returned true meanwhile.
    /// The time begins anew when a QP receives, at most [`RENEWALS`] times: a peer that reads or writes
    /// completes nothing here, and is served without a sleep all the same.
    fn spin(&self, most: impl Fn() -> Duration, done: impl Fn() -> bool) -> bool {
        let (mut spin, mut renewals) = (self.spinner.begin(most()), RENEWALS);
        loop {
            if done() {
                return true;
            }
            let before = self.arrivals();
            self.progress(&mut []);
            let received = self.arrivals() != before;
            if received && renewals != 0 && !most().is_zero() {
                renewals -= 1;
                spin = self.spinner.begin(most());
            } else if !spin.again() {
                return done();
            }
        }
    }

    /// How often its QPs received, about.
    pub(crate) fn arrivals(&self) -> u32 {
        self.arrivals.load(Ordering::Relaxed)
    }

    /// A QP of this CQ received.
    #[inline]
    pub(crate) fn count_arrival(&self) {
        // A hint, so that no thread waits for another's cache line.
        self.arrivals
            .store(self.arrivals.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// The QPs of a CQ, if they are few.
#[inline(never)]
fn several(
    members: RwLockReadGuard<'_, Vec<(QpId, Weak<SoftQp>)>>,
) -> Option<[Option<Arc<SoftQp>>; DIRECT_QPS]> {
    let mut few = [const { None }; DIRECT_QPS];
    for (slot, (_, qp)) in few.iter_mut().zip(members.iter()) {
        *slot = qp.upgrade();
    }
    (members.len() <= DIRECT_QPS).then_some(few)
}

impl Completes for SoftCq {
    fn taken(&self) -> u64 {
        self.taken()
    }
}

impl Waited for SoftCq {
    fn id(&self) -> u32 {
        self.id.0
    }

    fn announce(&self) {
        self.ring.enter_sleep();
    }

    fn withdraw(&self) {
        self.ring.leave_sleep();
    }
}

impl Cq for SoftCq {
    fn id(&self) -> CqId {
        self.id
    }

    fn depth(&self) -> u32 {
        self.ring.depth()
    }

    fn queued(&self) -> usize {
        self.ring.queued()
    }

    #[inline]
    fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus> {
        self.interrupts.check_alive()?;
        match self.pop(out) {
            0 => self.progress_and_pop(out),
            popped if self.many.load(Ordering::Relaxed) => self.flush_after_completions(popped),
            popped => Ok(popped),
        }
    }

    fn arm(&self, solicited_only: bool) -> Result<(), VpStatus> {
        self.interrupts.check_alive()?;
        self.ring.arm(solicited_only);
        self.flush_all();
        self.engine.count_arm();
        if self.handler.is_some() {
            self.engine.count_sleep();
            self.begin_events();
        }
        Ok(())
    }

    fn wait(&self, spin: Duration, timeout: Option<Duration>) -> Result<bool, VpStatus> {
        let before = self.interrupts.begin()?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let ready = || self.ring.has_any() || self.ring.is_overrun();
        let done = || ready() || self.interrupts.interrupted_since(before);
        let mut slept = Slept::Woken;
        let _waiting = self.engine.count_waiting();
        if !self.spin_before_sleep(spin, deadline, done) {
            // Waking a thread costs the sender time, so a thread that was woken spins before it sleeps
            // again: a peer's Reads and Writes complete nothing here, and each would cost a sleep.
            slept = self.engine.wait(self, deadline, done, || {
                self.spin_before_sleep(spin, deadline, done);
            });
        }
        self.interrupts.check_alive()?;
        match ready() {
            false if slept == Slept::Signal => Err(VpStatus::Interrupted),
            is => Ok(is),
        }
    }

    fn interrupt(&self) {
        self.interrupts.interrupt();
        self.engine.wake(self);
    }

    fn resize(&self, depth: u32) -> VpResult<u32> {
        self.interrupts
            .check_alive()
            .map_err(|status| VpError::new(status, format!("CQ {} was destroyed", self.id.0)))?;
        self.ring.resize(depth)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[path = "cq_tests.rs"]
mod tests;

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[path = "direct_tests.rs"]
mod direct_tests;
