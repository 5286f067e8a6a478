//! A provider that accepts local streams: it keeps them, and lets SoftRDMA carry the FPDUs over TCP.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use vp_api::*;

/// The local streams that the queue pairs of an adapter received.
#[derive(Default)]
pub(crate) struct Taken(Mutex<Vec<(QpId, LocalStream, StreamParams)>>);

impl Taken {
    /// Takes that of a queue pair.
    pub(crate) fn of(&self, qp: QpId) -> Option<(LocalStream, StreamParams)> {
        let mut all = self.0.lock().unwrap();
        let at = all.iter().position(|(of, ..)| *of == qp)?;
        let (_, stream, params) = all.remove(at);
        Some((stream, params))
    }
}

/// Wraps a provider's RNIC; see the module.
pub(crate) struct Takes {
    inner: Arc<dyn Rnic>,
    attrs: RnicAttrs,
    pub(crate) taken: Arc<Taken>,
}

struct TakingQp {
    inner: Arc<dyn Qp>,
    taken: Arc<Taken>,
}

impl Takes {
    pub(crate) fn new(inner: Arc<dyn Rnic>) -> Self {
        let mut attrs = inner.attrs().clone();
        attrs.capabilities |= Capabilities::LOCAL_STREAM;
        Self { inner, attrs, taken: Arc::default() }
    }

    /// One that knows no local streams.
    pub(crate) fn none(inner: Arc<dyn Rnic>) -> Self {
        let mut attrs = inner.attrs().clone();
        attrs.capabilities.remove(Capabilities::LOCAL_STREAM);
        Self { inner, attrs, taken: Arc::default() }
    }
}

impl Qp for TakingQp {
    fn id(&self) -> QpId {
        self.inner.id()
    }
    fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        self.inner.post_send(wrs)
    }
    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        self.inner.post_recv(wrs)
    }
    fn modify(&self, change: QpChange) -> VpResult<()> {
        match change {
            QpChange::Rts(mut stream) => {
                if let Some(local) = stream.local.take() {
                    assert_eq!(stream.received, b"");
                    self.taken.0.lock().unwrap().push((self.id(), local, stream.params));
                }
                self.inner.modify(QpChange::Rts(stream))
            }
            other => self.inner.modify(other),
        }
    }
    fn query(&self) -> VpResult<QpInfo> {
        self.inner.query()
    }
}

impl Rnic for Takes {
    fn attrs(&self) -> &RnicAttrs {
        &self.attrs
    }
    fn create_qp(&self, init: &QpInit) -> VpResult<Arc<dyn Qp>> {
        let inner = self.inner.create_qp(init)?;
        Ok(Arc::new(TakingQp { inner, taken: self.taken.clone() }))
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
        self.inner.create_cq(init)
    }
    fn destroy_cq(&self, cq: CqId) -> VpResult<()> {
        self.inner.destroy_cq(cq)
    }
    fn create_srq(&self, init: &SrqInit) -> VpResult<Arc<dyn Srq>> {
        self.inner.create_srq(init)
    }
    fn destroy_srq(&self, srq: SrqId) -> VpResult<()> {
        self.inner.destroy_srq(srq)
    }
    fn destroy_qp(&self, qp: QpId) -> VpResult<()> {
        self.inner.destroy_qp(qp)
    }
    fn register_mr(&self, init: &MrInit) -> VpResult<Stag> {
        self.inner.register_mr(init)
    }
    fn reregister_mr(&self, stag: Stag, init: &MrInit) -> VpResult<Stag> {
        self.inner.reregister_mr(stag, init)
    }
    fn register_shared_mr(
        &self,
        original: Stag,
        pd: PdId,
        addressing: Addressing,
        access: Access,
        key: u8,
    ) -> VpResult<Stag> {
        self.inner.register_shared_mr(original, pd, addressing, access, key)
    }
    fn alloc_stag(&self, pd: PdId, remote: bool) -> VpResult<Stag> {
        self.inner.alloc_stag(pd, remote)
    }
    fn query_mr(&self, stag: Stag) -> VpResult<MrInfo> {
        self.inner.query_mr(stag)
    }
    fn dealloc_stag(&self, stag: Stag) -> VpResult<()> {
        self.inner.dealloc_stag(stag)
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
    fn lead(&self, until: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<bool, VpStatus> {
        self.inner.lead(until, timeout)
    }
}
