//! Unreliable datagrams of devices that have them: InfiniBand and RoCE.
//!
//! Owner: the open device, and the consumer. Any thread.

mod ah;
mod path;
mod post;
mod qp;
mod service;

use std::net::SocketAddr;
use std::sync::Arc;

use roce_proto::cm::reply;
use vp_api::{
    AhId, AhInfo, DatagramAttrs, DatagramPath, Datagrams, PdId, QpId, RnicAttrs, ServiceHandler,
    ServiceRefusal, UdAddress, UdQp, UdQpInit, VpError, VpResult, VpStatus,
};

use crate::cm::{Cm, private};
use crate::device_objects::DeviceObjects;
use crate::map::count;
use crate::mw::Memory;
use crate::owned::refused;
use crate::ports;
use crate::qp::Routes;
use crate::rnic::check_depth;
use ah::Ahs;
use ibv_sys::RDMA_UDP_QKEY;
use path::Port;
use qp::Parts;

pub(crate) use qp::VerbsUdQp;
pub(crate) use service::{Services, is_mine};

/// The datagrams of an open device.
pub(crate) struct VerbsDatagrams {
    attrs: DatagramAttrs,
    rnic: RnicAttrs,
    objects: Arc<DeviceObjects>,
    cm: Arc<Cm>,
    memory: Arc<Memory>,
    routes: Arc<Routes>,
    ahs: Arc<Ahs>,
}

impl VerbsDatagrams {
    pub(crate) fn new(
        objects: &Arc<DeviceObjects>,
        cm: &Arc<Cm>,
        memory: &Arc<Memory>,
        routes: &Arc<Routes>,
        rnic: &RnicAttrs,
    ) -> Self {
        let mut attrs = DatagramAttrs::default();
        attrs.max_ah = objects.context.query().map_or(0, |attr| count(attr.max_ah));
        attrs.max_private_request = (reply::QUESTION - private::TRAILER) as u32;
        attrs.max_private_reply = (reply::ROOM - reply::TRAILER) as u32;
        attrs.usual_qkey = RDMA_UDP_QKEY;
        Self {
            attrs,
            rnic: rnic.clone(),
            objects: objects.clone(),
            cm: cm.clone(),
            memory: memory.clone(),
            routes: routes.clone(),
            ahs: Arc::default(),
        }
    }

    /// Destroys everything.
    pub(crate) fn clear(&self) {
        for qp in self.objects.uds.all() {
            // Objects that the kernel refuses to destroy are freed with the context.
            let _ = qp.destroy();
        }
        self.ahs.clear();
        self.cm.services.clear();
        self.cm.services.set_handler(None);
    }

    fn port(&self, index: u32) -> VpResult<Port> {
        let context = &self.objects.context;
        let number = ports::number(context, index).ok_or_else(|| {
            let detail = format!("{} has no port {index}", context.name);
            VpError::new(VpStatus::InvalidModifier, detail)
        })?;
        Port::query(context, index, number).map_err(refused(&format!("query the port {index}")))
    }

    /// Checks limits that the kernel would refuse with "invalid" only.
    fn check(&self, init: &UdQpInit) -> VpResult<()> {
        check_depth("send queue", init.send_depth)?;
        check_depth("receive queue", init.recv_depth)?;
        let most = [
            ("send depth", init.send_depth, self.rnic.max_wr_per_qp, VpStatus::TooManyWrs),
            ("receive depth", init.recv_depth, self.rnic.max_wr_per_qp, VpStatus::TooManyWrs),
            ("SGEs per send", init.max_send_sge, self.rnic.max_sge_send, VpStatus::InvalidSgl),
            ("SGEs per receive", init.max_recv_sge, self.rnic.max_sge_recv, VpStatus::InvalidSgl),
            ("octets inline", init.max_inline, self.rnic.max_inline, VpStatus::InvalidSgl),
        ];
        if init.srq.is_some() {
            let detail = "queue pairs for datagrams have receive queues of their own here";
            return Err(VpError::new(VpStatus::Unsupported, detail));
        }
        match most.iter().find(|(_, asked, most, _)| asked > most) {
            None => Ok(()),
            Some((what, asked, most, status)) => {
                let name = &self.objects.context.name;
                let detail = format!("{what}: {name} has {most} at most, {asked} were requested");
                Err(VpError::new(*status, detail))
            }
        }
    }

    fn fits(&self, what: &str, private_data: &[u8], most: u32) -> VpResult<()> {
        if private_data.len() <= most as usize {
            return Ok(());
        }
        let (len, name) = (private_data.len(), &self.objects.context.name);
        let detail = format!("{what}: {len} octets of private data, {name} takes {most}");
        Err(VpError::new(VpStatus::InvalidModifier, detail))
    }
}

impl Datagrams for VerbsDatagrams {
    fn attrs(&self) -> &DatagramAttrs {
        &self.attrs
    }

    fn max_payload(&self, port: u32) -> VpResult<u32> {
        Ok(self.port(port)?.max_payload())
    }

    fn create_qp(&self, init: &UdQpInit) -> VpResult<Arc<dyn UdQp>> {
        self.check(init)?;
        let objects = &self.objects;
        let (send_cq, send_hold) = objects.cqs.hold(init.send_cq.0)?;
        let (recv_cq, recv_hold) = objects.cqs.hold(init.recv_cq.0)?;
        let pd = objects.domain(init.pd)?;
        let parts = Parts {
            context: objects.context.clone(),
            routes: self.routes.clone(),
            memory: self.memory.clone(),
            ahs: self.ahs.clone(),
            port: self.port(init.port)?,
            pd: pd.raw,
            send_cq,
            recv_cq,
        };
        let holds = vec![pd.hold, send_hold, recv_hold];
        let id = objects.queue_pair_id();
        let qp = VerbsUdQp::create(parts, holds, id, init)?;
        objects.uds.insert(id, qp.clone());
        Ok(qp)
    }

    fn destroy_qp(&self, qp: QpId) -> VpResult<()> {
        self.objects.uds.remove(qp.0, VerbsUdQp::destroy)
    }

    fn create_ah(&self, pd: PdId, path: &DatagramPath) -> VpResult<AhId> {
        let (pd, port) = (self.objects.domain(pd)?, self.port(path.port)?);
        self.ahs.create(&self.objects.context, pd, &port, path)
    }

    fn query_ah(&self, ah: AhId) -> VpResult<AhInfo> {
        self.ahs.query(ah)
    }

    fn destroy_ah(&self, ah: AhId) -> VpResult<()> {
        self.ahs.destroy(ah)
    }

    fn set_service_handler(&self, handler: Option<Arc<dyn ServiceHandler>>) {
        self.cm.services.set_handler(handler);
    }

    fn listen(&self, token: u64, address: SocketAddr, backlog: u32) -> VpResult<SocketAddr> {
        self.cm.services.listen(self.cm.maker(), token, address, backlog)
    }

    fn unlisten(&self, token: u64) -> VpResult<()> {
        self.cm.services.unlisten(token)
    }

    fn resolve(&self, token: u64, peer: SocketAddr, private_data: &[u8]) -> VpResult<()> {
        self.fits("resolve", private_data, self.attrs.max_private_request)?;
        let packed = private::pack(private_data, reply::QUESTION);
        self.cm.services.resolve(self.cm.maker(), token, peer, packed)
    }

    fn cancel(&self, token: u64) -> VpResult<()> {
        self.cm.services.cancel(token)
    }

    fn accept(&self, request: u64, answer: UdAddress, private_data: &[u8]) -> VpResult<()> {
        self.fits("accept", private_data, self.attrs.max_private_reply)?;
        self.cm.services.accept(request, answer, private_data)
    }

    fn reject(&self, request: u64, why: ServiceRefusal, private_data: &[u8]) -> VpResult<()> {
        self.fits("reject", private_data, self.attrs.max_private_reply)?;
        self.cm.services.reject(request, why, private_data)
    }
}
