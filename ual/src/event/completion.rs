//! Completions of a dispatcher: the provider's completion queue, and the staging queue for callers that
//! want more than every completion at once.
//!
//! The Evd owns both. Direct: the provider's queue is polled and waited on, with nothing in between.
//! Staged: the dispatch thread moves completions to the staging queue when the provider notifies it.
//! [`StagingMode`] is the mode, [`Pump`] moves them.
//!
//! The descriptor in direct mode: once requested, it is readable while there may be completions. The
//! provider's notification sets it; a thread that finds the queue empty clears it, arms again, and polls
//! once more. A completion between the first poll and the arm is found by the second poll; one after the
//! arm sets the descriptor. In staged mode it follows the staging queue.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vp_api::{Cq, CqHandler, CqId, CqInit, QpId, Rnic, VpStatus, WorkCompletion};

use super::Event;
use super::datagram_cq::DatagramCq;
use super::dispatch::{Job, PUMP};
use super::event_queue::{Control, EventQueue, Wait};
use super::pump::Pump;
use super::staging_mode::StagingMode;
use crate::error::{Error, Result};
use crate::resource::{Map, Senders};
use crate::sync::{AtomicBool, Ordering};

/// Completion queue with waiting and a descriptor.
pub(super) struct Completions {
    cq: Arc<dyn Cq>,
    /// The same, for adapters with datagrams.
    datagram_cq: Option<Arc<DatagramCq>>,
    cq_notifier: Arc<CqNotifier>,
    queue: Arc<EventQueue<Event>>,
    mode: StagingMode,
    pump: Pump,
}

/// Receives the provider's notifications, and passes them to the descriptor or to the dispatch thread.
struct CqNotifier {
    queue: Arc<EventQueue<Event>>,
    /// The descriptor is in use, in direct mode.
    wanted: AtomicBool,
    job: Mutex<Option<Arc<Job>>>,
}

impl CqNotifier {
    // Nothing panics while the lock is held.
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Job>>> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        // Under the lock: after `redirect_to` no thread touches the descriptor any more.
        match (&*self.lock(), self.queue.notifier()) {
            (Some(job), _) => job.request(PUMP),
            (None, Some(notifier)) => notifier.signal(),
            (None, None) => {}
        }
    }

    fn clear(&self) {
        if let (None, Some(notifier)) = (&*self.lock(), self.queue.notifier()) {
            notifier.clear();
        }
    }

    fn redirect_to(&self, job: Arc<Job>) {
        *self.lock() = Some(job);
        self.wanted.store(false, Ordering::Release);
    }
}

impl CqHandler for CqNotifier {
    fn on_completion(&self, _cq: CqId) {
        self.notify();
    }
}

impl Completions {
    /// `plain`: threshold 1. `queue` becomes the staging queue. `senders`: there are datagrams.
    pub(super) fn new(
        rnic: &dyn Rnic,
        senders: Option<Arc<Map<QpId, Senders>>>,
        depth: u32,
        queue: Arc<EventQueue<Event>>,
        plain: bool,
    ) -> Result<Self> {
        let cq_notifier = Arc::new(CqNotifier {
            queue: queue.clone(),
            wanted: AtomicBool::new(false),
            job: Mutex::new(None),
        });
        let init = CqInit { depth, handler: Some(cq_notifier.clone()) };
        let cq = rnic.create_cq(&init).map_err(Error::verb("create a completion queue"))?;
        let datagram_cq = senders.map(|senders| DatagramCq::new(cq.clone(), senders));
        let cq = datagram_cq.clone().map_or(cq, |datagram_cq| datagram_cq);
        queue.change(|state| state.settings.depth = cq.depth() as usize);
        Ok(Self {
            cq,
            datagram_cq,
            cq_notifier,
            queue,
            mode: StagingMode::new(plain),
            pump: Pump::new(),
        })
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
        if found == 0 && !out.is_empty() && self.cq_notifier.wanted.load(Ordering::Acquire) {
            return self.poll_and_rearm(out);
        }
        Ok(found)
    }

    #[cold]
    fn poll_and_rearm(&self, out: &mut [WorkCompletion]) -> Result<usize> {
        self.cq_notifier.clear();
        self.cq.arm(false).map_err(refused)?;
        let found = self.cq.poll(out).map_err(refused)?;
        if found > 0 {
            // There may be more, and the notification may have come before the clear.
            self.cq_notifier.notify();
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
        let found = self.queue.take_many(slots.len(), |event| {
            if let (Event::Completion(completion), Some(slot)) = (event, slots.next()) {
                *slot = completion;
            }
        })?;
        self.made_room();
        Ok(found)
    }

    /// Events were taken: runs the pump if it waits for room.
    pub(super) fn made_room(&self) {
        if self.pump.is_stalled() {
            self.fill();
        }
    }

    pub(super) fn pop(&self) -> Result<Option<WorkCompletion>> {
        let mut one = [WorkCompletion::BLANK];
        Ok((self.poll(&mut one)? == 1).then(|| one[0]))
    }

    /// Waits for the oldest completion in the provider's queue; `None` if the wait must be elsewhere.
    pub(super) fn wait(&self, wait: &Wait, spin: Duration) -> Result<Option<WorkCompletion>> {
        let Some(_inside) = self.mode.enter() else { return Ok(None) };
        self.queue.check_aborted()?;
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

    /// Waits in the provider's queue until [`Completions::poll`] may find something; false after the
    /// time-out. `None` if the wait must be elsewhere.
    pub(super) fn ready(&self, wait: &Wait, spin: Duration) -> Result<Option<bool>> {
        let Some(_inside) = self.mode.enter() else { return Ok(None) };
        self.sleep(wait, spin)
    }

    fn sleep(&self, wait: &Wait, spin: Duration) -> Result<Option<bool>> {
        self.queue.check(wait)?;
        let ready = self.cq.wait(spin, wait.left());
        self.queue.check_aborted()?;
        match ready {
            Ok(true) => Ok(Some(true)),
            // Woken because the mode is changing.
            Ok(false) | Err(VpStatus::Interrupted) if !self.mode.is_direct() => Ok(None),
            Ok(false) => self.queue.check(wait).map(|()| Some(false)),
            Err(VpStatus::Interrupted) => Err(Error::Signal),
            Err(status) => Err(refused(status)),
        }
    }

    /// Fills the staging queue and arms the provider's queue.
    pub(super) fn fill(&self) {
        self.pump.run(&&*self.cq, &self.queue);
    }

    /// A queue pair was destroyed: none of its completions is taken any more. The provider's queue has
    /// none; the staging queue, which may become the one to take from at this moment, drops them here.
    pub(super) fn forget(&self, qp: QpId) {
        self.pump.forget(qp, &self.queue);
        self.made_room();
    }

    /// Makes the threads that wait inside check whether something changed.
    pub(super) fn wake_waiters(&self) {
        self.cq.interrupt();
    }

    /// Waits until no thread waits inside; after an abort.
    pub(super) fn empty(&self) {
        self.mode.empty(|| self.wake_waiters());
    }

    /// From now on completions that do not count may come, or the criteria are not plain any more.
    #[inline]
    pub(super) fn allows_uncounted(&self) -> bool {
        self.mode.allows_uncounted()
    }

    /// The same, for the first time. `start` starts the dispatch thread.
    pub(super) fn allow_uncounted(
        &self,
        start: impl FnOnce() -> Result<()>,
        job: &Arc<Job>,
    ) -> Result<()> {
        let watched = || self.cq_notifier.wanted.load(Ordering::Acquire);
        let begin = || start().map(|()| self.begin_staging(job));
        self.mode.allow_uncounted(watched, || self.wake_waiters(), begin)
    }

    /// From now on completions go through the staging queue.
    pub(super) fn stage(&self, start: impl FnOnce() -> Result<()>, job: &Arc<Job>) -> Result<()> {
        let begin = || start().map(|()| self.begin_staging(job));
        self.mode.stage(|| self.wake_waiters(), begin)
    }

    fn begin_staging(&self, job: &Arc<Job>) {
        self.cq_notifier.redirect_to(job.clone());
        self.queue.take_over_fd();
        // Earlier notifications went to the descriptor.
        job.request(PUMP);
    }

    /// The descriptor in direct mode: from the first call on, completions set it. `None` if it belongs
    /// to the staging queue.
    pub(super) fn fd(&self) -> Result<Option<BorrowedFd<'_>>> {
        self.mode.hold(|direct| {
            if !direct {
                return Ok(None);
            }
            let fd = self.queue.fd()?;
            if !self.cq_notifier.wanted.swap(true, Ordering::AcqRel) {
                self.cq.arm(false).map_err(refused)?;
                self.cq_notifier.notify();
            }
            Ok(Some(fd))
        })
    }

    /// The approximate number of completions that wait to be taken.
    pub(super) fn queued(&self) -> usize {
        self.queue.read(|state| state.len()) + self.cq.queued()
    }

    pub(super) fn resize(&self, depth: u32) -> Result<()> {
        let verb = Error::verb("resize the completion queue");
        let depth = self.cq.resize(depth).map_err(verb)?;
        self.queue.change(|state| state.settings.depth = depth as usize);
        self.made_room();
        Ok(())
    }
}

fn refused(status: VpStatus) -> Error {
    Error::status("use the completion queue", status)
}
