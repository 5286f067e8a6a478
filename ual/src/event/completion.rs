//! A dispatcher of completions: the provider's completion queue, and the staging queue before it
//! for those who want more than every completion at once.
//!
//! The Evd owns both. Directly: the provider's queue is polled and slept in, nothing lies between.
//! Staged: the dispatch thread pumps completions into the staging queue, rung by the provider's
//! notification. [`StagingMode`] says which, [`Pump`] how.
//!
//! The descriptor, directly. Once asked for, it is readable while there may be completions: the
//! provider's notification sets it, and whoever finds the queue empty clears it, re-arms, and looks
//! once more. A completion between the look and the re-arm is found by the second look; one after
//! the re-arm sets the descriptor. Staged, it follows the staging queue.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vp_api::{Cq, CqHandler, CqId, CqInit, QpId, Rnic, VpStatus, WorkCompletion};

use super::Event;
use super::core::{Control, Core, Wait};
use super::datagram_cq::DatagramCq;
use super::dispatch::{PUMP, Ring};
use super::pump::Pump;
use super::staging_mode::StagingMode;
use crate::error::{Error, Result};
use crate::resource::{Map, Sources};
use crate::sync::{AtomicBool, Ordering};

/// Completion queue with waiting and a descriptor.
pub(super) struct Completions {
    cq: Arc<dyn Cq>,
    /// The same, where there are datagrams.
    datagram_cq: Option<Arc<DatagramCq>>,
    bell: Arc<Bell>,
    core: Arc<Core<Event>>,
    mode: StagingMode,
    pump: Pump,
}

/// Where the provider's notifications go: to the descriptor, or to the dispatch thread.
struct Bell {
    core: Arc<Core<Event>>,
    /// The descriptor is in use, directly.
    wanted: AtomicBool,
    ring: Mutex<Option<Arc<Ring>>>,
}

impl Bell {
    // Nothing panics while the lock is held.
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Ring>>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // Under the lock: after `lead_to` nobody touches the descriptor any more.
        match (&*self.lock(), self.core.notifier()) {
            (Some(ring), _) => ring.ring(PUMP),
            (None, Some(notifier)) => notifier.signal(),
            (None, None) => {}
        }
    }

    fn hush(&self) {
        if let (None, Some(notifier)) = (&*self.lock(), self.core.notifier()) {
            notifier.clear();
        }
    }

    fn lead_to(&self, ring: Arc<Ring>) {
        *self.lock() = Some(ring);
        self.wanted.store(false, Ordering::Release);
    }
}

impl CqHandler for Bell {
    fn on_completion(&self, _cq: CqId) {
        self.ring();
    }
}

impl Completions {
    /// `plain`: threshold 1. `core` becomes the staging queue. `sources`: there are datagrams.
    pub(super) fn new(
        rnic: &dyn Rnic,
        sources: Option<Arc<Map<QpId, Sources>>>,
        depth: u32,
        core: Arc<Core<Event>>,
        plain: bool,
    ) -> Result<Self> {
        let bell = Arc::new(Bell {
            core: core.clone(),
            wanted: AtomicBool::new(false),
            ring: Mutex::new(None),
        });
        let init = CqInit { depth, handler: Some(bell.clone()) };
        let cq = rnic.create_cq(&init).map_err(Error::verb("create a completion queue"))?;
        let datagram_cq = sources.map(|sources| DatagramCq::new(cq.clone(), sources));
        let cq = datagram_cq.clone().map_or(cq, |datagram_cq| datagram_cq);
        core.change(|state| state.settings.depth = cq.depth() as usize);
        Ok(Self { cq, datagram_cq, bell, core, mode: StagingMode::new(plain), pump: Pump::new() })
    }

    pub(super) fn cq(&self) -> &Arc<dyn Cq> {
        &self.cq
    }

    /// Before a datagram can arrive.
    pub(super) fn expect_datagrams(&self) {
        self.datagram_cq.iter().for_each(|cq| cq.expect());
    }

    /// Moves completions to `out`.
    #[inline]
    pub(super) fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize> {
        if !self.mode.polls_directly() {
            return self.poll_staged(out);
        }
        let found = self.cq.poll(out).map_err(refused)?;
        if found == 0 && !out.is_empty() && self.bell.wanted.load(Ordering::Acquire) {
            return self.poll_and_rearm(out);
        }
        Ok(found)
    }

    #[cold]
    fn poll_and_rearm(&self, out: &mut [WorkCompletion]) -> Result<usize> {
        self.bell.hush();
        self.cq.arm(false).map_err(refused)?;
        let found = self.cq.poll(out).map_err(refused)?;
        if found > 0 {
            // There may be more, and the notification may have gone before the clear.
            self.bell.ring();
        }
        Ok(found)
    }

    #[cold]
    fn poll_staged(&self, out: &mut [WorkCompletion]) -> Result<usize> {
        let found = self.take_staged(out)?;
        if found > 0 || out.is_empty() {
            return Ok(found);
        }
        self.fill();
        self.take_staged(out)
    }

    fn take_staged(&self, out: &mut [WorkCompletion]) -> Result<usize> {
        let mut slots = out.iter_mut();
        let found = self.core.take_many(slots.len(), |event| {
            if let (Event::Completion(completion), Some(slot)) = (event, slots.next()) {
                *slot = completion;
            }
        })?;
        self.made_room();
        Ok(found)
    }

    /// After events were taken: has the pump go on if it waits for room.
    pub(super) fn made_room(&self) {
        if self.pump.is_stalled() {
            self.fill();
        }
    }

    pub(super) fn pop(&self) -> Result<Option<WorkCompletion>> {
        let mut one = [WorkCompletion::BLANK];
        Ok((self.poll(&mut one)? == 1).then(|| one[0]))
    }

    /// The oldest completion, waiting in the provider's queue; `None` if that is not where to wait.
    pub(super) fn wait(&self, wait: &Wait, spin: Duration) -> Result<Option<WorkCompletion>> {
        let Some(_inside) = self.mode.enter() else { return Ok(None) };
        self.core.check_aborted()?;
        loop {
            if let Some(completion) = self.pop()? {
                return Ok(Some(completion));
            }
            // Another waiter may have taken the completion: look, and wait again.
            match self.sleep(wait, spin)? {
                None => return Ok(None),
                Some(true) => {}
                Some(false) => wait.check_time()?,
            }
        }
    }

    /// Waits in the provider's queue until [`Completions::poll`] may find something; false after
    /// the time-out. `None` if that is not where to wait.
    pub(super) fn ready(&self, wait: &Wait, spin: Duration) -> Result<Option<bool>> {
        let Some(_inside) = self.mode.enter() else { return Ok(None) };
        self.sleep(wait, spin)
    }

    fn sleep(&self, wait: &Wait, spin: Duration) -> Result<Option<bool>> {
        self.core.check(wait)?;
        let ready = self.cq.wait(spin, wait.left());
        self.core.check_aborted()?;
        match ready {
            Ok(true) => Ok(Some(true)),
            // Expelled: the mode is changing.
            Ok(false) | Err(VpStatus::Interrupted) if !self.mode.is_direct() => Ok(None),
            Ok(false) => self.core.check(wait).map(|()| Some(false)),
            Err(VpStatus::Interrupted) => Err(Error::Signal),
            Err(status) => Err(refused(status)),
        }
    }

    /// Has the staging queue filled and the provider's queue armed.
    pub(super) fn fill(&self) {
        self.pump.run(&&*self.cq, &self.core);
    }

    /// A queue pair was destroyed: nothing of it is taken any more. The provider's queue has nothing of
    /// it, and the staging queue, which may just become the one to take from, is rid of it here.
    pub(super) fn forget(&self, qp: QpId) {
        self.pump.forget(qp, &self.core);
        self.made_room();
    }

    /// Makes whoever waits inside look whether something changed.
    pub(super) fn expel(&self) {
        self.cq.interrupt();
    }

    /// Nobody waits inside any more; after an abort.
    pub(super) fn empty(&self) {
        self.mode.empty(|| self.expel());
    }

    /// Completions that do not count may come from now on, or the criteria are not plain any more.
    #[inline]
    pub(super) fn is_settled(&self) -> bool {
        self.mode.is_settled()
    }

    /// The same, for the first time. `start` starts the dispatch thread.
    pub(super) fn unsettle(
        &self,
        start: impl FnOnce() -> Result<()>,
        ring: &Arc<Ring>,
    ) -> Result<()> {
        let watched = || self.bell.wanted.load(Ordering::Acquire);
        let begin = || start().map(|()| self.begin_staging(ring));
        self.mode.unsettle(watched, || self.expel(), begin)
    }

    /// From now on through the staging queue.
    pub(super) fn stage(&self, start: impl FnOnce() -> Result<()>, ring: &Arc<Ring>) -> Result<()> {
        let begin = || start().map(|()| self.begin_staging(ring));
        self.mode.stage(|| self.expel(), begin)
    }

    fn begin_staging(&self, ring: &Arc<Ring>) {
        self.bell.lead_to(ring.clone());
        self.core.take_over_fd();
        // Whatever notified before went to the descriptor.
        ring.ring(PUMP);
    }

    /// The descriptor, directly: from the first call on, completions set it. `None` if it is the
    /// staging queue's.
    pub(super) fn fd(&self) -> Result<Option<BorrowedFd<'_>>> {
        self.mode.hold(|direct| {
            if !direct {
                return Ok(None);
            }
            let fd = self.core.fd()?;
            if !self.bell.wanted.swap(true, Ordering::AcqRel) {
                self.cq.arm(false).map_err(refused)?;
                self.bell.ring();
            }
            Ok(Some(fd))
        })
    }

    /// Completions that wait to be taken, about.
    pub(super) fn queued(&self) -> usize {
        self.core.read(|state| state.len()) + self.cq.queued()
    }

    pub(super) fn resize(&self, depth: u32) -> Result<()> {
        let verb = Error::verb("resize the completion queue");
        let depth = self.cq.resize(depth).map_err(verb)?;
        self.core.change(|state| state.settings.depth = depth as usize);
        self.made_room();
        Ok(())
    }
}

fn refused(status: VpStatus) -> Error {
    Error::status("use the completion queue", status)
}
