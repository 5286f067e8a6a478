//! A queue pair as the connection manager sees it during a rendezvous: an attempt that fails leaves it as it
//! is, with what is posted, for there may be another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vp_api::{PostFailure, Qp, QpChange, QpId, QpInfo, RecvWr, SendWr, VpResult};

/// See the module.
pub(crate) struct Steady {
    inner: Arc<dyn Qp>,
    /// The stream is there, or there will be none.
    settled: AtomicBool,
}

impl Steady {
    pub(crate) fn new(inner: Arc<dyn Qp>) -> Self {
        Self { inner, settled: AtomicBool::new(false) }
    }

    /// From now on everything goes through.
    pub(crate) fn settle(&self) {
        self.settled.store(true, Ordering::Release);
    }
}

impl Qp for Steady {
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
            QpChange::Error if !self.settled.load(Ordering::Acquire) => Ok(()),
            change => self.inner.modify(change),
        }
    }

    fn query(&self) -> VpResult<QpInfo> {
        self.inner.query()
    }
}
