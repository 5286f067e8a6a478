//! Completion queues over libibverbs.
//!
//! Owner: the device's table; the consumer has a reference. Any thread polls, arms and waits; the event thread
//! delivers notifications. Completions that were taken from the device and not yet polled are in a backlog. Two
//! cases need it: a wait must check for completions without polling, and a full send queue must free the slots of
//! unsignalled requests even if no thread polls.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use vp_api::{
    Cq, CqHandler, CqId, CqInit, DatagramSource, QpId, VpError, VpResult, VpStatus, WorkCompletion,
};

use crate::completed::Completed;
use crate::device::Context;
use crate::events::{Channel, bell, quiet, ring};
use crate::object_table::{destroyed, lock};
use crate::owned::{Owned, done, refused};
use crate::qp::Routes;
use crate::ring::Taken;
use crate::tuning::POLL_BATCH;
use ibv_sys::*;

/// Arm requests of a consumer that are counted: one whose notification is on its way to the event thread, and the
/// next.
const MAX_ARMED: u32 = 2;

/// A completion queue.
pub(crate) struct VerbsCq {
    id: CqId,
    depth: AtomicU32,
    state: Mutex<State>,
    handler: Option<Arc<dyn CqHandler>>,
    /// Arm requests of the consumer, at most [`MAX_ARMED`]. A waiting thread may arm the device, too.
    armed: AtomicU32,
    /// Completions were injected, and nobody was told.
    untold: AtomicBool,
    waiters: Mutex<Vec<Arc<OwnedFd>>>,
    interrupts: AtomicU64,
    routes: Arc<Routes>,
    context: Arc<Context>,
}

struct State {
    raw: Option<Owned<ibv_cq>>,
    backlog: VecDeque<Completed>,
    overrun: bool,
}

impl VerbsCq {
    pub(crate) fn create(
        context: &Arc<Context>,
        channel: &Channel,
        routes: &Arc<Routes>,
        id: u32,
        init: &CqInit,
    ) -> VpResult<Arc<Self>> {
        let raw = raw(context, channel, id, init.depth).map_err(refused("create the CQ"))?;
        // SAFETY: just made.
        let depth = unsafe { (*raw.as_ptr()).cqe };
        let state = State { raw: Some(raw), backlog: VecDeque::new(), overrun: false };
        Ok(Arc::new(Self {
            id: CqId(id),
            depth: AtomicU32::new(crate::map::count(depth)),
            state: Mutex::new(state),
            handler: init.handler.clone(),
            armed: AtomicU32::new(0),
            untold: AtomicBool::new(false),
            waiters: Mutex::default(),
            interrupts: AtomicU64::new(0),
            routes: routes.clone(),
            context: context.clone(),
        }))
    }

    /// For creating queue pairs: the device's CQ. The caller's hold in the table keeps it alive.
    pub(crate) fn with_raw<T>(&self, f: impl FnOnce(*mut ibv_cq) -> T) -> VpResult<T> {
        let state = lock(&self.state);
        state.raw.as_ref().map(|raw| f(raw.as_ptr())).ok_or_else(|| destroyed("completion queue"))
    }

    pub(crate) fn destroy(&self) -> VpResult<()> {
        let mut state = lock(&self.state);
        if let Some(raw) = state.raw.take()
            && let Err((raw, error)) = raw.destroy()
        {
            state.raw = Some(raw);
            return Err(refused("destroy the CQ")(error));
        }
        drop(state);
        self.interrupt();
        Ok(())
    }

    /// The device notified.
    pub(crate) fn on_event(&self) {
        let take = |armed: u32| armed.checked_sub(1);
        let taken = self.armed.fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
        if taken.is_ok()
            && let Some(handler) = &self.handler
        {
            handler.on_completion(self.id);
        }
        self.wake();
    }

    /// Completions were lost.
    pub(crate) fn overran(&self) {
        lock(&self.state).overrun = true;
        self.on_event();
    }

    /// Adds completions that the device will not report, behind the device's. They are taken while no other thread can
    /// add or poll any, which keeps their order. Those beyond the depth are lost, as the device's would be: then the CQ
    /// is smaller than its queues, and overrun. [`VerbsCq::tell`] must follow.
    pub(crate) fn inject(&self, take: impl FnOnce() -> VecDeque<Completed>) {
        let mut state = lock(&self.state);
        // If polling fails, the next poll reports it.
        let _ = self.fetch(&mut state);
        let mut completions = take();
        if completions.is_empty() {
            return;
        }
        let depth = self.depth.load(Ordering::Relaxed) as usize;
        let room = depth.saturating_sub(state.backlog.len());
        state.overrun |= completions.len() > room;
        completions.truncate(room);
        state.backlog.extend(completions);
        self.untold.store(true, Ordering::Release);
    }

    /// Notifies of injected completions. The handler may call every verb, so the caller holds no lock.
    pub(crate) fn tell(&self) {
        if self.untold.swap(false, Ordering::AcqRel) {
            self.on_event();
        }
    }

    /// Drops the completions of a destroyed queue pair. Also takes those in the device's CQ, because some devices
    /// leave them there.
    pub(crate) fn forget(&self, qp: QpId) {
        let mut state = lock(&self.state);
        // If the device fails, the next poll reports it.
        let _ = self.fetch(&mut state);
        state.backlog.retain(|completed| completed.completion.qp != qp);
    }

    /// Moves the device's completions to the backlog; returns true if there is something to poll.
    pub(crate) fn harvest(&self) -> Result<bool, VpStatus> {
        let mut state = lock(&self.state);
        self.fetch(&mut state)?;
        match (state.backlog.is_empty(), state.overrun) {
            (true, true) => Err(VpStatus::CqOverrun),
            (empty, _) => Ok(!empty),
        }
    }

    fn fetch(&self, state: &mut State) -> Result<(), VpStatus> {
        loop {
            let mut batch = [ibv_wc::default(); POLL_BATCH];
            let got = self.device_poll(state, &mut batch)?;
            for wc in batch.iter().take(got) {
                let mut behind = VecDeque::new();
                let completed = self.routes.translate(wc, Taken::Later, &mut behind);
                state.backlog.extend(completed.into_iter().chain(behind));
            }
            if got < POLL_BATCH {
                return Ok(());
            }
        }
    }

    /// Passes up to `most` completions to `put`, oldest first.
    fn drain(&self, most: usize, mut put: impl FnMut(usize, Completed)) -> Result<usize, VpStatus> {
        let mut state = lock(&self.state);
        let mut given = 0;
        while given < most {
            if let Some(waiting) = state.backlog.pop_front() {
                put(given, waiting);
                given += 1;
                continue;
            }
            let mut batch = [ibv_wc::default(); POLL_BATCH];
            let asked = POLL_BATCH.min(most - given);
            let got = match self.device_poll(&state, &mut batch[..asked]) {
                // Completions already taken are returned; the next poll returns the error.
                Err(_) if given > 0 => break,
                got => got?,
            };
            for wc in &batch[..got] {
                let mut behind = VecDeque::new();
                if let Some(completed) = self.routes.translate(wc, Taken::Now, &mut behind) {
                    put(given, completed);
                    given += 1;
                }
                state.backlog.extend(behind);
            }
            if got < asked && state.backlog.is_empty() {
                break;
            }
        }
        if given == 0 && state.overrun { Err(VpStatus::CqOverrun) } else { Ok(given) }
    }

    fn device_poll(&self, state: &State, batch: &mut [ibv_wc]) -> Result<usize, VpStatus> {
        let raw = state.raw.as_ref().ok_or(VpStatus::InvalidHandle)?;
        let poll_cq = self.context.ops().poll_cq.ok_or(VpStatus::Unsupported)?;
        let room = i32::try_from(batch.len()).unwrap_or(i32::MAX);
        // SAFETY: the CQ is alive under the lock; the array has room for this many completions.
        let got = unsafe { poll_cq(raw.as_ptr(), room, batch.as_mut_ptr()) };
        usize::try_from(got).map_err(|_| VpStatus::Os)
    }

    fn notify_device(&self, solicited_only: bool) -> Result<(), VpStatus> {
        let state = lock(&self.state);
        let raw = state.raw.as_ref().ok_or(VpStatus::InvalidHandle)?;
        let request = self.context.ops().req_notify_cq.ok_or(VpStatus::Unsupported)?;
        // SAFETY: the CQ is alive under the lock.
        match done(unsafe { request(raw.as_ptr(), i32::from(solicited_only)) }) {
            // The event thread flushes, and notifies.
            Err(_) if self.context.is_going() => Ok(()),
            requested => requested.map_err(|_| VpStatus::Os),
        }
    }

    fn wake(&self) {
        for waiter in lock(&self.waiters).iter() {
            ring(waiter);
        }
    }

    fn sleep(&self, bell: &OwnedFd, until: Option<Instant>, epoch: u64) -> Result<bool, VpStatus> {
        loop {
            self.notify_device(false)?;
            if self.harvest()? {
                return Ok(true);
            }
            if self.interrupts.load(Ordering::Acquire) != epoch {
                // Destroying the CQ interrupts, too; this distinguishes the two cases [RI-06].
                return self.harvest();
            }
            let left = until.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(false);
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(bell, PollFlags::IN)], left.as_ref()) {
                Ok(_) => quiet(bell),
                Err(Errno::INTR) if self.harvest()? => return Ok(true),
                Err(Errno::INTR) => return Err(VpStatus::Interrupted),
                Err(_) => return Err(VpStatus::Os),
            }
        }
    }
}

fn raw(
    context: &Arc<Context>,
    channel: &Channel,
    id: u32,
    depth: u32,
) -> std::io::Result<Owned<ibv_cq>> {
    let ibv = &context.api.ibv;
    let depth = i32::try_from(depth.max(1)).unwrap_or(i32::MAX);
    let mark = std::ptr::without_provenance_mut(id as usize);
    // SAFETY: context and channel are open; the mark is only compared.
    let raw = unsafe { (ibv.ibv_create_cq)(context.as_ptr(), depth, mark, channel.as_ptr(), 0) };
    // SAFETY: just created; destroyed by its counterpart.
    unsafe { Owned::new(raw, ibv.ibv_destroy_cq, context) }
}

/// Whether a device can change the size of a CQ. Tries it.
pub(crate) fn resizes(context: &Arc<Context>, channel: &Channel) -> bool {
    let Ok(cq) = raw(context, channel, 0, 1) else { return false };
    // SAFETY: just made.
    done(unsafe { (context.api.ibv.ibv_resize_cq)(cq.as_ptr(), 16) }).is_ok()
}

/// Whether a queue pair may send this many octets inline.
pub(crate) fn try_inline(
    context: &Arc<Context>,
    channel: &Channel,
    octets: u32,
) -> std::io::Result<()> {
    let ibv = &context.api.ibv;
    let cq = raw(context, channel, 0, 1)?;
    // SAFETY: the context is open.
    let pd = unsafe { (ibv.ibv_alloc_pd)(context.as_ptr()) };
    // SAFETY: just created; destroyed by its counterpart.
    let pd = unsafe { Owned::new(pd, ibv.ibv_dealloc_pd, context)? };
    let cap = ibv_qp_cap {
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: octets,
    };
    let mut attr = ibv_qp_init_attr {
        qp_context: std::ptr::null_mut(),
        send_cq: cq.as_ptr(),
        recv_cq: cq.as_ptr(),
        srq: std::ptr::null_mut(),
        cap,
        qp_type: IBV_QPT_RC,
        sq_sig_all: 0,
    };
    // SAFETY: domain and CQ are alive; the attributes may be written.
    let qp = unsafe { (ibv.ibv_create_qp)(pd.as_ptr(), &mut attr) };
    // SAFETY: just created; destroyed by its counterpart.
    let qp = unsafe { Owned::new(qp, ibv.ibv_destroy_qp, context)? };
    drop(qp);
    drop(pd);
    Ok(())
}

impl Cq for VerbsCq {
    fn id(&self) -> CqId {
        self.id
    }

    fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    fn queued(&self) -> usize {
        let mut state = lock(&self.state);
        // The only way to learn the number of a device's completions is to poll them.
        let _ = self.fetch(&mut state);
        state.backlog.len()
    }

    fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus> {
        self.drain(out.len(), |n, completed| out[n] = completed.completion)
    }

    fn poll_from(
        &self,
        out: &mut [WorkCompletion],
        from: &mut [Option<DatagramSource>],
    ) -> Result<usize, VpStatus> {
        let most = out.len().min(from.len());
        self.drain(most, |n, completed| {
            (out[n], from[n]) = (completed.completion, completed.source)
        })
    }

    fn arm(&self, solicited_only: bool) -> Result<(), VpStatus> {
        let more = |armed: u32| (armed < MAX_ARMED).then_some(armed + 1);
        // It fails if the maximum is armed already.
        let _ = self.armed.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        self.notify_device(solicited_only && !self.context.forgets_solicited)
    }

    fn wait(&self, spin: Duration, timeout: Option<Duration>) -> Result<bool, VpStatus> {
        let (began, epoch) = (Instant::now(), self.interrupts.load(Ordering::Acquire));
        let until = timeout.and_then(|timeout| began.checked_add(timeout));
        let spin = timeout.map_or(spin, |timeout| timeout.min(spin));
        loop {
            if self.harvest()? {
                return Ok(true);
            }
            if began.elapsed() >= spin {
                break;
            }
            std::hint::spin_loop();
        }
        let waiter = Arc::new(bell().map_err(|_| VpStatus::Os)?);
        lock(&self.waiters).push(waiter.clone());
        let found = self.sleep(&waiter, until, epoch);
        lock(&self.waiters).retain(|other| !Arc::ptr_eq(other, &waiter));
        found
    }

    fn interrupt(&self) {
        self.interrupts.fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    fn resize(&self, depth: u32) -> VpResult<u32> {
        let state = lock(&self.state);
        let raw = state.raw.as_ref().ok_or_else(|| destroyed("completion queue"))?;
        let waiting = state.backlog.len();
        // The device counts only what it still holds.
        if waiting > depth as usize {
            let detail = format!("{waiting} completions wait to be polled");
            return Err(VpError::new(VpStatus::CqTooSmall, detail));
        }
        let wanted = i32::try_from(depth.max(1)).unwrap_or(i32::MAX);
        let ibv = &self.context.api.ibv;
        // SAFETY: the CQ is alive under the lock.
        let resized = done(unsafe { (ibv.ibv_resize_cq)(raw.as_ptr(), wanted) });
        resized.map_err(|error| match refused("resize the CQ")(error) {
            VpError { status: VpStatus::InvalidModifier, detail } => {
                VpError::new(VpStatus::CqTooSmall, detail)
            }
            other => other,
        })?;
        // SAFETY: as above; the library has stored the new size.
        let depth = crate::map::count(unsafe { (*raw.as_ptr()).cqe });
        self.depth.store(depth, Ordering::Relaxed);
        Ok(depth)
    }
}
