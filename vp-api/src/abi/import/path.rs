//! Imported bring-up by path: calls it through its function table.

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

use super::super::{path, types as c};
use super::calls::defect;
use super::{table_of, verb};
use crate::path::NUMBERS;
use crate::{PathSender, Paths, PeerPath, QpId, VpResult};

struct ImportedPaths {
    handle: *mut c_void,
    ops: c::PathOps,
    /// The open RNIC. Dropped after the handle is released.
    _rnic: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the header lets every function be called from any thread.
unsafe impl Send for ImportedPaths {}
// SAFETY: as for `Send`.
unsafe impl Sync for ImportedPaths {}

impl Drop for ImportedPaths {
    fn drop(&mut self) {
        if let Some(release) = self.ops.release {
            // SAFETY: the last use of the handle, before the RNIC is closed.
            unsafe { release(self.handle) };
        }
    }
}

/// Checks what the provider returned.
pub(super) fn take(
    made: &c::PathsMade,
    rnic: Arc<dyn Any + Send + Sync>,
) -> VpResult<Arc<dyn Paths>> {
    let ops = table_of!(made, paths, "ri_path_ops": release number receive send)?;
    Ok(Arc::new(ImportedPaths { handle: made.paths, ops, _rnic: rnic }))
}

impl Paths for ImportedPaths {
    fn number(&self, qp: QpId) -> VpResult<u32> {
        let mut number = u32::MAX;
        verb!(self.ops.number, "number", self.handle, qp.0, &raw mut number)?;
        match NUMBERS.contains(&number) {
            true => Ok(number),
            false => Err(defect(format!("number of a QP is {number:#x}, and has 24 bits"))),
        }
    }

    fn receive(&self, qp: QpId, peer: &PeerPath) -> VpResult<()> {
        let lent = path::peer_to(peer);
        verb!(self.ops.receive, "receive", self.handle, qp.0, &raw const lent)
    }

    fn send(&self, qp: QpId, sender: &PathSender) -> VpResult<()> {
        let lent = path::sender_to(sender);
        verb!(self.ops.send, "send", self.handle, qp.0, &raw const lent)
    }
}
