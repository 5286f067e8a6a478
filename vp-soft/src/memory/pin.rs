//! Optional pinning of registered memory.
//!
//! Software providers need no pinning: the kernel's sockets fault pages in. On request the access layer pins
//! memory, and accounts for it. Owner: the region's memory.

use std::sync::Arc;

use vp_api::{MemRange, Services, VpError, VpResult, VpStatus};

/// A pinned range; unpinned when dropped.
pub(crate) struct Pinned {
    services: Arc<dyn Services>,
    addr: usize,
    len: usize,
}

impl Pinned {
    pub(crate) fn new(services: &Arc<dyn Services>, range: &MemRange) -> VpResult<Self> {
        let (addr, len) = (range.addr().as_ptr().addr(), range.len());
        services.pin(addr, len).map_err(|error| {
            let detail = format!(
                "pinning {len} octets at {addr:#x}: {error}; register without pinning, which \
                 this device does not need, or raise the limit of locked memory (ulimit -l)"
            );
            VpError::new(VpStatus::InsufficientResources, detail)
        })?;
        Ok(Self { services: services.clone(), addr, len })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.services.unpin(self.addr, self.len);
    }
}
