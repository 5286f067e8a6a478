//! References that the RNIC passes to the objects that it creates.
//!
//! Plain bundles of shared parts; the objects take them apart.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use vp_api::{CqHandler, CqId, PdId, QpId};
use vp_soft::events::EventSink;
use vp_soft::memory::stag_table::StagTable;
use vp_soft::queue::cq_ring::CqRing;
use vp_soft::queue::srq::SoftSrq;

use crate::engine::Engine;
use crate::queue::cq::SoftCq;

/// For `SoftCq::create`.
pub(crate) struct CqParts {
    pub(crate) id: CqId,
    pub(crate) ring: CqRing,
    pub(crate) handler: Option<Arc<dyn CqHandler>>,
    pub(crate) events: Arc<EventSink>,
    pub(crate) engine: Arc<Engine>,
}

/// For `Qp::create`.
pub(crate) struct QpParts {
    pub(crate) id: QpId,
    pub(crate) pd: PdId,
    pub(crate) send_cq: Arc<SoftCq>,
    pub(crate) recv_cq: Arc<SoftCq>,
    pub(crate) srq: Option<Arc<SoftSrq>>,
    pub(crate) table: Arc<StagTable>,
    /// Narrow windows bound through the QP; `mw::bind` counts them.
    pub(crate) windows: Arc<AtomicU32>,
    pub(crate) events: Arc<EventSink>,
    pub(crate) engine: Arc<Engine>,
}
