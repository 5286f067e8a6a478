//! The privileged verbs with a fault. Owns the RNIC behind it. Any thread.

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::ThreadId;
use std::time::Duration;

use vp_api::*;

use crate::cm::Cm;
use crate::cq::{Cq, Tap};
use crate::faults::Fault;
use crate::paths::Paths;
use crate::qp::Qp;
use crate::seed::{Seed, lock};
use crate::srq::Srq;
use crate::ud::Ud;

pub(crate) struct Rnic {
    pub(crate) inner: Arc<dyn vp_api::Rnic>,
    pub(crate) seed: Arc<Seed>,
    attrs: RnicAttrs,
    handled: Mutex<bool>,
    /// QPs that are there, and those that a fault keeps.
    qps: Mutex<HashSet<QpId>>,
    made: Mutex<HashMap<QpId, Weak<dyn vp_api::Qp>>>,
    /// Shared regions, each with its original.
    pub(crate) shared: Mutex<Vec<(Stag, Stag)>>,
    srqs: Mutex<Vec<Weak<Srq>>>,
    /// Windows that a fault made of another kind.
    pub(crate) disguised: Mutex<HashSet<MwId>>,
    /// Windows that were made.
    windows: AtomicU32,
    opened_by: ThreadId,
}

impl Drop for Rnic {
    fn drop(&mut self) {
        if self.has(Fault::ClosedElsewhereStays) && std::thread::current().id() != self.opened_by {
            std::mem::forget(self.inner.clone());
        }
    }
}

/// Says more than there is.
fn attrs(mut attrs: RnicAttrs, seed: &Seed) -> RnicAttrs {
    let has = |fault| seed.has(fault);
    let more = |value: &mut u32, fault| *value += u32::from(has(fault));
    more(&mut attrs.max_sge_send, Fault::FalseMaxSgeSend);
    more(&mut attrs.max_sge_recv, Fault::FalseMaxSgeRecv);
    more(&mut attrs.max_sge_read, Fault::FalseMaxSgeRead);
    more(&mut attrs.max_inline, Fault::FalseMaxInline);
    more(&mut attrs.max_wr_per_qp, Fault::FalseMaxWr);
    more(&mut attrs.max_wr_per_srq, Fault::FalseMaxSrqWr);
    more(&mut attrs.max_cqe, Fault::FalseMaxCqe);
    attrs.max_ird += u16::from(has(Fault::FalseMaxIrd));
    attrs.max_ord += u16::from(has(Fault::FalseMaxOrd));
    if has(Fault::FalseMaxQp) {
        attrs.max_qp = 40;
    }
    if has(Fault::FalseMaxMw) {
        attrs.max_mw = 40;
    }
    if has(Fault::ClaimsNothing) {
        attrs.max_mr = 0;
    }
    if has(Fault::HoldUnsaid) {
        attrs.capabilities.remove(Capabilities::HOLD);
    }
    attrs
}

/// Events on their way to the host.
struct Events {
    seed: Arc<Seed>,
    handler: Arc<dyn AsyncHandler>,
}

impl AsyncHandler for Events {
    fn on_event(&self, source: EventSource, event: AsyncEvent) {
        let deliver = |event| self.handler.on_event(source, event);
        let has = |fault| self.seed.has(fault);
        match event {
            AsyncEvent::CqOverrun if has(Fault::OverrunSilent) => {}
            AsyncEvent::Established if has(Fault::NeverEstablished) => {}
            AsyncEvent::CloseComplete if has(Fault::CloseSilent) => {}
            AsyncEvent::TerminateReceived(mut terminate) if has(Fault::TerminateUnsaid) => {
                (terminate.layer, terminate.etype, terminate.code) = (0, 0, 0);
                deliver(AsyncEvent::TerminateReceived(terminate));
            }
            AsyncEvent::TerminateSent(_) if has(Fault::TerminateSentSilent) => {}
            AsyncEvent::ConnectionReset | AsyncEvent::ConnectionLost if has(Fault::ResetSilent) => {
            }
            AsyncEvent::ConnectionReset | AsyncEvent::ConnectionLost
                if has(Fault::ResetIsClose) =>
            {
                deliver(AsyncEvent::CloseComplete);
            }
            AsyncEvent::BadClose if has(Fault::BadCloseIsClose) => {
                deliver(AsyncEvent::CloseComplete)
            }
            AsyncEvent::ConnectionReset if has(Fault::ResetToldLate) => {
                let handler = self.handler.clone();
                std::thread::spawn(move || handler.on_event(source, event));
            }
            AsyncEvent::SrqLimit if has(Fault::SrqLimitTwice) => {
                deliver(event);
                deliver(event);
            }
            AsyncEvent::SrqLimit if has(Fault::SrqLimitSilent) => {}
            AsyncEvent::RecvLimit if has(Fault::RecvLimitSilent) => {}
            _ if has(Fault::EventUnderLock) => {
                let _held = lock(&self.seed.held);
                deliver(event);
            }
            _ => deliver(event),
        }
    }
}

impl Rnic {
    pub(crate) fn new(inner: Arc<dyn vp_api::Rnic>, seed: Arc<Seed>) -> Self {
        let attrs = attrs(inner.attrs().clone(), &seed);
        let (handled, qps) = (Mutex::default(), Mutex::default());
        let (shared, disguised) = (Mutex::default(), Mutex::default());
        let opened_by = std::thread::current().id();
        let (made, srqs) = (Mutex::default(), Mutex::default());
        let windows = AtomicU32::new(0);
        Self { inner, seed, attrs, handled, qps, made, shared, srqs, disguised, windows, opened_by }
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.seed.has(fault)
    }

    /// The PD behind a number.
    pub(crate) fn pd(&self, pd: PdId) -> PdId {
        if !self.has(Fault::IdsReusedAtOnce) {
            return pd;
        }
        let known = lock(&self.seed.pds).get(pd.0 as usize).copied().flatten();
        known.unwrap_or(PdId(u32::MAX))
    }

    fn alter_hold(&self, init: &mut QpInit) {
        let Unready::Hold { octets, time } = &mut init.unready else { return };
        match () {
            () if self.has(Fault::HoldStops) => *octets = 1,
            () if self.has(Fault::HoldForEver) => *time = Duration::from_secs(3600),
            () if self.has(Fault::HoldOfNothing) => {
                *octets = (*octets).max(1);
                *time = (*time).clamp(Duration::from_nanos(1), Duration::from_secs(3600));
            }
            () if self.has(Fault::HoldIgnored)
                || (self.has(Fault::HoldWithoutSrq) && init.srq.is_some()) =>
            {
                init.unready = Unready::Terminate;
            }
            () => {}
        }
    }

    fn in_use(&self, result: VpResult<()>, fault: Fault) -> VpResult<()> {
        match &result {
            Err(why) if why.status == VpStatus::InUse && self.has(fault) => Ok(()),
            Err(why) if why.status == VpStatus::InvalidHandle && self.has(Fault::StaleAccepted) => {
                Ok(())
            }
            _ => self.seed.refusal(result),
        }
    }
}

impl vp_api::Rnic for Rnic {
    fn attrs(&self) -> &RnicAttrs {
        &self.attrs
    }

    fn ports(&self) -> VpResult<Vec<PortInfo>> {
        match self.has(Fault::PortsForgotten) {
            true => Ok(Vec::new()),
            false => self.inner.ports(),
        }
    }

    fn set_async_handler(&self, handler: Option<Arc<dyn AsyncHandler>>) {
        let _held = self.has(Fault::EventUnderLock).then(|| lock(&self.seed.held));
        if std::mem::replace(&mut *lock(&self.handled), true) && self.has(Fault::HandlerStays) {
            return;
        }
        if self.has(Fault::HandlerKept) {
            std::mem::forget(handler.clone());
        }
        let seed = self.seed.clone();
        let tap =
            handler.map(|handler| -> Arc<dyn AsyncHandler> { Arc::new(Events { seed, handler }) });
        self.inner.set_async_handler(tap);
    }

    fn alloc_pd(&self) -> VpResult<PdId> {
        let pd = self.inner.alloc_pd()?;
        if !self.has(Fault::IdsReusedAtOnce) {
            return Ok(pd);
        }
        let mut pds = lock(&self.seed.pds);
        let at = pds.iter().position(Option::is_none).unwrap_or(pds.len());
        let len = pds.len().max(at + 1);
        pds.resize(len, None);
        pds[at] = Some(pd);
        Ok(PdId(at as u32))
    }

    fn dealloc_pd(&self, pd: PdId) -> VpResult<()> {
        self.in_use(self.inner.dealloc_pd(self.pd(pd)), Fault::PdGoesInUse)?;
        if self.has(Fault::IdsReusedAtOnce) {
            lock(&self.seed.pds)[pd.0 as usize] = None;
        }
        Ok(())
    }

    fn create_cq(&self, init: &CqInit) -> VpResult<Arc<dyn vp_api::Cq>> {
        let mut init = init.clone();
        if self.has(Fault::CqHandlerKept) {
            std::mem::forget(init.handler.clone());
        }
        if self.has(Fault::CqTooSmall) {
            init.depth = init.depth.div_ceil(2);
        }
        if init.depth == 0 && self.has(Fault::NoCqDepthIsOne) {
            init.depth = 1;
        }
        let tap = Arc::new(Tap::new(self.seed.clone(), init.handler.take()));
        let inner = self.inner.create_cq(&CqInit {
            depth: init.depth,
            handler: tap.wanted().then(|| -> Arc<dyn CqHandler> { tap.clone() }),
        })?;
        let cq = Arc::new(Cq::new(inner, self.seed.clone(), tap.clone()));
        tap.is_of(&cq);
        lock(&self.seed.cqs).insert(cq.inner.id(), Arc::downgrade(&cq));
        if self.has(Fault::ArmedFromTheStart) {
            let _ = cq.inner.arm(false);
        }
        Ok(cq)
    }

    fn destroy_cq(&self, cq: CqId) -> VpResult<()> {
        let _held = self.has(Fault::DestroyWaits).then(|| lock(&self.seed.held));
        if self.has(Fault::CqDestroyIsLost) && self.seed.cq(cq).is_some() {
            return Ok(());
        }
        self.in_use(self.inner.destroy_cq(cq), Fault::CqGoesInUse)
    }

    fn create_srq(&self, init: &SrqInit) -> VpResult<Arc<dyn vp_api::Srq>> {
        let mut init = SrqInit { pd: self.pd(init.pd), ..*init };
        let wanted = init;
        match () {
            () if self.has(Fault::SrqDepthUnbounded) => {
                init.depth = self.inner.attrs().max_wr_per_srq
            }
            () if self.has(Fault::SrqSgesUnbounded) => {
                init.max_sge = self.inner.attrs().max_sge_recv
            }
            () if self.has(Fault::SrqFirstLimitLost) => init.limit = 0,
            () => {}
        }
        if init.depth == 0 && self.has(Fault::NoSrqDepthIsOne) {
            init.depth = 1;
        }
        let inner = self.inner.create_srq(&init)?;
        let stuck = AtomicU32::new(0);
        let srq = Arc::new(Srq { inner, seed: self.seed.clone(), wanted, stuck });
        lock(&self.srqs).push(Arc::downgrade(&srq));
        Ok(srq)
    }

    fn destroy_srq(&self, srq: SrqId) -> VpResult<()> {
        self.in_use(self.inner.destroy_srq(srq), Fault::SrqGoesInUse)
    }

    fn create_qp(&self, init: &QpInit) -> VpResult<Arc<dyn vp_api::Qp>> {
        let mut real = QpInit { pd: self.pd(init.pd), ..init.clone() };
        if self.has(Fault::FalseMaxQp) && lock(&self.qps).len() >= 20 {
            return Err(VpError::new(VpStatus::InsufficientResources, "seeded"));
        }
        match () {
            () if self.has(Fault::AllowIgnored) => real.allow = Access::REMOTE | Access::BIND,
            () if self.has(Fault::PrivilegeForAll) => real.privileged = true,
            () if self.has(Fault::DepthUnbounded) => {
                real.send_depth *= 2;
                real.recv_depth *= 2;
            }
            () if self.has(Fault::NoDepthIsOne) => {
                real.send_depth = real.send_depth.max(1);
                real.recv_depth = real.recv_depth.max(1);
            }
            () if self.has(Fault::RecvLimitIgnored) => real.recv_limit = 0,
            () if self.has(Fault::WrongRecvCq) => real.recv_cq = real.send_cq,
            () => {}
        }
        self.alter_hold(&mut real);
        let inner = self.seed.refusal(self.inner.create_qp(&real))?;
        lock(&self.qps).insert(inner.id());
        lock(&self.made).insert(inner.id(), Arc::downgrade(&inner));
        Ok(Arc::new(Qp::new(inner, self.seed.clone(), init.clone())))
    }

    fn destroy_qp(&self, qp: QpId) -> VpResult<()> {
        if self.has(Fault::DestroyedQpCounts) && lock(&self.qps).contains(&qp) {
            // Neither it nor what it uses is ever free again.
            return Ok(());
        }
        let cqs: Vec<_> = lock(&self.seed.cqs).values().filter_map(Weak::upgrade).collect();
        if self.has(Fault::CompletionsStay) {
            cqs.iter().for_each(|cq| cq.drain());
        }
        if let (true, Some(gone)) =
            (self.has(Fault::DestroyIsReset), lock(&self.made).get(&qp).and_then(Weak::upgrade))
        {
            let _ = gone.modify(QpChange::Error);
        }
        let queued: Vec<_> = cqs.iter().map(|cq| cq.inner.queued()).collect();
        self.in_use(self.inner.destroy_qp(qp), Fault::QpGoesInUse)?;
        if self.has(Fault::RoomStays) {
            cqs.iter().zip(queued).for_each(|(cq, before)| cq.lose_room(before));
        }
        if self.has(Fault::SrqSlotGoesWithQp) {
            for srq in lock(&self.srqs).iter().filter_map(Weak::upgrade) {
                srq.stuck.fetch_add(1, Ordering::AcqRel);
            }
        }
        lock(&self.qps).remove(&qp);
        if self.has(Fault::CompletesAfterDestroy) {
            let opcode = WcOpcode::Recv;
            let late =
                WorkCompletion { qp, opcode, status: WcStatus::Flushed, ..WorkCompletion::BLANK };
            cqs.iter().for_each(|cq| cq.add(late));
        }
        Ok(())
    }

    fn register_mr(&self, init: &MrInit) -> VpResult<Stag> {
        self.register(init)
    }

    fn reregister_mr(&self, stag: Stag, init: &MrInit) -> VpResult<Stag> {
        self.reregister(stag, init)
    }

    fn register_shared_mr(
        &self,
        original: Stag,
        pd: PdId,
        addressing: Addressing,
        access: Access,
        key: u8,
    ) -> VpResult<Stag> {
        self.share(original, pd, addressing, access, key)
    }

    fn alloc_stag(&self, pd: PdId, remote: bool) -> VpResult<Stag> {
        self.seed.refusal(self.inner.alloc_stag(self.pd(pd), remote))
    }

    fn query_mr(&self, stag: Stag) -> VpResult<MrInfo> {
        self.region(stag)
    }

    fn dealloc_stag(&self, stag: Stag) -> VpResult<()> {
        self.deregister(stag)
    }

    fn alloc_mw(&self, pd: PdId, kind: MwKind) -> VpResult<MwId> {
        if self.windows.fetch_add(1, Ordering::Relaxed) >= 20 && self.has(Fault::FalseMaxMw) {
            return Err(VpError::new(VpStatus::InsufficientResources, "seeded"));
        }
        self.window(pd, kind)
    }

    fn query_mw(&self, mw: MwId) -> VpResult<MwInfo> {
        self.look_at_window(mw)
    }

    fn dealloc_mw(&self, mw: MwId) -> VpResult<()> {
        match self.inner.query_mw(mw) {
            _ if self.has(Fault::WindowNeverGoes) => Ok(()),
            Err(_) if self.has(Fault::WindowGoesTwice) => Ok(()),
            _ => self.inner.dealloc_mw(mw),
        }
    }

    fn native_cm(&self) -> Option<Arc<dyn NativeCm>> {
        let inner = self.inner.native_cm()?;
        Some(Arc::new(Cm::new(inner, self.seed.clone())))
    }

    fn datagrams(&self) -> Option<Arc<dyn Datagrams>> {
        let inner = self.inner.datagrams()?;
        Some(Arc::new(Ud::new(inner, self.seed.clone())))
    }

    fn paths(&self) -> Option<Arc<dyn vp_api::Paths>> {
        let inner = self.inner.paths()?;
        Some(Arc::new(Paths::new(inner, self.seed.clone())))
    }

    fn vendor_calls(&self, name: &str) -> VpResult<VendorCalls> {
        if self.has(Fault::VendorCallsMove) {
            // Never dereferenced: two distinct addresses.
            static PLACES: [u64; 2] = [0; 2];
            let place = &PLACES[self.seed.next() as usize % 2];
            let there = std::ptr::NonNull::from(place).cast();
            return match name {
                "seeded.moves/1" => Ok(VendorCalls { table: there, context: there.as_ptr() }),
                _ => Err(VpError::new(VpStatus::Unsupported, "there is seeded.moves/1 only")),
            };
        }
        if self.has(Fault::VendorCallsForAll) {
            let nothing = std::ptr::null_mut();
            return Ok(VendorCalls { table: std::ptr::NonNull::dangling(), context: nothing });
        }
        let found = self.inner.vendor_calls(name);
        match self.has(Fault::VendorCallsIsModifier) {
            true => found.map_err(|why| VpError::new(VpStatus::InvalidModifier, why.detail)),
            false => found,
        }
    }

    fn lead(&self, until: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<bool, VpStatus> {
        let timeout = timeout.filter(|_| !self.has(Fault::LeadForEver));
        let led = self.inner.lead(until, timeout);
        self.seed.led.store(true, Ordering::Release);
        led.map(|ready| ready && !self.has(Fault::LeadNeverReady))
    }
}
