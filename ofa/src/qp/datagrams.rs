//! Queue pairs for datagrams (UD), where the device has them. The provider's is operational at once; the states that
//! programs see only decide what may be posted.

use std::sync::Arc;

use vp_api::{
    ANY_PORT, PostFailure, QpChange, QpId, QpInfo, QpInit, QpState, RecvWr, SendWr, UdQp, UdQpInit,
    UdState, VpError, VpResult, VpStatus,
};

use super::Qp;
use crate::adapter::Adapter;
use crate::advice;
use crate::errno::{EOPNOTSUPP, Errno};

/// Makes one of the provider's, of these sizes.
pub(super) fn make(adapter: &Adapter, like: &QpInit) -> Result<Arc<dyn UdQp>, Errno> {
    let service = adapter.rnic().datagrams();
    let service = service.ok_or_else(|| {
        advice::no_datagrams();
        EOPNOTSUPP
    })?;
    Ok(service.create_qp(&UdQpInit {
        send_depth: like.send_depth,
        recv_depth: like.recv_depth,
        max_send_sge: like.max_send_sge,
        max_recv_sge: like.max_recv_sge,
        max_inline: like.max_inline,
        srq: like.srq,
        // A device has one port here, with the addresses of all interfaces.
        port: ANY_PORT,
        ..UdQpInit::new(like.pd, like.send_cq, like.recv_cq)
    })?)
}

/// Destroys one of the provider's.
pub(super) fn destroy(adapter: &Adapter, qp: QpId) -> Result<(), Errno> {
    let service = adapter.rnic().datagrams().ok_or(EOPNOTSUPP)?;
    Ok(service.destroy_qp(qp)?)
}

impl Qp {
    /// The provider's queue pair for datagrams, if it is one.
    #[inline]
    pub(crate) fn datagrams(&self) -> Option<&Arc<dyn UdQp>> {
        self.datagrams.as_ref()
    }
}

/// What both kinds have in common, in the form of a queue pair for connections.
pub(super) struct AsConnected(pub(super) Arc<dyn UdQp>);

impl vp_api::Qp for AsConnected {
    fn id(&self) -> QpId {
        self.0.id()
    }

    /// Datagrams need an address.
    fn post_send(&self, _: &[SendWr<'_>]) -> Result<(), PostFailure> {
        Err(PostFailure { posted: 0, status: VpStatus::InvalidWr })
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        self.0.post_recv(wrs)
    }

    fn modify(&self, change: QpChange) -> VpResult<()> {
        match change {
            QpChange::Error => self.0.modify(UdState::Error),
            QpChange::Idle => match self.0.reset() {
                Err(error) if error.status == VpStatus::Unsupported => {
                    self.0.modify(UdState::Operational)
                }
                done => done,
            },
            _ => {
                let detail = "a queue pair for datagrams has no such change";
                Err(VpError::new(VpStatus::Unsupported, detail))
            }
        }
    }

    fn query(&self) -> VpResult<QpInfo> {
        let own = self.0.query()?;
        let mut info = QpInfo::new(own.id);
        info.state = match own.state {
            UdState::Operational => QpState::Rts,
            UdState::Error => QpState::Error,
        };
        (info.send_depth, info.recv_depth) = (own.send_depth, own.recv_depth);
        info.sends_outstanding = own.sends_outstanding;
        info.recvs_outstanding = own.recvs_outstanding;
        Ok(info)
    }
}
