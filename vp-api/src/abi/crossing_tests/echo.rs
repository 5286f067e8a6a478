//! A test provider that logs how it was called and returns what the tests expect. It keeps what a real provider
//! keeps: ranges until deregistration, and handlers until they are replaced.

use std::collections::HashMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::samples;
use crate::*;

pub(super) struct Echo;

impl Provider for Echo {
    fn name(&self) -> &str {
        "echo"
    }
    fn version(&self) -> &str {
        "7"
    }
    fn devices(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        Ok(samples::devices())
    }
    fn open(&self, device: &str, services: Arc<dyn Services>) -> VpResult<Arc<dyn crate::Rnic>> {
        if let Some(code) = device.strip_prefix("refuse ") {
            let status = super::codes::status(code.parse().unwrap()).unwrap();
            return Err(VpError::new(status, format!("{device}: as it was told")));
        }
        let expected =
            [("a", "1"), ("b", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(services.settings(), expected);
        let log = Log(services);
        log.record("open", &device);
        let (handler, ranges) = (Mutex::default(), Mutex::default());
        let mut attrs = samples::attrs();
        attrs.capabilities.set(Capabilities::BASED, device != "without bases");
        Ok(Arc::new(Rnic { log, attrs, handler, ranges }))
    }
}

#[derive(Clone)]
pub(super) struct Log(Arc<dyn Services>);

impl Log {
    pub(super) fn record(&self, verb: &str, arguments: &dyn Debug) {
        self.0.log(LogLevel::Debug, "echo", &format!("{verb} {arguments:?}"));
    }
}

struct Rnic {
    log: Log,
    attrs: RnicAttrs,
    handler: Mutex<Option<Arc<dyn AsyncHandler>>>,
    ranges: Mutex<HashMap<u32, MemRange>>,
}

impl crate::Rnic for Rnic {
    fn attrs(&self) -> &RnicAttrs {
        &self.attrs
    }
    fn ports(&self) -> VpResult<Vec<PortInfo>> {
        Ok(samples::ports())
    }
    fn set_async_handler(&self, handler: Option<Arc<dyn AsyncHandler>>) {
        if let Some(handler) = &handler {
            samples::events().into_iter().for_each(|(from, event)| handler.on_event(from, event));
        }
        *self.handler.lock().unwrap() = handler;
    }
    fn alloc_pd(&self) -> VpResult<PdId> {
        // Calls of the host's services cross in the other direction.
        let (memory, now) = ([0u8; 8], self.log.0.now_ns());
        let pinned = self.log.0.pin(memory.as_ptr().addr(), 8).map_err(|e| e.to_string());
        self.log.0.unpin(memory.as_ptr().addr(), 8);
        self.log.record("alloc_pd", &(now, pinned));
        Ok(PdId(11))
    }
    fn dealloc_pd(&self, pd: PdId) -> VpResult<()> {
        self.log.record("dealloc_pd", &pd);
        Ok(())
    }
    fn create_cq(&self, init: &CqInit) -> VpResult<Arc<dyn crate::Cq>> {
        self.log.record("create_cq", &init.depth);
        let (log, handler) = (self.log.clone(), init.handler.clone());
        let ready = Mutex::new(samples::completions());
        Ok(Arc::new(Cq { log, depth: init.depth + 1, handler, ready }))
    }
    fn destroy_cq(&self, cq: CqId) -> VpResult<()> {
        self.log.record("destroy_cq", &cq);
        Err(VpError::new(VpStatus::InUse, "a QP uses it"))
    }
    fn create_srq(&self, init: &SrqInit) -> VpResult<Arc<dyn crate::Srq>> {
        self.log.record("create_srq", init);
        Ok(Arc::new(Srq(self.log.clone())))
    }
    fn destroy_srq(&self, srq: SrqId) -> VpResult<()> {
        self.log.record("destroy_srq", &srq);
        Ok(())
    }
    fn create_qp(&self, init: &QpInit) -> VpResult<Arc<dyn crate::Qp>> {
        self.log.record("create_qp", init);
        Ok(Arc::new(Qp(self.log.clone())))
    }
    fn destroy_qp(&self, qp: QpId) -> VpResult<()> {
        self.log.record("destroy_qp", &qp);
        Ok(())
    }
    fn register_mr(&self, init: &MrInit) -> VpResult<Stag> {
        self.log.record("register_mr", init);
        self.ranges.lock().unwrap().insert(0x1234, init.range.clone());
        Ok(Stag::new(0x1234, init.key))
    }
    fn reregister_mr(&self, stag: Stag, init: &MrInit) -> VpResult<Stag> {
        self.log.record("reregister_mr", &(stag, init));
        self.ranges.lock().unwrap().insert(0x1234, init.range.clone());
        Ok(Stag::new(0x1234, init.key))
    }
    fn register_shared_mr(
        &self,
        original: Stag,
        pd: PdId,
        addressing: Addressing,
        access: Access,
        key: u8,
    ) -> VpResult<Stag> {
        self.log.record("register_shared_mr", &(original, pd, addressing, access, key));
        Ok(Stag::new(0x1235, key))
    }
    fn alloc_stag(&self, pd: PdId, remote: bool) -> VpResult<Stag> {
        self.log.record("alloc_stag", &(pd, remote));
        Ok(Stag::new(0x1236, 0))
    }
    fn query_mr(&self, stag: Stag) -> VpResult<MrInfo> {
        self.log.record("query_mr", &stag);
        Ok(samples::mr_info())
    }
    fn dealloc_stag(&self, stag: Stag) -> VpResult<()> {
        self.log.record("dealloc_stag", &stag);
        self.ranges.lock().unwrap().remove(&stag.index());
        Ok(())
    }
    fn alloc_mw(&self, pd: PdId, kind: MwKind) -> VpResult<MwId> {
        self.log.record("alloc_mw", &(pd, kind));
        Ok(MwId(0x77))
    }
    fn query_mw(&self, mw: MwId) -> VpResult<MwInfo> {
        self.log.record("query_mw", &mw);
        Ok(samples::mw_info(mw))
    }
    fn dealloc_mw(&self, mw: MwId) -> VpResult<()> {
        self.log.record("dealloc_mw", &mw);
        Ok(())
    }
    fn native_cm(&self) -> Option<Arc<dyn NativeCm>> {
        let events = samples::native_events();
        Some(Arc::new(Cm { log: self.log.clone(), events: Mutex::new(events) }))
    }
    fn vendor_calls(&self, name: &str) -> VpResult<VendorCalls> {
        static TABLE: u64 = 9;
        match name {
            "échos/1" => Ok(VendorCalls {
                table: NonNull::from(&TABLE).cast(),
                context: std::ptr::without_provenance_mut(5),
            }),
            _ => Err(VpError::new(VpStatus::Unsupported, format!("not {name}, but échos/1"))),
        }
    }
    fn lead(&self, until: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<bool, VpStatus> {
        self.log.record("lead", &(until.as_raw_fd(), timeout));
        match timeout {
            None => Ok(true),
            Some(Duration::ZERO) => Err(VpStatus::Interrupted),
            Some(_) => Ok(false),
        }
    }
    fn paths(&self) -> Option<Arc<dyn Paths>> {
        Some(Arc::new(super::paths::Echo(self.log.clone())))
    }
    fn datagrams(&self) -> Option<Arc<dyn Datagrams>> {
        Some(super::datagrams::echo(&self.log))
    }
}

struct Cq {
    log: Log,
    depth: u32,
    handler: Option<Arc<dyn CqHandler>>,
    ready: Mutex<Vec<WorkCompletion>>,
}

impl crate::Cq for Cq {
    fn id(&self) -> CqId {
        CqId(9)
    }
    fn depth(&self) -> u32 {
        self.depth
    }
    fn queued(&self) -> usize {
        3
    }
    fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus> {
        let mut ready = self.ready.lock().unwrap();
        let count = ready.len().min(out.len());
        out.iter_mut().zip(ready.drain(..count)).for_each(|(place, one)| *place = one);
        Ok(count)
    }
    fn poll_from(
        &self,
        out: &mut [WorkCompletion],
        from: &mut [Option<DatagramSource>],
    ) -> Result<usize, VpStatus> {
        let left = self.ready.lock().unwrap().len();
        for (n, place) in from.iter_mut().enumerate() {
            *place = super::datagrams::source(left.saturating_sub(n));
        }
        self.poll(out)
    }
    fn arm(&self, solicited_only: bool) -> Result<(), VpStatus> {
        self.log.record("arm", &solicited_only);
        if let Some(handler) = &self.handler {
            handler.on_completion(CqId(9));
        }
        Ok(())
    }
    fn wait(&self, spin: Duration, timeout: Option<Duration>) -> Result<bool, VpStatus> {
        self.log.record("wait", &(spin, timeout));
        if spin.is_zero() { Err(VpStatus::Interrupted) } else { Ok(timeout.is_none()) }
    }
    fn interrupt(&self) {
        self.log.record("interrupt", &());
    }
    fn resize(&self, depth: u32) -> VpResult<u32> {
        self.log.record("resize", &depth);
        Ok(2 * depth)
    }
}

struct Srq(Log);

impl crate::Srq for Srq {
    fn id(&self) -> SrqId {
        SrqId(12)
    }
    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        wrs.iter().for_each(|wr| self.0.record("srq post_recv", wr));
        Err(PostFailure { posted: 1, status: VpStatus::TooManyWrs })
    }
    fn modify(&self, depth: Option<u32>, limit: Option<u32>) -> VpResult<SrqInfo> {
        self.0.record("srq modify", &(depth, limit));
        Ok(samples::srq_info())
    }
    fn query(&self) -> VpResult<SrqInfo> {
        Ok(samples::srq_info())
    }
}

struct Qp(Log);

impl crate::Qp for Qp {
    fn id(&self) -> QpId {
        QpId(13)
    }
    fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        // Long lists are passed in parts.
        wrs.iter().for_each(|wr| self.0.record("post_send", wr));
        Ok(())
    }
    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        wrs.iter().for_each(|wr| self.0.record("post_recv", wr));
        match wrs.iter().position(|wr| wr.wr_id == u64::MAX) {
            Some(posted) => Err(PostFailure { posted, status: VpStatus::InvalidWr }),
            None => Ok(()),
        }
    }
    fn modify(&self, change: QpChange) -> VpResult<()> {
        self.0.record("modify", &change);
        Ok(())
    }
    fn query(&self) -> VpResult<QpInfo> {
        Ok(samples::qp_info())
    }
}

struct Cm {
    log: Log,
    events: Mutex<Vec<NativeEvent>>,
}

impl NativeCm for Cm {
    fn listen(&self, address: SocketAddr, backlog: u32) -> VpResult<(u64, SocketAddr)> {
        self.log.record("listen", &(address, backlog));
        Ok((1 << 40, SocketAddr::new(address.ip(), 4791)))
    }
    fn unlisten(&self, listener: u64) -> VpResult<()> {
        self.log.record("unlisten", &listener);
        Ok(())
    }
    fn connect(&self, qp: QpId, peer: SocketAddr, params: NativeParams) -> VpResult<()> {
        self.log.record("connect", &(qp, peer, params));
        Ok(())
    }
    fn accept(&self, request: u64, qp: QpId, params: NativeParams) -> VpResult<()> {
        self.log.record("accept", &(request, qp, params));
        Err(VpError::new(VpStatus::InvalidModifier, "too long"))
    }
    fn reject(&self, request: u64, private_data: &[u8]) -> VpResult<()> {
        self.log.record("reject", &(request, private_data));
        Ok(())
    }
    fn disconnect(&self, qp: QpId) -> VpResult<()> {
        self.log.record("disconnect", &qp);
        Ok(())
    }
    fn poll_event(&self) -> Option<NativeEvent> {
        let mut events = self.events.lock().unwrap();
        if events.is_empty() { None } else { Some(events.remove(0)) }
    }
    fn wait_event(&self, timeout: Option<Duration>) -> VpResult<bool> {
        self.log.record("wait_event", &timeout);
        Ok(timeout.is_none())
    }
}
