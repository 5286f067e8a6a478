//! Wrapper of an RNIC that records its objects. Privileged verbs pass through it; queue pairs, queues and all
//! other objects that it returns are the provider's own.
//!
//! A lock protects the list of queue pairs; it is taken to create and destroy one, and for requests. A queue
//! pair's record is kept here until it is destroyed.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use kal_os::lock;
use state_page::layout::change;
use state_page::{DeviceRef, SlotRef};
use ual_cm::{ConnectionObserver, Established};
use vp_api::*;

use super::process::Process;

/// The wrapper.
pub(crate) struct ObservedRnic {
    inner: Arc<dyn Rnic>,
    process: Arc<Process>,
    index: u32,
    record: DeviceRef,
    qps: Mutex<BTreeMap<QpId, TrackedQp>>,
}

struct TrackedQp {
    qp: Weak<dyn Qp>,
    /// `None`: the page is full.
    record: Option<SlotRef>,
}

impl ObservedRnic {
    pub(super) fn create(
        inner: Arc<dyn Rnic>,
        process: Arc<Process>,
        index: u32,
        record: DeviceRef,
    ) -> Arc<Self> {
        let qps = Mutex::default();
        let this = Arc::new(Self { inner, process, index, record, qps });
        this.process.add(Arc::downgrade(&this));
        this
    }

    /// The index of its record.
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// The queue pairs after `after`, up to a number.
    pub(super) fn queue_pairs(&self, after: Option<QpId>, most: usize) -> Vec<Arc<dyn Qp>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let qps = lock(&self.qps);
        qps.range((from, Unbounded))
            .filter_map(|(_, tracked)| tracked.qp.upgrade())
            .take(most)
            .collect()
    }

    /// One of them.
    pub(super) fn queue_pair(&self, id: QpId) -> Option<Arc<dyn Qp>> {
        lock(&self.qps).get(&id)?.qp.upgrade()
    }

    fn record(&self, qp: &Arc<dyn Qp>, init: &QpInit) {
        let record = self.process.slot();
        if let Some(slot) = &record {
            change(&slot.generation, || {
                slot.used.store(1, Relaxed);
                slot.qp.store(qp.id().0, Relaxed);
                slot.device.store(self.index, Relaxed);
                slot.send_depth.store(init.send_depth, Relaxed);
                slot.recv_depth
                    .store(if init.srq.is_some() { 0 } else { init.recv_depth }, Relaxed);
            });
            qp.publish(slot.clone());
        }
        lock(&self.qps).insert(qp.id(), TrackedQp { qp: Arc::downgrade(qp), record });
        add(&self.record.qps, 1);
    }

    fn forget(&self, qp: QpId) {
        let Some(tracked) = lock(&self.qps).remove(&qp) else { return };
        sub(&self.record.qps, 1);
        if tracked.record.is_none() {
            self.process.forget_unpublished();
        }
    }

    /// Counts a post to a queue pair that a face refused because the queue is full.
    pub(crate) fn count_refusal(&self, qp: QpId) {
        if let Some(TrackedQp { record: Some(slot), .. }) = lock(&self.qps).get(&qp) {
            // The provider counts there, too.
            slot.posts_refused.fetch_add(1, Relaxed);
        }
    }

    /// Publishes what the program says of a connection.
    pub(crate) fn note(&self, qp: QpId, note: &str) {
        if let Some(TrackedQp { record: Some(slot), .. }) = lock(&self.qps).get(&qp) {
            slot.note.set(note);
        }
    }

    /// Counts a new region of some octets.
    fn register(&self, made: VpResult<Stag>, octets: u64) -> VpResult<Stag> {
        if made.is_ok() {
            add(&self.record.regions, 1);
            add(&self.record.region_octets, octets);
        }
        made
    }

    /// Octets of a region; 0 if it has no memory yet.
    fn octets(&self, stag: Stag) -> u64 {
        self.inner.query_mr(stag).map_or(0, |info| info.len)
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Relaxed);
}

fn sub(count: &AtomicU64, less: u64) {
    count.fetch_sub(less, Relaxed);
}

impl ConnectionObserver for ObservedRnic {
    fn established(&self, qp: QpId, established: &Established) {
        let why = established.local.err().map_or("", |why| why.code());
        if let Some(TrackedQp { record: Some(slot), .. }) = lock(&self.qps).get(&qp) {
            slot.why_tcp.set(why);
        }
    }
}

impl Rnic for ObservedRnic {
    fn attrs(&self) -> &RnicAttrs {
        self.inner.attrs()
    }

    fn ports(&self) -> VpResult<Vec<PortInfo>> {
        self.inner.ports()
    }

    fn set_async_handler(&self, handler: Option<Arc<dyn AsyncHandler>>) {
        self.inner.set_async_handler(handler);
    }

    fn alloc_pd(&self) -> VpResult<PdId> {
        self.inner.alloc_pd()
    }

    fn dealloc_pd(&self, pd: PdId) -> VpResult<()> {
        self.inner.dealloc_pd(pd)
    }

    fn create_cq(&self, init: &CqInit) -> VpResult<Arc<dyn Cq>> {
        let cq = self.inner.create_cq(init)?;
        add(&self.record.cqs, 1);
        Ok(cq)
    }

    fn destroy_cq(&self, cq: CqId) -> VpResult<()> {
        self.inner.destroy_cq(cq)?;
        sub(&self.record.cqs, 1);
        Ok(())
    }

    fn create_srq(&self, init: &SrqInit) -> VpResult<Arc<dyn Srq>> {
        self.inner.create_srq(init)
    }

    fn destroy_srq(&self, srq: SrqId) -> VpResult<()> {
        self.inner.destroy_srq(srq)
    }

    fn create_qp(&self, init: &QpInit) -> VpResult<Arc<dyn Qp>> {
        let qp = self.inner.create_qp(init)?;
        self.record(&qp, init);
        Ok(qp)
    }

    fn destroy_qp(&self, qp: QpId) -> VpResult<()> {
        self.inner.destroy_qp(qp)?;
        self.forget(qp);
        Ok(())
    }

    fn register_mr(&self, init: &MrInit) -> VpResult<Stag> {
        self.register(self.inner.register_mr(init), init.range.len() as u64)
    }

    fn reregister_mr(&self, stag: Stag, init: &MrInit) -> VpResult<Stag> {
        let before = self.octets(stag);
        let made = self.inner.reregister_mr(stag, init);
        // Every error except that of bound windows destroys the region.
        let gone = made.is_ok() || self.inner.query_mr(stag).is_err();
        if gone {
            sub(&self.record.regions, 1);
            sub(&self.record.region_octets, before);
        }
        self.register(made, init.range.len() as u64)
    }

    fn register_shared_mr(
        &self,
        original: Stag,
        pd: PdId,
        addressing: Addressing,
        access: Access,
        key: u8,
    ) -> VpResult<Stag> {
        let octets = self.octets(original);
        self.register(self.inner.register_shared_mr(original, pd, addressing, access, key), octets)
    }

    fn alloc_stag(&self, pd: PdId, remote: bool) -> VpResult<Stag> {
        self.register(self.inner.alloc_stag(pd, remote), 0)
    }

    fn query_mr(&self, stag: Stag) -> VpResult<MrInfo> {
        self.inner.query_mr(stag)
    }

    fn dealloc_stag(&self, stag: Stag) -> VpResult<()> {
        let octets = self.octets(stag);
        self.inner.dealloc_stag(stag)?;
        sub(&self.record.regions, 1);
        // Regions registered through a send queue were not counted.
        let less = |now: u64| Some(now.saturating_sub(octets));
        let _ = self.record.region_octets.fetch_update(Relaxed, Relaxed, less);
        Ok(())
    }

    fn alloc_mw(&self, pd: PdId, kind: MwKind) -> VpResult<MwId> {
        self.inner.alloc_mw(pd, kind)
    }

    fn query_mw(&self, mw: MwId) -> VpResult<MwInfo> {
        self.inner.query_mw(mw)
    }

    fn dealloc_mw(&self, mw: MwId) -> VpResult<()> {
        self.inner.dealloc_mw(mw)
    }

    fn native_cm(&self) -> Option<Arc<dyn NativeCm>> {
        self.inner.native_cm()
    }

    fn cm_messages(&self) -> Option<Arc<dyn CmMessages>> {
        self.inner.cm_messages()
    }

    fn paths(&self) -> Option<Arc<dyn Paths>> {
        self.inner.paths()
    }

    fn datagrams(&self) -> Option<Arc<dyn Datagrams>> {
        self.inner.datagrams()
    }

    fn vendor_calls(&self, name: &str) -> VpResult<VendorCalls> {
        self.inner.vendor_calls(name)
    }

    fn lead(&self, until: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<bool, VpStatus> {
        let _waiting = self.record.wait();
        self.inner.lead(until, timeout)
    }

    fn publish(&self, record: DeviceRef) {
        self.inner.publish(record);
    }

    fn capture(&self, to: BorrowedFd<'_>, payload: u32) -> VpResult<u32> {
        self.inner.capture(to, payload)
    }

    fn end_capture(&self, number: u32) -> VpResult<u64> {
        self.inner.end_capture(number)
    }
}
