//! A dispatcher of completions: the provider's completion queue, polled directly.
//!
//! The descriptor. Once asked for, it is readable while there may be completions: the provider's
//! notification sets it, and whoever finds the queue empty clears it, re-arms, and looks once more.
//! A completion between the look and the re-arm is found by the second look; one after the re-arm
//! sets the descriptor. A waiter drives progress itself and needs neither.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use kal_shim::Notifier;
use vp_api::{Cq, CqHandler, CqId, CqInit, Rnic, VpStatus, WorkCompletion};

use crate::error::{Error, Result};

/// Completion queue with waiting and a descriptor.
pub(super) struct Completions {
    cq: Arc<dyn Cq>,
    bell: Arc<Bell>,
    interrupts: AtomicU64,
}

/// Where the provider's notifications go.
struct Bell {
    notifier: OnceLock<Notifier>,
    /// The descriptor is in use.
    wanted: AtomicBool,
}

impl CqHandler for Bell {
    fn on_completion(&self, _cq: CqId) {
        if let Some(notifier) = self.notifier.get() {
            notifier.signal();
        }
    }
}

impl Completions {
    pub(super) fn new(rnic: &dyn Rnic, depth: u32) -> Result<Self> {
        let bell = Arc::new(Bell { notifier: OnceLock::new(), wanted: AtomicBool::new(false) });
        let init = CqInit { depth, handler: Some(bell.clone()) };
        let cq = rnic.create_cq(&init).map_err(Error::verb("create a completion queue"))?;
        Ok(Self { cq, bell, interrupts: AtomicU64::new(0) })
    }

    pub(super) fn cq(&self) -> &Arc<dyn Cq> {
        &self.cq
    }

    /// Moves completions to `out`.
    #[inline]
    pub(super) fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize> {
        let found = self.cq.poll(out).map_err(refused)?;
        if found == 0 && !out.is_empty() && self.bell.wanted.load(Ordering::Acquire) {
            return self.poll_and_rearm(out);
        }
        Ok(found)
    }

    #[cold]
    fn poll_and_rearm(&self, out: &mut [WorkCompletion]) -> Result<usize> {
        let Some(notifier) = self.bell.notifier.get() else { return Ok(0) };
        notifier.clear();
        self.cq.arm(false).map_err(refused)?;
        let found = self.cq.poll(out).map_err(refused)?;
        if found > 0 {
            // There may be more, and the notification may have gone before the clear.
            notifier.signal();
        }
        Ok(found)
    }

    pub(super) fn pop(&self) -> Result<Option<WorkCompletion>> {
        let mut one = [WorkCompletion::BLANK];
        Ok((self.poll(&mut one)? == 1).then(|| one[0]))
    }

    /// Waits until [`Completions::poll`] may find something; false after the time-out.
    pub(super) fn ready(&self, spin: Duration, timeout: Option<Duration>) -> Result<bool> {
        let before = self.interrupts.load(Ordering::Acquire);
        let ready = self.cq.wait(spin, timeout).map_err(refused)?;
        if !ready && self.interrupts.load(Ordering::Acquire) != before {
            return Err(Error::Interrupted);
        }
        Ok(ready)
    }

    /// The oldest completion, waiting for one until `timeout`.
    pub(super) fn wait(&self, spin: Duration, timeout: Option<Duration>) -> Result<WorkCompletion> {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        loop {
            if let Some(completion) = self.pop()? {
                return Ok(completion);
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            // Another waiter may have taken the completion: look, and wait again.
            if !self.ready(spin, left)? && left.is_none_or(|left| left.is_zero()) {
                return Err(Error::Timeout(timeout.unwrap_or_default()));
            }
        }
    }

    pub(super) fn interrupt(&self) {
        self.interrupts.fetch_add(1, Ordering::AcqRel);
        self.cq.interrupt();
    }

    /// The descriptor; from the first call on, completions set it.
    pub(super) fn notifier(&self) -> Result<&Notifier> {
        if self.bell.notifier.get().is_none() {
            let notifier = Notifier::new()
                .map_err(Error::os("create the descriptor of an event dispatcher"))?;
            // Two threads may come here at once; the first notifier stays.
            let _ = self.bell.notifier.set(notifier);
            self.bell.wanted.store(true, Ordering::Release);
            self.cq.arm(false).map_err(refused)?;
            self.bell.on_completion(self.cq.id());
        }
        self.bell.notifier.get().ok_or(Error::Interrupted)
    }
}

fn refused(status: VpStatus) -> Error {
    Error::status("use the completion queue", status)
}
