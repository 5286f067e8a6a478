//! Queue pairs over libibverbs: RC, connected by [`crate::cm`].
//!
//! Owner: the device's table; the connection manager and the consumer have references. Any thread posts. If the
//! peer dies, the device completes requests in error, which ends the connection.
//!
//! # Life cycle
//!
//! A queue pair is created in INIT, so that receives can be posted ("Idle"). The connection manager, or on iWARP
//! the kernel, brings it to RTS. Not every device can reset a queue pair that has ended, so Error to Idle creates a
//! new queue pair of the device under the same id.

mod binds;
mod complete;
mod post;
mod routes;

use std::ffi::c_void;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use vp_api::{
    AsyncEvent, PostFailure, Qp, QpChange, QpId, QpInfo, QpInit, QpState, RecvWr, SendWr, VpError,
    VpResult, VpStatus,
};

use crate::cq::VerbsCq;
use crate::device::Context;
use crate::hardware::{Hardware, Slot};
use crate::mw::Memory;
use crate::object_table::{InUse, destroyed, lock};
use crate::owned::{Owned, done, refused};
use crate::queue::Queue;
use crate::srq::{SERIAL, VerbsSrq};
use crate::tuning::END_CHECK;
use crate::wire;
use binds::Binds;
use ibv_sys::*;

pub(crate) use routes::Routes;

/// How long a reset waits until the end of the connection has been reported.
const TELLING: Duration = Duration::from_millis(100);

/// The functions of the connection manager that a queue pair needs.
pub(crate) trait Manager: Send + Sync {
    /// The queue pair noticed that its connection is broken.
    fn broke(&self, qp: QpId, why: Option<AsyncEvent>);

    /// Ends the connection in an orderly way, as far as the transport can.
    fn close(&self, qp: QpId) -> VpResult<()>;

    /// The queue pair is in Error: the connection must be disconnected.
    fn abandon(&self, qp: QpId);

    /// The queue pair is reset: reports the end of its connection if that was not reported yet.
    fn renew(&self, qp: QpId);
}

/// The parts of a queue pair, apart from its sizes.
pub(crate) struct QpParts {
    pub(crate) context: Arc<Context>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) cm: Weak<dyn Manager>,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) send_cq: Arc<VerbsCq>,
    pub(crate) recv_cq: Arc<VerbsCq>,
    pub(crate) srq: Option<Arc<VerbsSrq>>,
}

/// A queue pair.
pub(crate) struct VerbsQp {
    id: QpId,
    init: QpInit,
    parts: QpParts,
    hardware: Slot,
    /// The serial number of the present life, and the state, as [`packed`].
    state: AtomicU64,
    /// Ends of connections that the connection manager has not yet handled.
    ending: AtomicU32,
    send: Queue,
    recv: Queue,
    binds: Mutex<Binds>,
    info: Mutex<QpInfo>,
    /// A message of the peer arrived.
    received: AtomicBool,
    /// The device is in Error, and does not complete requests posted from now on.
    over: AtomicBool,
    /// Holds on everything in `parts`, until the queue pair is destroyed.
    holds: Mutex<Vec<InUse>>,
}

// SAFETY: the only pointer is the domain's. A hold keeps the domain alive, and any thread may use it.
unsafe impl Send for VerbsQp {}
// SAFETY: as for `Send`.
unsafe impl Sync for VerbsQp {}

impl VerbsQp {
    pub(crate) fn create(
        parts: QpParts,
        holds: Vec<InUse>,
        id: u32,
        init: &QpInit,
    ) -> VpResult<Arc<Self>> {
        let mut info = QpInfo::new(QpId(id));
        (info.send_depth, info.recv_depth) = (init.send_depth, init.recv_depth);
        (info.ird, info.ord) = (init.ird, init.ord);
        let recv_depth = if parts.srq.is_some() { 0 } else { init.recv_depth };
        let qp = Arc::new(Self {
            id: QpId(id),
            init: init.clone(),
            parts,
            hardware: Slot::default(),
            state: AtomicU64::new(packed(0, QpState::Idle)),
            ending: AtomicU32::new(0),
            send: Queue::new(init.send_depth)?,
            recv: Queue::new(recv_depth)?,
            binds: Mutex::default(),
            info: Mutex::new(info),
            received: AtomicBool::new(false),
            over: AtomicBool::new(false),
            holds: Mutex::new(holds),
        });
        qp.begin(qp.next_life())?;
        Ok(qp)
    }

    fn next_life(&self) -> u32 {
        self.parts.routes.serials.fetch_add(1, Ordering::Relaxed) & SERIAL
    }

    /// Creates the device's queue pair, in INIT.
    fn begin(self: &Arc<Self>, serial: u32) -> VpResult<()> {
        let raw = self.make(serial).map_err(refused("create the queue pair"))?;
        // SAFETY: just made; the number never changes.
        let number = unsafe { (*raw.as_ptr()).qp_num };
        self.to_init(raw.as_ptr(), 1).map_err(refused("initialise the queue pair"))?;
        self.hardware.put(Hardware { raw, number, serial });
        self.parts.routes.add(number, self.clone());
        self.state.store(packed(serial, QpState::Idle), Ordering::Release);
        Ok(())
    }

    fn make(&self, serial: u32) -> io::Result<Owned<ibv_qp>> {
        let (parts, init) = (&self.parts, &self.init);
        let raw = |cq: &VerbsCq| cq.with_raw(|raw| raw).map_err(io::Error::other);
        let srq = match &parts.srq {
            Some(srq) => srq.with_raw(|raw| raw).map_err(io::Error::other)?,
            None => std::ptr::null_mut(),
        };
        let mut attr = ibv_qp_init_attr {
            qp_context: mark(self.id, serial),
            send_cq: raw(&parts.send_cq)?,
            recv_cq: raw(&parts.recv_cq)?,
            srq,
            cap: ibv_qp_cap {
                // See `send_ready`.
                max_send_wr: init.send_depth + u32::from(parts.context.iwarp),
                max_recv_wr: if srq.is_null() { init.recv_depth } else { 0 },
                max_send_sge: init.max_send_sge,
                max_recv_sge: init.max_recv_sge,
                max_inline_data: init.max_inline,
            },
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        let ibv = &parts.context.api.ibv;
        // SAFETY: holds keep the domain, the CQs and the SRQ; the attributes may be written.
        let raw = unsafe { (ibv.ibv_create_qp)(parts.pd, &mut attr) };
        // SAFETY: just created; destroyed by its counterpart.
        unsafe { Owned::new(raw, ibv.ibv_destroy_qp, &parts.context) }
    }

    fn to_init(&self, raw: *mut ibv_qp, port: u8) -> io::Result<()> {
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            qp_access_flags: IBV_ACCESS_LOCAL_WRITE | wire::window_access(self.init.allow),
            port_num: port,
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
        self.change(raw, &mut attr, mask)
    }

    fn change(&self, raw: *mut ibv_qp, attr: &mut ibv_qp_attr, mask: i32) -> io::Result<()> {
        // SAFETY: the caller has the queue pair under its lock; the attributes may be written.
        done(unsafe { (self.parts.context.api.ibv.ibv_modify_qp)(raw, attr, mask) })
    }

    fn queue(&self, is_recv: bool) -> &Queue {
        if is_recv { &self.recv } else { &self.send }
    }

    pub(crate) fn has_srq(&self) -> bool {
        self.parts.srq.is_some()
    }

    /// The queue pair number that peers use; `None` once destroyed.
    pub(crate) fn number(&self) -> Option<u32> {
        self.hardware.number()
    }

    /// For the connection manager: moves to INIT on the port of the connection.
    pub(crate) fn on_port(&self, port: u8) -> io::Result<()> {
        self.with(|raw| self.to_init(raw, port))
    }

    /// For the connection manager: changes the state with the given attributes.
    pub(crate) fn apply(&self, attr: &mut ibv_qp_attr, mask: i32) -> io::Result<()> {
        self.with(|raw| self.change(raw, attr, mask))
    }

    fn with(&self, f: impl FnOnce(*mut ibv_qp) -> io::Result<()>) -> io::Result<()> {
        match self.hardware.read().as_ref() {
            Some(hardware) => f(hardware.raw.as_ptr()),
            None => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        }
    }

    pub(crate) fn state(&self) -> QpState {
        const ALL: [QpState; 5] =
            [QpState::Idle, QpState::Rts, QpState::Closing, QpState::Terminate, QpState::Error];
        ALL.into_iter()
            .find(|state| *state as u8 == self.state.load(Ordering::Acquire) as u8)
            .unwrap_or(QpState::Error)
    }

    /// The number of the present life: each connection has its own.
    pub(crate) fn life(&self) -> u32 {
        (self.state.load(Ordering::Acquire) >> 8) as u32
    }

    fn leaves(&self, life: u32, from: QpState, to: QpState) -> bool {
        let (from, to) = (packed(life, from), packed(life, to));
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The connection manager has connected it.
    pub(crate) fn connected(&self, change: impl FnOnce(&mut QpInfo)) -> bool {
        change(&mut lock(&self.info));
        self.leaves(self.life(), QpState::Idle, QpState::Rts)
    }

    /// Whether a message of the peer has arrived. Checks the completions that are not polled yet, too.
    pub(crate) fn has_received(&self) -> bool {
        let received = || self.received.load(Ordering::Acquire);
        // If this fails, the consumer's own poll returns the error.
        received() || (self.parts.recv_cq.harvest().is_ok() && received())
    }

    /// The connection is being closed; returns false if there is none.
    pub(crate) fn closes(&self) -> bool {
        self.leaves(self.life(), QpState::Rts, QpState::Closing)
    }

    /// The connection of that life is broken. The first thread that notices reports it to the connection manager.
    /// Without a reason the device only flushes, and another completion has the reason.
    pub(crate) fn broke(&self, life: u32, why: Option<AsyncEvent>) {
        let mut info = lock(&self.info);
        // A late report about an earlier life does not concern the present one.
        if self.life() != life {
            return;
        }
        if let Some(
            AsyncEvent::TerminateReceived(terminate) | AsyncEvent::TerminateSent(terminate),
        ) = why
        {
            info.terminate = Some(terminate);
        }
        if let Some(why) = why {
            info.ended.get_or_insert(why);
        }
        drop(info);
        // Done before other threads can see that it is in Error, and reset it.
        self.ending.fetch_add(1, Ordering::AcqRel);
        match self.parts.cm.upgrade() {
            Some(cm) if self.leaves(life, QpState::Rts, QpState::Error) => cm.broke(self.id, why),
            _ => self.end_is_told(),
        }
    }

    /// The connection manager has handled the report of [`VerbsQp::broke`].
    pub(crate) fn end_is_told(&self) {
        self.ending.fetch_sub(1, Ordering::AcqRel);
    }

    /// Ends the connection, in whatever state it is, and flushes.
    pub(crate) fn fail(&self) -> io::Result<()> {
        let failed = self.fail_untold();
        self.tell();
        failed
    }

    /// The same for a caller with a lock, who calls [`VerbsQp::tell`] without it.
    pub(crate) fn fail_untold(&self) -> io::Result<()> {
        let error = |state| Some(packed((state >> 8) as u32, QpState::Error));
        // The closure never fails.
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, error);
        let mut attr = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
        let failed = self.with(|raw| {
            let failed = self.change(raw, &mut attr, IBV_QP_STATE);
            let failed = if self.parts.context.is_gone() { Ok(()) } else { failed };
            // Before another thread can reset it.
            self.over.store(failed.is_ok(), Ordering::Release);
            failed
        });
        self.mark_end();
        self.flush_late();
        failed
    }

    /// The device is gone: ends the connection, and flushes. Without a connection it keeps its receives, as a connection that
    /// was never made does.
    pub(crate) fn lost(&self) {
        if self.state() == QpState::Idle {
            return;
        }
        self.broke(self.life(), Some(AsyncEvent::Catastrophic));
        // Without the device it does not fail.
        let _ = self.fail();
    }

    /// Takes the completions out of the device's CQs; they can still be polled. If that fails, the consumer's own
    /// poll returns the error.
    fn harvest(&self) {
        for cq in [&self.parts.send_cq, &self.parts.recv_cq] {
            let _ = cq.harvest();
        }
    }

    pub(crate) fn destroy(&self) -> VpResult<()> {
        self.end_life()?;
        self.parts.send_cq.forget(self.id);
        self.parts.recv_cq.forget(self.id);
        lock(&self.holds).clear();
        Ok(())
    }

    fn end_life(&self) -> VpResult<()> {
        if let Some(number) = self.hardware.end("queue pair")? {
            self.parts.routes.remove(number, self);
        }
        Ok(())
    }

    /// Error to Idle.
    fn renew(&self) -> VpResult<()> {
        self.mark_end();
        self.tell();
        // Flushed requests count whether or not they were polled.
        self.harvest();
        let (sends, recvs) = (self.send.outstanding(), self.recv.outstanding());
        if sends + recvs != 0 {
            let detail = format!("{sends} sends and {recvs} receives are not flushed");
            return Err(VpError::new(VpStatus::StillFlushing, detail));
        }
        // After this returns, no event of the earlier connection is delivered [RI-153]. The caller may be the
        // handler itself, or the handler may wait for the caller.
        let begun = Instant::now();
        while self.ending.load(Ordering::Acquire) != 0 {
            if begun.elapsed() > TELLING {
                let detail = "the end of the connection is being reported";
                return Err(VpError::new(VpStatus::StillFlushing, detail));
            }
            std::thread::sleep(END_CHECK);
        }
        self.parts.context.alive("reset the queue pair")?;
        let this = self.itself()?;
        if let Some(cm) = self.parts.cm.upgrade() {
            cm.renew(self.id);
        }
        self.end_life()?;
        self.send.ring().forget_silent();
        lock(&self.binds).clear();
        self.received.store(false, Ordering::Release);
        self.over.store(false, Ordering::Release);
        let life = self.next_life();
        let mut info = lock(&self.info);
        *info = QpInfo::new(self.id);
        (info.send_depth, info.recv_depth) = (self.init.send_depth, self.init.recv_depth);
        (info.ird, info.ord) = (self.init.ird, self.init.ord);
        // From here on no event of an earlier life is recorded.
        self.state.store(packed(life, QpState::Error), Ordering::Release);
        drop(info);
        this.begin(life)
    }

    /// The shared reference that completions are routed by.
    fn itself(&self) -> VpResult<Arc<Self>> {
        let number = self.number().ok_or_else(|| destroyed("queue pair"))?;
        let qps = self.parts.routes.qps.read().unwrap_or_else(PoisonError::into_inner);
        qps.get(&number).cloned().ok_or_else(|| destroyed("queue pair"))
    }
}

/// Packs a life and a state into one word.
fn packed(life: u32, state: QpState) -> u64 {
    u64::from(life) << 8 | state as u64
}

/// The number in a queue pair's events: its id and its life.
pub(crate) fn mark(id: QpId, life: u32) -> *mut c_void {
    std::ptr::without_provenance_mut((u64::from(life) << 32 | u64::from(id.0)) as usize)
}

/// Posts requests one after the other, and returns how many were posted.
pub(crate) fn each<T>(
    wrs: &[T],
    mut post: impl FnMut(&T) -> Result<(), VpStatus>,
) -> Result<(), PostFailure> {
    let post = |(posted, wr)| post(wr).map_err(|status| PostFailure { posted, status });
    wrs.iter().enumerate().try_for_each(post)
}

impl Qp for VerbsQp {
    fn id(&self) -> QpId {
        self.id
    }

    fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        match self.state() {
            QpState::Rts => {
                let posted = self.post_sends(wrs);
                self.end_if_over();
                posted.or_else(|refused| {
                    self.late_if_going(refused, |posted| self.post_sends_late(&wrs[posted..]))
                })
            }
            _ if self.number().is_none() => {
                Err(PostFailure { posted: 0, status: VpStatus::InvalidHandle })
            }
            QpState::Idle => Err(PostFailure { posted: 0, status: VpStatus::InvalidState }),
            _ => self.post_sends_late(wrs),
        }
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        if self.has_srq() {
            return Err(PostFailure { posted: 0, status: VpStatus::InvalidWr });
        }
        match self.state() {
            QpState::Idle | QpState::Rts => {
                let posted = self.post_recvs(wrs);
                self.end_if_over();
                posted.or_else(|refused| {
                    self.late_if_going(refused, |posted| self.post_recvs_late(&wrs[posted..]))
                })
            }
            _ if self.number().is_none() => {
                Err(PostFailure { posted: 0, status: VpStatus::InvalidHandle })
            }
            _ => self.post_recvs_late(wrs),
        }
    }

    fn modify(&self, change: QpChange) -> VpResult<()> {
        if self.number().is_none() {
            return Err(destroyed("queue pair"));
        }
        let cm = self.parts.cm.upgrade().ok_or_else(|| destroyed("device"))?;
        let wrong = |needed: &str| {
            let detail = format!("the queue pair is {:?}; {needed} is needed", self.state());
            Err(VpError::new(VpStatus::InvalidState, detail))
        };
        match change {
            QpChange::Rts(_) => {
                let detail = "this device makes its connections itself and takes no sockets";
                Err(VpError::new(VpStatus::Unsupported, detail))
            }
            QpChange::Closing | QpChange::Terminate if self.state() != QpState::Rts => wrong("Rts"),
            QpChange::Closing => cm.close(self.id),
            QpChange::Terminate | QpChange::Error => {
                self.fail().map_err(refused("flush the queue pair"))?;
                cm.abandon(self.id);
                Ok(())
            }
            QpChange::Idle if self.state() == QpState::Idle => Ok(()),
            QpChange::Idle if self.state() == QpState::Error => self.renew(),
            QpChange::Idle => wrong("Error"),
            QpChange::Limits { ord, ird, send_depth: None, recv_depth: None, recv_limit: None }
                if self.state() == QpState::Idle =>
            {
                let mut info = lock(&self.info);
                info.ord = ord.unwrap_or(info.ord).min(self.init.ord);
                info.ird = ird.unwrap_or(info.ird).min(self.init.ird);
                Ok(())
            }
            QpChange::Limits { .. } => {
                let detail = "of this device's queue pairs only IRD and ORD change, and in Idle";
                Err(VpError::new(VpStatus::CannotChange, detail))
            }
            _ => Err(VpError::new(VpStatus::Unsupported, "unknown change of a queue pair")),
        }
    }

    fn query(&self) -> VpResult<QpInfo> {
        if self.number().is_none() {
            return Err(destroyed("queue pair"));
        }
        // What the device has completed is not outstanding, though nobody has polled it yet: at the end of a
        // connection it is not lost.
        self.harvest();
        let mut info = *lock(&self.info);
        info.state = self.state();
        info.sends_outstanding = self.send.outstanding() as u32;
        info.recvs_outstanding = self.recv.outstanding() as u32;
        Ok(info)
    }
}
