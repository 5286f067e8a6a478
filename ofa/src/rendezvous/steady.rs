//! A queue pair during a rendezvous, as the connection manager sees it: a failed attempt does not change
//! it, nor its posts, because another attempt may follow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vp_api::{PostFailure, Qp, QpChange, QpId, QpInfo, RecvWr, SendWr, VpResult};

/// A queue pair that ignores changes to Error until it is changeable.
pub(crate) struct Steady {
    inner: Arc<dyn Qp>,
    /// The stream is established, or there will be none.
    changeable: AtomicBool,
}

impl Steady {
    pub(crate) fn new(inner: Arc<dyn Qp>) -> Self {
        Self { inner, changeable: AtomicBool::new(false) }
    }

    /// From now on all changes take effect.
    pub(crate) fn allow_changes(&self) {
        self.changeable.store(true, Ordering::Release);
    }
}

impl Qp for Steady {
    fn id(&self) -> QpId {
        self.inner.id()
    }

    fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        self.inner.post_send(wrs)
    }

    fn post_send_whole(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        self.inner.post_send_whole(wrs)
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        self.inner.post_recv(wrs)
    }

    fn modify(&self, change: QpChange) -> VpResult<()> {
        match change {
            QpChange::Error if !self.changeable.load(Ordering::Acquire) => Ok(()),
            change => self.inner.modify(change),
        }
    }

    fn query(&self) -> VpResult<QpInfo> {
        self.inner.query()
    }
}
