//! Address handles: paths along which datagrams are sent.
//!
//! The object owns the provider's handle; another path replaces it. Posts that use it and a change
//! exclude each other. No peer is involved.

use std::sync::{Arc, PoisonError, RwLock};

use vp_api::{AhId, AhInfo, DatagramPath, Datagrams};

use super::Pz;
use crate::error::{Error, Object, Result};
use crate::life::{InUse, Life, Living};
use crate::tag::Tag;

/// Address handle (IT-API `it_address_handle_create`).
pub struct AddressHandle {
    datagrams: Arc<dyn Datagrams>,
    ah: RwLock<AhId>,
    life: Life,
    tag: Tag,
    pz: InUse<Pz>,
}

impl Pz {
    /// Creates an address handle.
    pub fn create_address_handle(
        self: &Arc<Self>,
        path: &DatagramPath,
    ) -> Result<Arc<AddressHandle>> {
        AddressHandle::new(self, path)
    }
}

impl AddressHandle {
    fn new(pz: &Arc<Pz>, path: &DatagramPath) -> Result<Arc<Self>> {
        let datagrams = pz.ia().datagrams("create an address handle")?.clone();
        let pz = InUse::new(pz)?;
        let ah = create(&*datagrams, &pz, path)?;
        let (life, tag) = (Life::new(Object::AddressHandle), Tag::default());
        Ok(Arc::new(Self { datagrams, ah: RwLock::new(ah), life, tag, pz }))
    }

    /// The face's number for it.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Its zone.
    pub fn pz(&self) -> &Arc<Pz> {
        self.pz.arc()
    }

    /// Its path, with what the provider filled in.
    pub fn path(&self) -> Result<DatagramPath> {
        let queried = self.with(|ah| self.datagrams.query_ah(ah))?;
        let AhInfo { path, .. } = queried.map_err(Error::verb("query the address handle"))?;
        Ok(path)
    }

    /// Changes the path. If this is refused the path stays as it was.
    pub fn modify(&self, path: &DatagramPath) -> Result<()> {
        let mut ah = self.ah.write().unwrap_or_else(PoisonError::into_inner);
        self.check_open()?;
        let new = create(&*self.datagrams, &self.pz, path)?;
        let old = std::mem::replace(&mut *ah, new);
        self.datagrams.destroy_ah(old).map_err(Error::verb("destroy the old address handle"))
    }

    /// Destroys it. Datagrams that were posted with it are sent, or complete in error.
    pub fn close(&self) -> Result<()> {
        let ah = self.ah.write().unwrap_or_else(PoisonError::into_inner);
        self.life.close()?;
        if let Err(error) = self.datagrams.destroy_ah(*ah) {
            self.life.reopen();
            return Err(Error::verb("destroy the address handle")(error));
        }
        self.pz.release();
        Ok(())
    }

    /// Uses the provider's handle, which stays valid until `used` returns.
    pub(super) fn with<R>(&self, used: impl FnOnce(AhId) -> R) -> Result<R> {
        let ah = self.ah.read().unwrap_or_else(PoisonError::into_inner);
        self.check_open()?;
        Ok(used(*ah))
    }

    fn check_open(&self) -> Result<()> {
        match self.life.is_closed() {
            true => Err(Error::Closed(Object::AddressHandle)),
            false => Ok(()),
        }
    }
}

fn create(datagrams: &dyn Datagrams, pz: &Pz, path: &DatagramPath) -> Result<AhId> {
    datagrams.create_ah(pz.id(), path).map_err(Error::verb("create an address handle"))
}

impl Living for AddressHandle {
    fn life(&self) -> &Life {
        &self.life
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // It is closed already, or can no longer be used; either way the error concerns no one.
        let _ = self.close();
    }
}

impl std::fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AddressHandle({:?})", self.ah)
    }
}
