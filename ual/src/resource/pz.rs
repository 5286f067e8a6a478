//! The protection zone: regions, windows, queues and endpoints work together only inside one.

use std::sync::Arc;

use vp_api::{DatagramPath, MwKind, PdId};

use super::{AddressHandle, Ep, EpInit, Ia, Lmr, LmrInit, Rmr, Srq, SrqParams, UdEp, UdEpInit};
use crate::error::{Error, Object, Result};
use crate::life::{Hold, Life, Living};
use crate::tag::Tag;

/// Protection zone (IT-API `it_pz_create`).
pub struct Pz {
    pd: PdId,
    life: Life,
    tag: Tag,
    ia: Hold<Ia>,
}

impl Pz {
    pub(super) fn new(ia: &Arc<Ia>) -> Result<Arc<Self>> {
        let ia = Hold::new(ia)?;
        let pd = ia.rnic().alloc_pd().map_err(Error::verb("allocate a protection domain"))?;
        Ok(Arc::new(Self { pd, life: Life::new(Object::Pz), tag: Tag::default(), ia }))
    }

    /// The provider's id.
    pub fn id(&self) -> PdId {
        self.pd
    }

    /// What the face above knows it by.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Its Ia.
    pub fn ia(&self) -> &Arc<Ia> {
        self.ia.arc()
    }

    /// Registers memory.
    pub fn create_lmr(self: &Arc<Self>, init: LmrInit) -> Result<Arc<Lmr>> {
        Lmr::register(self, init)
    }

    /// Allocates an STag without memory, for fast registration through a send queue; `remote`: with
    /// rights for peers.
    pub fn create_lmr_unlinked(self: &Arc<Self>, remote: bool) -> Result<Arc<Lmr>> {
        Lmr::unlinked(self, remote)
    }

    /// Allocates a memory window.
    pub fn create_rmr(self: &Arc<Self>, kind: MwKind) -> Result<Arc<Rmr>> {
        Rmr::new(self, kind)
    }

    /// Creates a shared receive queue.
    pub fn create_srq(self: &Arc<Self>, params: SrqParams) -> Result<Arc<Srq>> {
        Srq::new(self, params)
    }

    /// Creates an endpoint.
    pub fn create_ep(self: &Arc<Self>, init: EpInit) -> Result<Arc<Ep>> {
        Ep::new(self, init)
    }

    /// Creates an endpoint for datagrams.
    pub fn create_ud_ep(self: &Arc<Self>, init: UdEpInit) -> Result<Arc<UdEp>> {
        UdEp::new(self, init)
    }

    /// Creates an address handle.
    pub fn create_address_handle(
        self: &Arc<Self>,
        path: &DatagramPath,
    ) -> Result<Arc<AddressHandle>> {
        AddressHandle::new(self, path)
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
        // Closed already, or nobody can use it any more; either way there is nobody to tell.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Pz {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pz({:?})", self.pd)
    }
}
