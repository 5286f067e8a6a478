//! Event dispatchers for completions: where they are taken from, and matched with the memory of
//! their work requests. Any number of threads; each completion goes to one of them.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use vp_api::{QpId, WcStatus, WorkCompletion};

use crate::completion::{Completion, EpId, Operation, WorkId, receive_of};
use crate::error::{Error, Result};
use crate::flight::{RecvFlight, SendFlight};
use crate::ia::Ia;
use crate::lmr::RmrContext;
use crate::srq::Srq;

/// Completions taken from the provider in one go.
const BATCH: usize = 16;

/// Event dispatcher for completions (IT-API `it_evd_create`, DTO stream). Clones share it.
#[derive(Clone)]
pub struct Evd(Arc<Core>);

struct Core {
    evd: Arc<ual::Evd>,
    flights: RwLock<HashMap<QpId, Arc<Flights>>>,
}

/// What an endpoint has under way.
pub(crate) struct Flights {
    pub(crate) send: Mutex<SendFlight>,
    pub(crate) recv: Receives,
}

/// Where an endpoint's receives come from.
pub(crate) enum Receives {
    Own(Mutex<RecvFlight>),
    Shared(Srq),
}

impl Flights {
    pub(crate) fn send(&self) -> MutexGuard<'_, SendFlight> {
        // Nothing panics while the lock is held.
        self.send.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn recv(&self) -> MutexGuard<'_, RecvFlight> {
        match &self.recv {
            Receives::Own(flight) => flight.lock().unwrap_or_else(PoisonError::into_inner),
            Receives::Shared(srq) => srq.flight(),
        }
    }

    /// The completion for the application; `None` if its request is unknown, which a provider that
    /// completes each request once never causes.
    fn complete(&self, wc: &WorkCompletion) -> Option<Completion> {
        let mut earlier = Vec::new();
        let (operation, local) = match receive_of(wc.opcode) {
            Some(operation) => {
                let mut local = self.recv().complete(wc.wr_id)?;
                let arrived = if wc.status == WcStatus::Success { wc.octets as usize } else { 0 };
                local.set_received(arrived);
                (operation, local)
            }
            None => {
                let sent = self.send().complete(wc.wr_id, &mut earlier)?;
                let mut local = sent.local;
                let arrives = matches!(sent.operation, Operation::Read | Operation::Atomic);
                if arrives && wc.status == WcStatus::Success {
                    local.set_received(wc.octets as usize);
                }
                (sent.operation, local)
            }
        };
        Some(Completion {
            ep: EpId(wc.qp.0),
            id: WorkId(wc.wr_id),
            operation,
            status: wc.status,
            octets: wc.octets,
            solicited: wc.solicited,
            invalidated: wc.invalidated.map(|stag| RmrContext(stag.0)),
            immediate: wc.immediate,
            local,
            earlier,
        })
    }
}

impl Evd {
    pub(crate) fn new(ia: &Ia, depth: u32) -> Result<Self> {
        let init = ual::EvdInit::new(ual::Stream::Completion, depth);
        let evd = ia.ual().create_evd(init)?;
        Ok(Self(Arc::new(Core { evd, flights: RwLock::default() })))
    }

    /// Completions that it can hold. More than that lose some, and their connections with them.
    pub fn depth(&self) -> u32 {
        self.0.evd.depth()
    }

    /// The oldest completion, if there is one (`it_evd_dequeue`).
    pub fn poll(&self) -> Result<Option<Completion>> {
        let mut one = [WorkCompletion::BLANK];
        while self.0.evd.poll(&mut one)? == 1 {
            if let Some(completion) = self.complete(&one[0]) {
                return Ok(Some(completion));
            }
        }
        Ok(None)
    }

    /// Adds the completions that there are to `out`, oldest first, at most 16; answers how many.
    pub fn poll_into(&self, out: &mut Vec<Completion>) -> Result<usize> {
        let mut batch = [WorkCompletion::BLANK; BATCH];
        let found = self.0.evd.poll(&mut batch)?;
        let before = out.len();
        out.extend(batch[..found].iter().filter_map(|wc| self.complete(wc)));
        Ok(out.len() - before)
    }

    /// The oldest completion, waiting for one (`it_evd_wait`): `None` after the time-out. A waiting
    /// thread does the work of its connections itself.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Completion>> {
        // Beyond the clock's range: for ever.
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(completion) = self.poll()? {
                return Ok(Some(completion));
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let ready = self.0.evd.wait_ready(left)?;
            if !ready && left.is_none_or(|left| left.is_zero()) {
                return Ok(None);
            }
        }
    }

    /// The oldest completion, waiting for one, if it succeeded. Errors: [`Error::Incomplete`],
    /// [`Error::Timeout`].
    pub fn wait_success(&self, timeout: Duration) -> Result<Completion> {
        let completion = self.wait(timeout)?.ok_or(Error::Timeout(timeout))?;
        completion.check()?;
        Ok(completion)
    }

    /// Makes every present wait end with [`ual::Error::Interrupted`].
    pub fn interrupt(&self) {
        self.0.evd.interrupt();
    }

    /// A descriptor for `poll`, `epoll` and the like: readable while there may be a completion. Poll
    /// until there is none, then wait for it again. Never read from it.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.0.evd.fd()?)
    }

    fn complete(&self, wc: &WorkCompletion) -> Option<Completion> {
        let flights = self.0.flights.read().unwrap_or_else(PoisonError::into_inner);
        // The endpoint may be gone, and with it the memory.
        let flight = flights.get(&wc.qp)?.clone();
        drop(flights);
        flight.complete(wc)
    }

    pub(crate) fn ual(&self) -> &Arc<ual::Evd> {
        &self.0.evd
    }

    pub(crate) fn add(&self, qp: QpId, flights: Arc<Flights>) {
        let mut table = self.0.flights.write().unwrap_or_else(PoisonError::into_inner);
        table.insert(qp, flights);
    }

    pub(crate) fn remove(&self, qp: QpId) {
        let removed = {
            let mut table = self.0.flights.write().unwrap_or_else(PoisonError::into_inner);
            table.remove(&qp)
        };
        // Its memory may be much: freed outside the lock.
        drop(removed);
    }
}

impl std::fmt::Debug for Evd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0.evd)
    }
}
