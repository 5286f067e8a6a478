//! The protection zone: regions, windows, queues and endpoints work together only inside one.

use std::sync::Arc;

use vp_api::PdId;

use super::Ia;
use crate::error::{Error, Object, Result};
use crate::life::{InUse, Life, Living};
use crate::tag::Tag;

/// Protection zone (IT-API `it_pz_create`).
pub struct Pz {
    pd: PdId,
    life: Life,
    tag: Tag,
    ia: InUse<Ia>,
}

impl Ia {
    /// Creates a protection zone.
    pub fn create_pz(self: &Arc<Self>) -> Result<Arc<Pz>> {
        Pz::new(self)
    }
}

impl Pz {
    fn new(ia: &Arc<Ia>) -> Result<Arc<Self>> {
        let ia = InUse::new(ia)?;
        let pd = ia.rnic().alloc_pd().map_err(Error::verb("allocate a protection domain"))?;
        Ok(Arc::new(Self { pd, life: Life::new(Object::Pz), tag: Tag::default(), ia }))
    }

    /// The provider's id.
    pub fn id(&self) -> PdId {
        self.pd
    }

    /// The face's number for it.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Its Ia.
    pub fn ia(&self) -> &Arc<Ia> {
        self.ia.arc()
    }

    /// Closes it; refused while anything is in it.
    pub fn close(&self) -> Result<()> {
        self.life.close()?;
        if let Err(error) = self.ia.rnic().dealloc_pd(self.pd) {
            self.life.reopen();
            return Err(Error::verb("deallocate the protection domain")(error));
        }
        self.ia.release();
        Ok(())
    }
}

impl Living for Pz {
    fn life(&self) -> &Life {
        &self.life
    }
}

impl Drop for Pz {
    fn drop(&mut self) {
        // It is closed already, or can no longer be used; either way the error concerns no one.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Pz {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pz({:?})", self.pd)
    }
}
