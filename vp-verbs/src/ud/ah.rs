//! Address handles of datagrams.
//!
//! Owner: the device's table, and every posted send that uses the handle, until the send is done. So the
//! application may destroy a handle while the device still uses it. Any thread.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use vp_api::{AhId, AhInfo, DatagramPath, PdId, VpError, VpResult, VpStatus};

use super::path::Port;
use crate::device::Context;
use crate::mr::Domain;
use crate::object_table::InUse;
use crate::owned::{Owned, refused};
use ibv_sys::*;

/// An address handle.
pub(crate) struct Ah {
    raw: Owned<ibv_ah>,
    info: AhInfo,
    /// A hold on the domain; dropped after the handle.
    _hold: InUse,
}

impl Ah {
    pub(super) fn as_ptr(&self) -> *mut ibv_ah {
        self.raw.as_ptr()
    }

    pub(super) fn pd(&self) -> PdId {
        self.info.pd
    }
}

/// The address handles of a device.
#[derive(Default)]
pub(crate) struct Ahs(RwLock<AhTable>);

#[derive(Default)]
struct AhTable {
    last: u32,
    all: BTreeMap<u32, Arc<Ah>>,
}

impl Ahs {
    pub(super) fn create(
        &self,
        context: &Arc<Context>,
        pd: Domain,
        port: &Port,
        path: &DatagramPath,
    ) -> VpResult<AhId> {
        const ATTEMPT: &str = "create an address handle";
        let attr = port.attributes(context, path).map_err(refused(ATTEMPT))?;
        let mut attr = attr.ok_or_else(|| {
            let detail = format!("the local GID of the path is not one of port {}", port.index);
            VpError::new(VpStatus::InvalidAddress, detail)
        })?;
        let ibv = &context.api.ibv;
        // SAFETY: the domain is alive: the hold keeps it. The attributes may be written.
        let raw = unsafe { (ibv.ibv_create_ah)(pd.raw, &mut attr) };
        // SAFETY: just created; destroyed by its counterpart.
        let raw = unsafe { Owned::new(raw, ibv.ibv_destroy_ah, context) };
        let raw = raw.map_err(refused(ATTEMPT))?;
        let info = AhInfo { pd: pd.id, path: *path };
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let id = table.free();
        table.all.insert(id, Arc::new(Ah { raw, info, _hold: pd.hold }));
        Ok(AhId(id))
    }

    pub(super) fn get(&self, ah: AhId) -> Option<Arc<Ah>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).all.get(&ah.0).cloned()
    }

    pub(super) fn query(&self, ah: AhId) -> VpResult<AhInfo> {
        self.get(ah).map(|found| found.info).ok_or_else(|| none(ah))
    }

    pub(super) fn destroy(&self, ah: AhId) -> VpResult<()> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let gone = table.all.remove(&ah.0).ok_or_else(|| none(ah))?;
        // If a send uses the handle, it is destroyed with the send.
        let Some(Ah { raw, info, _hold }) = Arc::into_inner(gone) else { return Ok(()) };
        if let Err((raw, error)) = raw.destroy() {
            table.all.insert(ah.0, Arc::new(Ah { raw, info, _hold }));
            return Err(refused("destroy the address handle")(error));
        }
        Ok(())
    }

    /// Destroys all handles.
    pub(super) fn clear(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).all.clear();
    }
}

impl AhTable {
    fn free(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.all.contains_key(&self.last) {
                return self.last;
            }
        }
    }
}

fn none(ah: AhId) -> VpError {
    let detail = format!("there is no address handle {}, or it was destroyed", ah.0);
    VpError::new(VpStatus::InvalidHandle, detail)
}
