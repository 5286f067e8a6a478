//! What the messages say beyond the events, and exchanges of queue pairs that take no part.
//!
//! Calls of the application, with the table locked.

use vp_api::{CmMessages, PathTerms, QpId, VpError, VpResult, VpStatus};

use super::RoceCm;

impl CmMessages for RoceCm {
    fn carry(&self, qp: QpId, number: u32) -> VpResult<()> {
        // The field of a message has 24 bits.
        self.qp(qp)?.carry(number & 0x00ff_ffff)
    }

    fn establish(&self, qp: QpId) -> VpResult<()> {
        let qp = self.qp(qp)?;
        let is_ready = self.engine.connections.lock().of(&qp).is_some_and(|one| one.establish());
        let detail = "the peer has not accepted, or the connection is established";
        is_ready.then_some(()).ok_or_else(|| VpError::new(VpStatus::InvalidState, detail))
    }

    fn terms(&self, qp: QpId) -> Option<PathTerms> {
        let qp = self.qp(qp).ok()?;
        self.engine.connections.lock().of(&qp)?.terms()
    }

    fn offered(&self, request: u64) -> Option<PathTerms> {
        let mut table = self.engine.connections.lock();
        table.offered(&self.events, request).ok()?.terms()
    }

    fn refusal(&self, qp: QpId) -> Option<u16> {
        self.qp(qp).ok()?.refusal()
    }
}
