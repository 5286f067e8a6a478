//! The open device of the verbs provider: the privileged verbs, and the lifetimes of all its objects.
//!
//! Owner: the access layer. The device closes with its last reference: queue pairs first, the event thread last.
//! Privileged verbs run on the application's threads.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use vp_api::{
    Access, Addressing, AsyncHandler, Capabilities, ConnectionModel, Cq, CqId, CqInit, Datagrams,
    MrInfo, MrInit, MwId, MwInfo, MwKind, NativeCm, PdId, PortInfo, Qp, QpId, QpInit, Rnic,
    RnicAttrs, Services, Srq, SrqId, SrqInit, Stag, Unready, VpError, VpResult, VpStatus,
};

use crate::cm::{Cm, MOST_READS, private};
use crate::cq::{self, VerbsCq};
use crate::device::Context;
use crate::device_objects::DeviceObjects;
use crate::dl::text;
use crate::events::{self, Channel, EventSink, bell, ring};
use crate::map::{self, count};
use crate::mr::{self, Region};
use crate::mw::Memory;
use crate::object_table::{ObjectTable, lock};
use crate::owned::{Owned, refused};
use crate::ports;
use crate::qp::{QpParts, Routes, VerbsQp};
use crate::srq::VerbsSrq;
use crate::thread;
use crate::ud::VerbsDatagrams;
use crate::wire::SGES;

/// An open device.
pub(crate) struct VerbsRnic {
    attrs: RnicAttrs,
    objects: Arc<DeviceObjects>,
    cm: Arc<Cm>,
    memory: Arc<Memory>,
    routes: Arc<Routes>,
    datagrams: Option<Arc<VerbsDatagrams>>,
    thread: Mutex<Option<kal_os::Thread>>,
    stop: Arc<OwnedFd>,
}

impl VerbsRnic {
    pub(crate) fn open(context: Arc<Context>, services: Arc<dyn Services>) -> VpResult<Self> {
        let attempt = format!("open {}", context.name);
        let channel = Channel::new(&context).map_err(refused(&attempt))?;
        events::prepare(&context, &channel).map_err(refused(&attempt))?;
        let attrs = attributes(&context, &channel).map_err(refused(&attempt))?;
        let (sink, qps) =
            (Arc::new(EventSink::default()), Arc::new(ObjectTable::new("queue pair")));
        let cm = Arc::new(Cm::new(&context, &sink, &qps).map_err(refused(&attempt))?);
        let objects = Arc::new(DeviceObjects {
            sink,
            cqs: ObjectTable::new("completion queue"),
            srqs: ObjectTable::new("shared receive queue"),
            qps,
            cm: Arc::downgrade(&cm),
            pds: ObjectTable::new("protection domain"),
            uds: ObjectTable::new("queue pair for datagrams"),
            channel,
            context,
            services,
        });
        let stop = Arc::new(bell().map_err(refused(&attempt))?);
        let (events, connections, stopped) = (objects.clone(), cm.clone(), stop.clone());
        let serve =
            move || thread::run(&events.context, &events.channel, &connections, &stopped, &*events);
        let thread = kal_os::spawn("warpline-verbs", serve).map_err(refused(&attempt))?;
        let (memory, routes) = (Arc::<Memory>::default(), Arc::<Routes>::default());
        let datagrams = attrs.capabilities.contains(Capabilities::UD).then(|| {
            let made = VerbsDatagrams::new(&objects, &cm, &memory, &routes, &attrs);
            Arc::new(made)
        });
        Ok(Self {
            attrs,
            objects,
            cm,
            memory,
            routes,
            datagrams,
            thread: Mutex::new(Some(thread)),
            stop,
        })
    }

    /// Checks limits that the kernel would refuse with "invalid" only.
    fn check(&self, init: &QpInit) -> VpResult<()> {
        let attrs = &self.attrs;
        check_depth("send queue", init.send_depth)?;
        if init.srq.is_none() {
            check_depth("receive queue", init.recv_depth)?;
        }
        let most = [
            ("send depth", init.send_depth, attrs.max_wr_per_qp, VpStatus::TooManyWrs),
            ("receive depth", init.recv_depth, attrs.max_wr_per_qp, VpStatus::TooManyWrs),
            ("SGEs per send", init.max_send_sge, attrs.max_sge_send, VpStatus::InvalidSgl),
            ("SGEs per receive", init.max_recv_sge, attrs.max_sge_recv, VpStatus::InvalidSgl),
            ("octets inline", init.max_inline, attrs.max_inline, VpStatus::InvalidSgl),
            ("IRD", init.ird.into(), attrs.max_ird.into(), VpStatus::InvalidIrdOrd),
            ("ORD", init.ord.into(), attrs.max_ord.into(), VpStatus::InvalidIrdOrd),
        ];
        if let Some((what, asked, most, status)) =
            most.iter().find(|(_, asked, most, _)| asked > most)
        {
            let name = &self.objects.context.name;
            let detail = format!("{what}: {name} has {most} at most, {asked} were requested");
            return Err(VpError::new(*status, detail));
        }
        if init.privileged {
            let detail = "privileged queue pairs are the kernel's";
            return Err(VpError::new(VpStatus::NotPrivileged, detail));
        }
        if init.recv_limit != 0 {
            let detail = "this device has a limit event for shared receive queues only";
            return Err(VpError::new(VpStatus::Unsupported, detail));
        }
        // How often an InfiniBand peer retries is set by its own rnr_retry; this end cannot change it.
        if init.unready != Unready::Terminate {
            return Err(init.unready.unsupported());
        }
        Ok(())
    }
}

/// Refuses a queue without entries.
pub(crate) fn check_depth(what: &str, depth: u32) -> VpResult<()> {
    if depth != 0 {
        return Ok(());
    }
    Err(VpError::new(VpStatus::InvalidModifier, format!("{what}: its depth must be 1 at least")))
}

/// Query RNIC: the device's attributes, and those that only a trial shows.
fn attributes(context: &Arc<Context>, channel: &Channel) -> std::io::Result<RnicAttrs> {
    let attr = context.query()?;
    let vendor = format!("{:#08x}", attr.vendor_id);
    let mut attrs = RnicAttrs::new(&vendor, &context.name, ConnectionModel::Native);
    attrs.firmware = text(&attr.fw_ver);
    attrs.capabilities = map::capabilities(&attr, context.iwarp);
    attrs.capabilities.set(Capabilities::BASED, context.register_based().is_some());
    attrs.capabilities.set(Capabilities::CQ_RESIZE, cq::resizes(context, channel));
    let sges = count(attr.max_sge).min(SGES as u32 - 1);
    attrs.max_qp = count(attr.max_qp);
    // An iWARP connection begins with a request of the provider.
    attrs.max_wr_per_qp = count(attr.max_qp_wr).saturating_sub(context.iwarp.into());
    attrs.max_wr_per_srq = count(attr.max_srq_wr);
    (attrs.max_sge_send, attrs.max_sge_recv, attrs.max_sge_write) = (sges, sges, sges);
    attrs.max_sge_read = 1;
    attrs.max_inline =
        INLINE.into_iter().find(|&size| takes_inline(context, channel, size)).unwrap_or(0);
    attrs.max_cq = count(attr.max_cq);
    attrs.max_cqe = count(attr.max_cqe);
    attrs.max_srq = count(attr.max_srq);
    attrs.max_pd = count(attr.max_pd);
    attrs.max_mr = count(attr.max_mr);
    attrs.max_mr_octets = attr.max_mr_size;
    attrs.max_mw = count(attr.max_mw);
    let reads = |number| count(number).min(MOST_READS.into()) as u16;
    attrs.max_ird = reads(attr.max_qp_rd_atom);
    attrs.max_ord = reads(attr.max_qp_init_rd_atom);
    let port = context.query_port(1)?;
    let [connect, accept, reject] = private::most(context.iwarp).map(|most| most as u32);
    (attrs.max_private_connect, attrs.max_private_accept) = (connect, accept);
    attrs.max_private_reject = reject;
    attrs.max_message = if port.max_msg_sz == 0 { u32::MAX } else { port.max_msg_sz };
    Ok(attrs)
}

/// Sizes to try for inline data.
const INLINE: [u32; 4] = [256, 128, 64, 32];

fn takes_inline(context: &Arc<Context>, channel: &Channel, size: u32) -> bool {
    cq::try_inline(context, channel, size).is_ok()
}

impl Rnic for VerbsRnic {
    fn attrs(&self) -> &RnicAttrs {
        &self.attrs
    }

    fn ports(&self) -> VpResult<Vec<PortInfo>> {
        Ok(ports::list(&self.objects.context))
    }

    fn set_async_handler(&self, handler: Option<Arc<dyn AsyncHandler>>) {
        self.objects.sink.set(handler);
    }

    fn alloc_pd(&self) -> VpResult<PdId> {
        let context = &self.objects.context;
        let ibv = &context.api.ibv;
        // SAFETY: the context is open.
        let raw = unsafe { (ibv.ibv_alloc_pd)(context.as_ptr()) };
        // SAFETY: just created; destroyed by its counterpart.
        let raw = unsafe { Owned::new(raw, ibv.ibv_dealloc_pd, context) };
        let raw = raw.map_err(refused("allocate a protection domain"))?;
        let id = self.objects.pds.reserve();
        self.objects.pds.insert(id, Arc::new(Mutex::new(Some(raw))));
        Ok(PdId(id))
    }

    fn dealloc_pd(&self, pd: PdId) -> VpResult<()> {
        self.objects.pds.remove(pd.0, |entry| {
            let mut slot = lock(entry);
            if let Some(raw) = slot.take()
                && let Err((raw, error)) = raw.destroy()
            {
                *slot = Some(raw);
                return Err(refused("deallocate the protection domain")(error));
            }
            Ok(())
        })
    }

    fn create_cq(&self, init: &CqInit) -> VpResult<Arc<dyn Cq>> {
        check_depth("CQ", init.depth)?;
        let objects = &self.objects;
        let id = objects.cqs.reserve();
        let cq = VerbsCq::create(&objects.context, &objects.channel, &self.routes, id, init)?;
        objects.cqs.insert(id, cq.clone());
        Ok(cq)
    }

    fn destroy_cq(&self, cq: CqId) -> VpResult<()> {
        self.objects.cqs.remove(cq.0, VerbsCq::destroy)
    }

    fn create_srq(&self, init: &SrqInit) -> VpResult<Arc<dyn Srq>> {
        check_depth("shared receive queue", init.depth)?;
        let objects = &self.objects;
        let (pd, id) = (self.objects.domain(init.pd)?, objects.srqs.reserve());
        let srq = VerbsSrq::create(&objects.context, &self.memory, pd, id, init)?;
        objects.srqs.insert(id, srq.clone());
        self.routes.add_srq(id, srq.clone());
        Ok(srq)
    }

    fn destroy_srq(&self, srq: SrqId) -> VpResult<()> {
        self.objects.srqs.remove(srq.0, VerbsSrq::destroy)?;
        self.routes.remove_srq(srq.0);
        Ok(())
    }

    fn create_qp(&self, init: &QpInit) -> VpResult<Arc<dyn Qp>> {
        self.check(init)?;
        let objects = &self.objects;
        let (send_cq, send_hold) = objects.cqs.hold(init.send_cq.0)?;
        let (recv_cq, recv_hold) = objects.cqs.hold(init.recv_cq.0)?;
        let pd = self.objects.domain(init.pd)?;
        let mut holds = vec![pd.hold, send_hold, recv_hold];
        let srq = match init.srq {
            Some(srq) => {
                let (srq, hold) = objects.srqs.hold(srq.0)?;
                holds.push(hold);
                Some(srq)
            }
            None => None,
        };
        let parts = QpParts {
            context: objects.context.clone(),
            routes: self.routes.clone(),
            memory: self.memory.clone(),
            cm: objects.cm.clone(),
            pd: pd.raw,
            send_cq,
            recv_cq,
            srq,
        };
        let id = objects.queue_pair_id();
        let qp = VerbsQp::create(parts, holds, id, init)?;
        objects.qps.insert(id, qp.clone());
        Ok(qp)
    }

    fn destroy_qp(&self, qp: QpId) -> VpResult<()> {
        self.objects.qps.remove(qp.0, VerbsQp::destroy)?;
        self.cm.forget(qp);
        Ok(())
    }

    fn register_mr(&self, init: &MrInit) -> VpResult<Stag> {
        let pd = self.objects.domain(init.pd)?;
        self.memory.add(Region::register(&self.objects.context, pd, init, false)?)
    }

    fn reregister_mr(&self, stag: Stag, init: &MrInit) -> VpResult<Stag> {
        let old = self.memory.remove(stag)?;
        // From here on a failure ends the region (RDMAC 9.2.6).
        let pd = match mr::check(init).and_then(|()| self.objects.domain(init.pd)) {
            Ok(pd) => pd,
            Err(why) => {
                old.deregister()?;
                return Err(why);
            }
        };
        match old.reregister(&self.objects.context, pd, init) {
            Ok(new) => self.memory.add(new),
            // The device changes no regions: a new one replaces it.
            Err(pd) => {
                old.deregister()?;
                self.memory.add(Region::register(&self.objects.context, pd, init, false)?)
            }
        }
    }

    fn register_shared_mr(
        &self,
        original: Stag,
        pd: PdId,
        addressing: Addressing,
        access: Access,
        key: u8,
    ) -> VpResult<Stag> {
        let region = self.memory.region(original)?;
        let gone = || VpError::new(VpStatus::InvalidStag, "the region was deregistered");
        let range = region.range().ok_or_else(gone)?;
        let init = MrInit { pd, range, addressing, access, key, pin: false };
        let new = Region::register(&self.objects.context, self.objects.domain(pd)?, &init, true)?;
        region.share();
        self.memory.add(new)
    }

    fn alloc_stag(&self, _pd: PdId, _remote: bool) -> VpResult<Stag> {
        let detail = "registration through the send queue is the kernel's";
        Err(VpError::new(VpStatus::Unsupported, detail))
    }

    fn query_mr(&self, stag: Stag) -> VpResult<MrInfo> {
        Ok(self.memory.region(stag)?.info(self.memory.bound_to(stag)))
    }

    fn dealloc_stag(&self, stag: Stag) -> VpResult<()> {
        let region = self.memory.remove(stag)?;
        region.deregister().inspect_err(|_| self.memory.put_back(region.clone()))
    }

    fn alloc_mw(&self, pd: PdId, kind: MwKind) -> VpResult<MwId> {
        let (needed, which) = match kind {
            MwKind::Wide => (Capabilities::WIDE_MW, "wide memory windows (type 1)"),
            MwKind::Narrow => (Capabilities::NARROW_MW, "narrow memory windows (type 2)"),
        };
        if !self.attrs.capabilities.contains(needed) {
            let detail = format!("{} has no {which}", self.objects.context.name);
            return Err(VpError::new(VpStatus::Unsupported, detail));
        }
        self.memory.alloc(&self.objects.context, self.objects.domain(pd)?, kind)
    }

    fn query_mw(&self, mw: MwId) -> VpResult<MwInfo> {
        self.memory.query(mw)
    }

    fn dealloc_mw(&self, mw: MwId) -> VpResult<()> {
        self.memory.dealloc(mw)
    }

    fn native_cm(&self) -> Option<Arc<dyn NativeCm>> {
        Some(self.cm.clone())
    }

    fn datagrams(&self) -> Option<Arc<dyn Datagrams>> {
        self.datagrams.clone().map(|datagrams| datagrams as Arc<dyn Datagrams>)
    }
}

impl Drop for VerbsRnic {
    /// Close RNIC frees everything (RDMAC 9.2.1), in the order of dependence. Objects that the kernel refuses to
    /// destroy are freed with the context.
    fn drop(&mut self) {
        for qp in self.objects.qps.all() {
            let _ = qp.destroy();
        }
        if let Some(datagrams) = &self.datagrams {
            datagrams.clear();
        }
        self.cm.clear();
        for srq in self.objects.srqs.all() {
            let _ = srq.destroy();
        }
        for cq in self.objects.cqs.all() {
            let _ = cq.destroy();
        }
        self.memory.clear_windows();
        self.memory.clear_regions();
        ring(&self.stop);
        if let Some(thread) = lock(&self.thread).take() {
            thread.join();
        }
    }
}
