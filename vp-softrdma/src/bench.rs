//! Benchmark access to the inner parts of the data path (feature `bench`).
//!
//! Holds no state. Only the benchmarks use it.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use vp_api::{Cq, CqId, MrInit, PdId, Qp, QpChange, QpInit, Services, Stag, VpResult};
use vp_soft::events::EventSink;
use vp_soft::memory::PdUse;
use vp_soft::memory::mr::Regions;
use vp_soft::memory::place;
use vp_soft::memory::stag_table::StagTable;
use vp_soft::objects::Objects;
use vp_soft::queue::cq_ring::CqRing;

use crate::engine::Engine;
use crate::parts::{CqParts, QpParts};
use crate::qp::SoftQp;
use crate::queue::cq::SoftCq;

/// The CRC32c kernel that this process uses.
pub fn crc32c() -> fn(u32, &[u8]) -> u32 {
    crate::stream::crc::kernel()
}

/// A table with `count` regions like `init`, and their STags.
pub fn table(
    services: Arc<dyn Services>,
    init: &MrInit,
    count: usize,
) -> VpResult<(Arc<StagTable>, Vec<Stag>)> {
    let table = Arc::new(StagTable::new()?);
    let regions = Regions { table: table.clone(), services, probes: place::can_probe() };
    let pds = Objects::new("protection domain", 1);
    let pd = pds.insert(|id| Ok(Arc::new(PdId(id))))?;
    let stags: VpResult<Vec<Stag>> = (0..count)
        .map(|_| regions.register(PdUse { id: init.pd, hold: pds.hold(pd.0)?.1 }, init))
        .collect();
    Ok((table, stags?))
}

/// A connected QP with a CQ and a region of its own, that can be fed without its socket.
pub struct End {
    qp: Arc<SoftQp>,
    cq: Arc<SoftCq>,
    stag: Stag,
}

impl End {
    /// An end in the state that `change` leads to, with queues of `depth` work requests.
    pub fn new(
        services: Arc<dyn Services>,
        region: &MrInit,
        depth: u32,
        change: QpChange,
    ) -> VpResult<Self> {
        let (table, stags) = table(services.clone(), region, 1)?;
        let events = Arc::<EventSink>::default();
        let engine = Engine::start(services, "bench")?;
        let cq = SoftCq::create(CqParts {
            id: CqId(1),
            ring: CqRing::new(4 * depth)?,
            handler: None,
            events: events.clone(),
            engine: engine.clone(),
        });
        let mut init = QpInit::new(region.pd, cq.id(), cq.id());
        (init.send_depth, init.recv_depth) = (depth, depth);
        let parts = QpParts {
            id: vp_api::QpId(1),
            pd: region.pd,
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            table,
            windows: Arc::new(AtomicU32::new(0)),
            events,
            engine,
        };
        let qp = SoftQp::create(parts, &init)?;
        qp.modify(change)?;
        Ok(Self { qp, cq, stag: stags[0] })
    }

    /// The QP.
    pub fn qp(&self) -> &dyn Qp {
        &*self.qp
    }

    /// The CQ of both its queues.
    pub fn cq(&self) -> &dyn Cq {
        &*self.cq
    }

    /// Its region.
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// Feeds octets as if they had been received from the socket.
    pub fn feed(&self, octets: &[u8]) {
        self.qp.feed(octets);
    }
}
