//! A multicast group that an identifier has joined, and the queue pair that is attached to it.

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use crate::qp::Qp;

/// See the module.
pub(super) struct Group {
    address: IpAddr,
    qp: Option<Weak<Qp>>,
}

impl Group {
    /// `qp` has joined it.
    pub(super) fn new(address: IpAddr, qp: Option<&Arc<Qp>>) -> Self {
        Self { address, qp: qp.map(Arc::downgrade) }
    }

    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    /// Leaves it.
    pub(super) fn leave(&self) {
        if let Some(qp) = self.qp.as_ref().and_then(Weak::upgrade) {
            qp.leave_group(self.address);
        }
    }
}
