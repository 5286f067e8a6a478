//! The open RoCE RNIC: the privileged verbs, and the lifetimes of all its objects.
//!
//! Owner: the access layer. An RNIC closes when its last reference is dropped, and its connections end. Privileged
//! verbs run on the application's threads and are never on the data path. QPs handle the death of a peer.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

use vp_api::{
    Access, Addressing, AsyncHandler, CmMessages, Cq, CqId, CqInit, Datagrams, DeviceRef, MrInfo,
    MrInit, MwId, MwInfo, MwKind, NativeCm, Paths, PdId, PortInfo, Qp, QpId, QpInit, Rnic,
    RnicAttrs, Services, Srq, SrqId, SrqInit, Stag, VpError, VpResult, VpStatus,
};
use vp_soft::events::EventSink;
use vp_soft::limits::MAX_OBJECTS;
use vp_soft::memory::mr::Regions;
use vp_soft::memory::stag_table::StagTable;
use vp_soft::memory::{PdUse, mw, place};
use vp_soft::objects::{InUse, Objects};
use vp_soft::ports::ports;
use vp_soft::queue::cq_ring::CqRing;
use vp_soft::queue::srq::SoftSrq;

use crate::cm::RoceCm;
use crate::cq::RoceCq;
use crate::engine::Engine;
use crate::limits;
use crate::qp::{QpParts, RocePaths, RoceQp};
use crate::settings::Settings;
use crate::ud::{RoceDatagrams, RoceUdQp, Tables};

/// An open RNIC.
pub(crate) struct RoceRnic {
    attrs: RnicAttrs,
    settings: Settings,
    events: Arc<EventSink>,
    engine: Arc<Engine>,
    cm: Arc<RoceCm>,
    regions: Regions,
    datagrams: Arc<RoceDatagrams>,
    /// Its record in the process's state page.
    record: Arc<OnceLock<DeviceRef>>,
    pds: Arc<Objects<PdId>>,
    cqs: Arc<Objects<RoceCq>>,
    srqs: Arc<Objects<SoftSrq>>,
    qps: Arc<Objects<QpEntry>>,
}

/// A QP and references to the objects that it uses.
pub(crate) struct QpEntry {
    pub(crate) qp: AnyQp,
    /// Windows that are bound to it.
    pub(crate) windows: Arc<AtomicU32>,
    pub(crate) _uses: Vec<InUse>,
}

/// A QP of either service. Both have ids of one kind.
pub(crate) enum AnyQp {
    /// For connections.
    Connected(Arc<RoceQp>),
    /// For datagrams.
    Datagrams(Arc<RoceUdQp>),
}

impl QpEntry {
    /// The QP with this id, which must be one for connections.
    pub(crate) fn connected(&self, id: QpId) -> VpResult<Arc<RoceQp>> {
        match &self.qp {
            AnyQp::Connected(qp) => Ok(qp.clone()),
            AnyQp::Datagrams(_) => Err(other_service(id, "datagrams")),
        }
    }

    /// The QP with this id, which must be one for datagrams.
    pub(crate) fn datagrams(&self, id: QpId) -> VpResult<Arc<RoceUdQp>> {
        match &self.qp {
            AnyQp::Datagrams(qp) => Ok(qp.clone()),
            AnyQp::Connected(_) => Err(other_service(id, "connections")),
        }
    }

    pub(crate) fn destroy(&self) {
        match &self.qp {
            AnyQp::Connected(qp) => qp.destroy(),
            AnyQp::Datagrams(qp) => qp.destroy(),
        }
    }
}

fn other_service(id: QpId, of: &str) -> VpError {
    VpError::new(VpStatus::InvalidHandle, format!("queue pair {} is one for {of}", id.0))
}

impl RoceRnic {
    pub(crate) fn open(services: Arc<dyn Services>, settings: Settings) -> VpResult<Self> {
        let table = Arc::new(StagTable::new()?);
        let engine = Engine::enter()?;
        let qps = Arc::new(Objects::new("queue pair", MAX_OBJECTS));
        let pds = Arc::new(Objects::new("protection domain", MAX_OBJECTS));
        let cqs = Arc::new(Objects::new("completion queue", MAX_OBJECTS));
        let srqs = Arc::new(Objects::new("shared receive queue", MAX_OBJECTS));
        let tables =
            Tables { pds: pds.clone(), cqs: cqs.clone(), srqs: srqs.clone(), qps: qps.clone() };
        let datagrams = RoceDatagrams::new(engine.clone(), table.clone(), tables);
        Ok(Self {
            attrs: limits::attrs(),
            settings,
            events: Arc::default(),
            cm: Arc::new(RoceCm::new(engine.clone(), qps.clone())),
            engine,
            regions: Regions { table, services, probes: place::can_probe() },
            datagrams: Arc::new(datagrams),
            record: Arc::default(),
            pds,
            cqs,
            srqs,
            qps,
        })
    }

    fn pd(&self, pd: PdId) -> VpResult<PdUse> {
        PdUse::of(&self.pds, pd)
    }

    fn build_qp(&self, id: u32, init: &QpInit) -> VpResult<Arc<QpEntry>> {
        let pd = self.pd(init.pd)?;
        let (send_cq, send_hold) = self.cqs.hold(init.send_cq.0)?;
        let (recv_cq, recv_hold) = self.cqs.hold(init.recv_cq.0)?;
        let mut uses = vec![pd.hold, send_hold, recv_hold];
        let srq = match init.srq {
            Some(srq) => {
                let (srq, hold) = self.srqs.hold(srq.0)?;
                uses.push(hold);
                Some(srq)
            }
            None => None,
        };
        let windows = Arc::new(AtomicU32::new(0));
        let parts = QpParts {
            send_cq,
            recv_cq,
            srq,
            table: self.regions.table.clone(),
            windows: windows.clone(),
            events: self.events.clone(),
            engine: self.engine.clone(),
            settings: self.settings,
        };
        let qp = RoceQp::create(QpId(id), parts, init)?;
        Ok(Arc::new(QpEntry { qp: AnyQp::Connected(qp), windows, _uses: uses }))
    }
}

impl Rnic for RoceRnic {
    fn attrs(&self) -> &RnicAttrs {
        &self.attrs
    }

    fn ports(&self) -> VpResult<Vec<PortInfo>> {
        ports().map_err(|error| VpError::os("listing the network interfaces", &error))
    }

    fn set_async_handler(&self, handler: Option<Arc<dyn AsyncHandler>>) {
        self.events.set(handler);
    }

    fn alloc_pd(&self) -> VpResult<PdId> {
        self.pds.insert(|id| Ok(Arc::new(PdId(id)))).map(|pd| *pd)
    }

    fn dealloc_pd(&self, pd: PdId) -> VpResult<()> {
        self.pds.remove(pd.0, |_| Ok(())).map(drop)
    }

    fn create_cq(&self, init: &CqInit) -> VpResult<Arc<dyn Cq>> {
        let ring = CqRing::new(init.depth)?;
        let cq = self.cqs.insert(|id| {
            let (handler, events) = (init.handler.clone(), self.events.clone());
            let (engine, record) = (self.engine.clone(), self.record.clone());
            Ok(Arc::new(RoceCq::new(CqId(id), ring, handler, events, engine, record)))
        })?;
        Ok(cq)
    }

    fn destroy_cq(&self, cq: CqId) -> VpResult<()> {
        self.cqs.remove(cq.0, |_| Ok(()))?.destroy();
        Ok(())
    }

    fn create_srq(&self, init: &SrqInit) -> VpResult<Arc<dyn Srq>> {
        let pd = self.pd(init.pd)?;
        let srq = self
            .srqs
            .insert(|id| SoftSrq::create(SrqId(id), init, pd.hold, self.events.clone()))?;
        Ok(srq)
    }

    fn destroy_srq(&self, srq: SrqId) -> VpResult<()> {
        self.srqs.remove(srq.0, |_| Ok(()))?.destroy();
        Ok(())
    }

    fn create_qp(&self, init: &QpInit) -> VpResult<Arc<dyn Qp>> {
        limits::check_qp(init)?;
        let mut id = QpId(0);
        let entry = self.qps.insert(|new| {
            id = QpId(new);
            self.build_qp(new, init)
        })?;
        Ok(entry.connected(id)?)
    }

    fn destroy_qp(&self, qp: QpId) -> VpResult<()> {
        let may = |entry: &QpEntry| {
            entry.connected(qp)?;
            mw::check_none_bound(qp, &entry.windows)
        };
        self.qps.remove(qp.0, may)?.destroy();
        Ok(())
    }

    fn register_mr(&self, init: &MrInit) -> VpResult<Stag> {
        self.regions.register(self.pd(init.pd)?, init)
    }

    fn reregister_mr(&self, stag: Stag, init: &MrInit) -> VpResult<Stag> {
        self.regions.reregister(stag, init, || self.pd(init.pd))
    }

    fn register_shared_mr(
        &self,
        original: Stag,
        pd: PdId,
        addressing: Addressing,
        access: Access,
        key: u8,
    ) -> VpResult<Stag> {
        self.regions.register_shared(original, self.pd(pd)?, addressing, access, key)
    }

    fn alloc_stag(&self, pd: PdId, remote: bool) -> VpResult<Stag> {
        self.regions.allocate(self.pd(pd)?, remote)
    }

    fn query_mr(&self, stag: Stag) -> VpResult<MrInfo> {
        self.regions.query(stag)
    }

    fn dealloc_stag(&self, stag: Stag) -> VpResult<()> {
        self.regions.deallocate(stag)
    }

    fn alloc_mw(&self, pd: PdId, kind: MwKind) -> VpResult<MwId> {
        mw::allocate(&self.regions.table, self.pd(pd)?, kind)
    }

    fn query_mw(&self, mw: MwId) -> VpResult<MwInfo> {
        mw::query(&self.regions.table, mw)
    }

    fn dealloc_mw(&self, mw: MwId) -> VpResult<()> {
        mw::deallocate(&self.regions.table, mw)
    }

    fn publish(&self, record: DeviceRef) {
        if self.record.set(record.clone()).is_ok() {
            self.engine.drops.publish(record);
        }
    }

    fn cm_messages(&self) -> Option<Arc<dyn CmMessages>> {
        Some(self.cm.clone())
    }

    fn paths(&self) -> Option<Arc<dyn Paths>> {
        Some(Arc::new(RocePaths { engine: self.engine.clone(), qps: self.qps.clone() }))
    }

    fn datagrams(&self) -> Option<Arc<dyn Datagrams>> {
        Some(self.datagrams.clone())
    }

    fn native_cm(&self) -> Option<Arc<dyn NativeCm>> {
        Some(self.cm.clone())
    }
}

impl Drop for RoceRnic {
    /// Close RNIC frees everything (RDMAC 9.2.1).
    fn drop(&mut self) {
        self.cm.close();
        self.datagrams.close();
        for entry in self.qps.drain() {
            entry.destroy();
        }
        for cq in self.cqs.drain() {
            cq.destroy();
        }
        for srq in self.srqs.drain() {
            srq.destroy();
        }
        if let Some(record) = self.record.get() {
            self.engine.drops.forget(record);
        }
        self.engine.leave();
    }
}
