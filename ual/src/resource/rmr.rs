//! Remote memory regions: memory windows, bound to a part of an Lmr through a send queue.

use std::sync::Arc;

use vp_api::{MwId, MwInfo, MwKind};

use super::Pz;
use crate::error::{Error, Object, Result};
use crate::life::{InUse, Life, Living};
use crate::tag::Tag;

/// Memory window (IT-API `it_rmr_create`).
pub struct Rmr {
    window: MwId,
    life: Life,
    tag: Tag,
    pz: InUse<Pz>,
}

impl Pz {
    /// Allocates a memory window.
    pub fn create_rmr(self: &Arc<Self>, kind: MwKind) -> Result<Arc<Rmr>> {
        Rmr::new(self, kind)
    }
}

impl Rmr {
    fn new(pz: &Arc<Pz>, kind: MwKind) -> Result<Arc<Self>> {
        let pz = InUse::new(pz)?;
        let verb = Error::verb("allocate a memory window");
        let window = pz.ia().rnic().alloc_mw(pz.id(), kind).map_err(verb)?;
        Ok(Arc::new(Self { window, life: Life::new(Object::Rmr), tag: Tag::default(), pz }))
    }

    /// The provider's id, for [`vp_api::BindMw`].
    pub fn id(&self) -> MwId {
        self.window
    }

    /// The face's number for it.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Its zone.
    pub fn pz(&self) -> &Arc<Pz> {
        self.pz.arc()
    }

    /// The attributes of the window.
    pub fn query(&self) -> Result<MwInfo> {
        let verb = Error::verb("query the memory window");
        self.pz.ia().rnic().query_mw(self.window).map_err(verb)
    }

    /// Unbinds and deallocates it.
    pub fn close(&self) -> Result<()> {
        self.life.close()?;
        if let Err(error) = self.pz.ia().rnic().dealloc_mw(self.window) {
            self.life.reopen();
            return Err(Error::verb("deallocate the memory window")(error));
        }
        self.pz.release();
        Ok(())
    }
}

impl Living for Rmr {
    fn life(&self) -> &Life {
        &self.life
    }
}

impl Drop for Rmr {
    fn drop(&mut self) {
        // It is closed already, or can no longer be used; either way the error concerns no one.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Rmr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rmr({:?})", self.id())
    }
}
