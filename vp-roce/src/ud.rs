//! Unreliable datagrams: the verbs. Queue pairs are in `ud/qp`, address handles in `ud/ah`, services in `cm`.
//!
//! Owner: the RNIC and the consumer; the tables are the RNIC's. Privileged verbs run on the application's threads. If a
//! peer dies, nothing happens here.

mod ah;
mod qp;

use std::net::SocketAddr;
use std::sync::Arc;

use vp_api::{
    ANY_PORT, AhId, AhInfo, DatagramAttrs, DatagramPath, Datagrams, PdId, QpId, ServiceHandler,
    ServiceRefusal, UdAddress, UdQp, UdQpInit, VpResult,
};
use vp_soft::limits::MAX_OBJECTS;
use vp_soft::memory::PdUse;
use vp_soft::memory::stag_table::StagTable;
use vp_soft::objects::Objects;
use vp_soft::queue::srq::SoftSrq;

use self::ah::Ah;
use self::qp::Parts;
pub(crate) use self::qp::RoceUdQp;
use crate::cm::{self, Ears, Listener};
use crate::cq::RoceCq;
use crate::engine::Engine;
use crate::limits;
use crate::path::Port;
use crate::rnic::{AnyQp, QpEntry};
use crate::tuning::{MAX_BACKLOG, MTU};

/// The RNIC's tables of objects.
pub(crate) struct Tables {
    pub(crate) pds: Arc<Objects<PdId>>,
    pub(crate) cqs: Arc<Objects<RoceCq>>,
    pub(crate) srqs: Arc<Objects<SoftSrq>>,
    pub(crate) qps: Arc<Objects<QpEntry>>,
}

/// The datagrams of an RNIC.
pub(crate) struct RoceDatagrams {
    pub(crate) attrs: DatagramAttrs,
    pub(crate) engine: Arc<Engine>,
    pub(crate) table: Arc<StagTable>,
    tables: Tables,
    ahs: Arc<Objects<Ah>>,
    ears: Arc<Ears>,
}

impl RoceDatagrams {
    pub(crate) fn new(engine: Arc<Engine>, table: Arc<StagTable>, tables: Tables) -> Self {
        let ahs = Arc::new(Objects::new("address handle", MAX_OBJECTS));
        let attrs = limits::datagrams();
        Self { attrs, engine, table, tables, ahs, ears: Arc::default() }
    }

    /// The RNIC is closed: its services and address handles end.
    pub(crate) fn close(&self) {
        self.engine.services.close(&self.ears);
        self.ahs.drain();
    }
}

impl Datagrams for RoceDatagrams {
    fn attrs(&self) -> &DatagramAttrs {
        &self.attrs
    }

    fn max_payload(&self, port: u32) -> VpResult<u32> {
        Ok(Port::at(port)?.mtu()?.octets())
    }

    fn create_qp(&self, init: &UdQpInit) -> VpResult<Arc<dyn UdQp>> {
        limits::check_ud(init)?;
        let Tables { pds, cqs, srqs, qps } = &self.tables;
        let pd = PdUse::of(pds, init.pd)?;
        let (send_cq, send_hold) = cqs.hold(init.send_cq.0)?;
        let (recv_cq, recv_hold) = cqs.hold(init.recv_cq.0)?;
        let mut uses = vec![pd.hold, send_hold, recv_hold];
        let srq = match init.srq {
            Some(srq) => {
                let (srq, hold) = srqs.hold(srq.0)?;
                uses.push(hold);
                Some(srq)
            }
            None => None,
        };
        let port = match init.port {
            ANY_PORT => None,
            index => Some(Port::at(index)?),
        };
        qp::open_sockets(&self.engine, port.as_ref())?;
        let parts = Parts {
            send_cq,
            recv_cq,
            srq,
            table: self.table.clone(),
            ahs: self.ahs.clone(),
            engine: self.engine.clone(),
            mtu: port.as_ref().map_or(Ok(MTU), Port::mtu)?,
            port,
        };
        let mut id = QpId(0);
        let entry = qps.insert(|new| {
            id = QpId(new);
            let qkey = init.qkey.unwrap_or(self.attrs.usual_qkey);
            let qp = AnyQp::Datagrams(RoceUdQp::create(id, parts, qkey, init)?);
            Ok(Arc::new(QpEntry { qp, windows: Arc::default(), _uses: uses }))
        })?;
        Ok(entry.datagrams(id)?)
    }

    fn destroy_qp(&self, qp: QpId) -> VpResult<()> {
        self.tables.qps.remove(qp.0, |entry| entry.datagrams(qp).map(drop))?.destroy();
        Ok(())
    }

    fn create_ah(&self, pd: PdId, path: &DatagramPath) -> VpResult<AhId> {
        let pd = PdUse::of(&self.tables.pds, pd)?;
        let mut id = AhId(0);
        self.ahs.insert(|new| {
            id = AhId(new);
            Ah::new(&self.engine, pd, path).map(Arc::new)
        })?;
        Ok(id)
    }

    fn query_ah(&self, ah: AhId) -> VpResult<AhInfo> {
        Ok(self.ahs.get(ah.0)?.info)
    }

    fn destroy_ah(&self, ah: AhId) -> VpResult<()> {
        self.ahs.remove(ah.0, |_| Ok(())).map(drop)
    }

    fn set_service_handler(&self, handler: Option<Arc<dyn ServiceHandler>>) {
        self.ears.set(handler);
    }

    fn listen(&self, token: u64, address: SocketAddr, backlog: u32) -> VpResult<SocketAddr> {
        let listener = Listener {
            owner: (self.ears.clone(), token),
            address: address.ip(),
            port: address.port(),
            backlog: (backlog as usize).clamp(1, MAX_BACKLOG),
            sockets: cm::sockets(&self.engine, address.ip())?,
        };
        let port = self.engine.services.listen(&self.engine, &self.ears, token, listener)?;
        let mut bound = address;
        bound.set_port(port);
        Ok(bound)
    }

    fn unlisten(&self, token: u64) -> VpResult<()> {
        self.engine.services.unlisten(&self.ears, token)
    }

    fn resolve(&self, token: u64, peer: SocketAddr, private_data: &[u8]) -> VpResult<()> {
        cm::fits("resolve", private_data, self.attrs.max_private_request)?;
        self.engine.services.resolve(&self.engine, &self.ears, token, peer, private_data)
    }

    fn cancel(&self, token: u64) -> VpResult<()> {
        self.engine.services.cancel(&self.ears, token)
    }

    fn accept(&self, request: u64, answer: UdAddress, private_data: &[u8]) -> VpResult<()> {
        cm::fits("accept", private_data, self.attrs.max_private_reply)?;
        let (engine, ears) = (&self.engine, &self.ears);
        engine.services.accept(engine, ears, request, answer, private_data)
    }

    fn reject(&self, request: u64, why: ServiceRefusal, private_data: &[u8]) -> VpResult<()> {
        cm::fits("reject", private_data, self.attrs.max_private_reply)?;
        let (engine, ears) = (&self.engine, &self.ears);
        engine.services.reject(engine, ears, request, why, private_data)
    }
}
