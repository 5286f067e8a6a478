//! Bring-up by path with a fault. Any thread.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use vp_api::*;

use crate::faults::Fault;
use crate::seed::{Seed, lock};

pub(crate) struct Paths {
    inner: Arc<dyn vp_api::Paths>,
    seed: Arc<Seed>,
    /// Peers of queue pairs that a fault lets receive only when they send.
    late: Mutex<HashMap<QpId, PeerPath>>,
}

impl Paths {
    pub(crate) fn new(inner: Arc<dyn vp_api::Paths>, seed: Arc<Seed>) -> Self {
        Self { inner, seed, late: Mutex::default() }
    }

    fn has(&self, fault: Fault) -> bool {
        self.seed.has(fault)
    }

    /// What a fault makes of a refusal.
    fn refusal<T: Default>(&self, result: VpResult<T>) -> VpResult<T> {
        let Err(why) = result else { return result };
        match why.status {
            VpStatus::InvalidHandle if self.has(Fault::PathOfGone) => Ok(T::default()),
            VpStatus::InvalidIrdOrd if self.has(Fault::PathDepthIsModifier) => {
                Err(VpError::new(VpStatus::InvalidModifier, "seeded"))
            }
            _ => Err(why),
        }
    }
}

impl vp_api::Paths for Paths {
    fn number(&self, qp: QpId) -> VpResult<u32> {
        let number = self.refusal(self.inner.number(qp))?;
        Ok(number + u32::from(self.has(Fault::PathNumberMoves)) * (self.seed.next() % 2))
    }

    fn receive(&self, qp: QpId, peer: &PeerPath) -> VpResult<()> {
        let mut peer = *peer;
        if self.has(Fault::PathNumbersCut) {
            (peer.qpn, peer.psn) = (peer.qpn & 0x00ff_ffff, peer.psn & 0x00ff_ffff);
        }
        if self.has(Fault::PathServesLate) {
            lock(&self.late).insert(qp, peer);
            return Ok(());
        }
        match self.refusal(self.inner.receive(qp, &peer)) {
            Err(why)
                if why.status == VpStatus::InvalidState && self.has(Fault::PathReceivesTwice) =>
            {
                Ok(())
            }
            other => other,
        }
    }

    fn send(&self, qp: QpId, sender: &PathSender) -> VpResult<()> {
        if let Some(peer) = lock(&self.late).remove(&qp) {
            self.inner.receive(qp, &peer)?;
        }
        match self.refusal(self.inner.send(qp, sender)) {
            Err(why) if why.status == VpStatus::InvalidState && self.has(Fault::PathSendsFirst) => {
                Ok(())
            }
            other => other,
        }
    }
}
