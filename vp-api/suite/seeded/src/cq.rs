//! A completion queue with a fault, and what stands between it and the host's handler. Any thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::ThreadId;
use std::time::Duration;

use vp_api::*;

use crate::faults::Fault;
use crate::seed::{Seed, lock};
use crate::ud::spoil;

pub(crate) struct Cq {
    pub(crate) inner: Arc<dyn vp_api::Cq>,
    seed: Arc<Seed>,
    tap: Arc<Tap>,
    /// What is to be polled before all else.
    first: Mutex<VecDeque<WorkCompletion>>,
    /// The last one that was polled, and the thread that polled it.
    last: Mutex<Option<(ThreadId, WorkCompletion)>>,
    waiters: AtomicU32,
    /// Entries that a fault never gives back.
    lost: AtomicUsize,
}

/// The host's handler behind a fault.
pub(crate) struct Tap {
    seed: Arc<Seed>,
    handler: Option<Arc<dyn CqHandler>>,
    cq: OnceLock<Weak<Cq>>,
}

impl Tap {
    pub(crate) fn new(seed: Arc<Seed>, handler: Option<Arc<dyn CqHandler>>) -> Self {
        Self { seed, handler, cq: OnceLock::new() }
    }

    pub(crate) fn wanted(&self) -> bool {
        self.handler.is_some()
    }

    pub(crate) fn is_of(&self, cq: &Arc<Cq>) {
        let _ = self.cq.set(Arc::downgrade(cq));
    }
}

impl CqHandler for Tap {
    fn on_completion(&self, cq: CqId) {
        let Some(handler) = &self.handler else { return };
        let seed = &self.seed;
        match () {
            () if seed.keeps_notification(cq) => {}
            () if seed.has(Fault::CallbackUnderLock) || seed.has(Fault::DestroyWaits) => {
                let _held = lock(&seed.held);
                handler.on_completion(cq);
            }
            () if seed.has(Fault::CallbackNamesOther) => handler.on_completion(CqId(cq.0 + 1)),
            () if seed.has(Fault::CallbackTwice) => {
                handler.on_completion(cq);
                handler.on_completion(cq);
            }
            () if seed.has(Fault::ArmedForEver) => {
                if let Some(cq) = self.cq.get().and_then(Weak::upgrade) {
                    let _ = cq.inner.arm(false);
                }
                handler.on_completion(cq);
            }
            () => handler.on_completion(cq),
        }
    }
}

impl Cq {
    pub(crate) fn new(inner: Arc<dyn vp_api::Cq>, seed: Arc<Seed>, tap: Arc<Tap>) -> Self {
        let (first, last) = (Mutex::default(), Mutex::default());
        let (waiters, lost) = (AtomicU32::new(0), AtomicUsize::new(0));
        Self { inner, seed, tap, first, last, waiters, lost }
    }

    fn has(&self, fault: Fault) -> bool {
        self.seed.has(fault)
    }

    /// Has `wc` polled next.
    pub(crate) fn add(&self, wc: WorkCompletion) {
        lock(&self.first).push_back(wc);
        self.inner.interrupt();
    }

    /// Moves everything that is there to the list of those that come first.
    pub(crate) fn drain(&self) {
        let mut first = lock(&self.first);
        let mut out = [WorkCompletion::BLANK; 16];
        while let Ok(n @ 1..) = self.inner.poll(&mut out) {
            first.extend(&out[..n]);
        }
    }

    /// Slots of lost completions are never freed.
    pub(crate) fn lose_room(&self, before: usize) {
        self.lost.fetch_add(before.saturating_sub(self.inner.queued()), Ordering::AcqRel);
    }

    fn spoil(&self, wc: &mut WorkCompletion) {
        let good = wc.status == WcStatus::Success;
        let received = matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvImmediate);
        match () {
            () if self.has(Fault::ReadLengthUnsaid) && wc.opcode == WcOpcode::Read => wc.octets = 0,
            () if self.has(Fault::RecvLengthUnsaid) && received => wc.octets = 0,
            () if self.has(Fault::ImmediateUncounted) && wc.opcode == WcOpcode::RecvImmediate => {
                wc.octets = 0;
            }
            () if self.has(Fault::SolicitedUnsaid) => wc.solicited = false,
            () if self.has(Fault::ImmediateForAll) && received => {
                wc.immediate = wc.immediate.or(Some(0));
            }
            () if self.has(Fault::InvalidatedUnsaid) => wc.invalidated = None,
            () if self.has(Fault::ImmediateUnsaid) => wc.immediate = None,
            () if self.has(Fault::FlushedIsSuccess) && wc.status == WcStatus::Flushed => {
                wc.status = WcStatus::Success;
            }
            () if self.has(Fault::BoundsIsAccess) && wc.status == WcStatus::Bounds => {
                wc.status = WcStatus::AccessViolation;
            }
            () if self.has(Fault::AllAreSends) && good && !received => wc.opcode = WcOpcode::Send,
            () if self.has(Fault::IdCutShort) => wc.wr_id &= 0xffff_ffff,
            () if self.has(Fault::QpUnsaid) => wc.qp = QpId(0),
            () => {}
        }
    }

    fn take(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus> {
        if self.lost.load(Ordering::Acquire) >= self.inner.depth() as usize {
            return Err(VpStatus::CqOverrun);
        }
        if self.has(Fault::NewestFirst) {
            self.drain();
            lock(&self.first).make_contiguous().reverse();
        }
        let other = match () {
            () if self.has(Fault::SendsDisordered) => Some(WcOpcode::Send),
            () if self.has(Fault::ReceivesDisordered) => Some(WcOpcode::Recv),
            () => None,
        };
        if let Some(opcode) = other {
            self.drain();
            // The two oldest of them change places.
            let mut first = lock(&self.first);
            let of = first.iter().enumerate().filter(|(_, wc)| wc.opcode == opcode);
            if let [a, b, ..] = of.map(|(n, _)| n).collect::<Vec<_>>()[..] {
                first.swap(a, b);
            }
        }
        let mut first = lock(&self.first);
        let n = out.len().min(first.len());
        if n > 0 {
            out.iter_mut().zip(first.drain(..n)).for_each(|(to, from)| *to = from);
            return Ok(n);
        }
        drop(first);
        self.inner.poll(out)
    }

    /// Removes the completions of unsignalled requests.
    fn without_unsignaled(&self, out: &mut [WorkCompletion], n: usize) -> usize {
        let mut unsignaled = lock(&self.seed.unsignaled);
        let mut wanted = Vec::new();
        for wc in &out[..n] {
            let good = wc.status == WcStatus::Success;
            if !(unsignaled.remove(&(wc.qp, wc.wr_id)) && good) {
                wanted.push(*wc);
            }
        }
        out[..wanted.len()].copy_from_slice(&wanted);
        wanted.len()
    }

    /// Two threads see each other's completions.
    fn mixed_up(&self, out: &mut [WorkCompletion], n: usize) -> usize {
        let me = std::thread::current().id();
        let mut last = lock(&self.last);
        match *last {
            Some((other, wc)) if other != me && n == 0 && !out.is_empty() => {
                *last = None;
                out[0] = wc;
                1
            }
            _ => {
                *last = out[..n].last().map(|wc| (me, *wc)).or(*last);
                n
            }
        }
    }
}

impl vp_api::Cq for Cq {
    fn id(&self) -> CqId {
        self.inner.id()
    }

    fn depth(&self) -> u32 {
        self.inner.depth()
    }

    fn queued(&self) -> usize {
        match self.has(Fault::QueuedUnsaid) {
            true => 0,
            false => self.inner.queued() + lock(&self.first).len(),
        }
    }

    fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus> {
        let _held = self.has(Fault::CallbackUnderLock).then(|| lock(&self.seed.held));
        let _held = self.has(Fault::EventUnderLock).then(|| lock(&self.seed.held));
        if self.has(Fault::OverrunEarly) && self.queued() > self.depth() as usize * 3 / 4 {
            return Err(VpStatus::CqOverrun);
        }
        let taken = self.take(out);
        if taken == Err(VpStatus::CqOverrun) {
            self.seed.overran.store(true, Ordering::Release);
        }
        let n = match taken {
            Err(VpStatus::CqOverrun)
                if self.has(Fault::OverrunSilent) || self.has(Fault::OverrunUnpolled) =>
            {
                0
            }
            Err(VpStatus::InvalidHandle) if self.has(Fault::DestroyedCqPolls) => 0,
            other => other?,
        };
        let n = self.without_unsignaled(out, n);
        out[..n].iter_mut().for_each(|wc| self.spoil(wc));
        match () {
            () if self.has(Fault::PollLosesRest) && n > 1 => Ok(n - 1),
            () if self.has(Fault::PollRace) => Ok(self.mixed_up(out, n)),
            () => Ok(n),
        }
    }

    fn poll_from(
        &self,
        out: &mut [WorkCompletion],
        from: &mut [Option<DatagramSource>],
    ) -> Result<usize, VpStatus> {
        let mut first = lock(&self.first);
        let n = out.len().min(first.len());
        if n > 0 {
            out.iter_mut().zip(first.drain(..n)).for_each(|(to, wc)| *to = wc);
            from.fill(None);
            return Ok(n);
        }
        drop(first);
        let n = self.inner.poll_from(out, from)?;
        Ok(spoil(&self.seed, &mut out[..n], &mut from[..n]))
    }

    fn arm(&self, solicited_only: bool) -> Result<(), VpStatus> {
        match () {
            () if self.has(Fault::ArmIgnored) => Ok(()),
            () if self.has(Fault::ArmSolicitedForAll) => self.inner.arm(false),
            () if self.has(Fault::ArmErrorsIgnored) && solicited_only => Ok(()),
            () if self.has(Fault::DestroyedCqArms) => {
                self.inner.arm(solicited_only).or_else(|why| match why {
                    VpStatus::InvalidHandle => Ok(()),
                    other => Err(other),
                })
            }
            () => self.inner.arm(solicited_only),
        }
    }

    fn wait(&self, spin: Duration, timeout: Option<Duration>) -> Result<bool, VpStatus> {
        if !lock(&self.first).is_empty() {
            return Ok(true);
        }
        match () {
            () if self.has(Fault::WaitAlwaysReady) => Ok(true),
            () if self.has(Fault::WaitNeverReady) => self.inner.wait(spin, timeout).map(|_| false),
            () if self.has(Fault::WaitForEver) => {
                while !self.inner.wait(spin, None)? {}
                Ok(true)
            }
            () if self.has(Fault::InterruptOne) => {
                // Only the first wait ends by an interrupt.
                let first = self.waiters.fetch_add(1, Ordering::AcqRel) == 0;
                loop {
                    let waited = self.inner.wait(spin, timeout);
                    if first || waited != Ok(false) {
                        break waited;
                    }
                }
            }
            () => self.inner.wait(spin, timeout),
        }
    }

    fn interrupt(&self) {
        if !self.has(Fault::InterruptIgnored) {
            self.inner.interrupt();
        }
    }

    fn resize(&self, depth: u32) -> VpResult<u32> {
        match () {
            () if self.has(Fault::ShrinkLoses) && (depth as usize) < self.queued() => {
                let mut out = [WorkCompletion::BLANK; 16];
                while self.queued() > depth as usize {
                    let _ = self.inner.poll(&mut out[..1]);
                }
                self.inner.resize(depth)
            }
            () if self.has(Fault::ResizeForgets) => {
                self.drain();
                lock(&self.first).clear();
                self.inner.resize(depth)
            }
            () if self.has(Fault::RefusedResizeGrows) => {
                let resized = self.inner.resize(depth);
                if resized.is_err() {
                    let _ = self.inner.resize(4 * self.inner.depth());
                }
                resized
            }
            () if self.has(Fault::ResizeLies) => Ok(depth),
            () => self.inner.resize(depth),
        }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // What may call the handler keeps it, no longer than the queue.
        if self.has(Fault::CqHandlerOutlives) {
            std::mem::forget(self.tap.clone());
        }
    }
}
