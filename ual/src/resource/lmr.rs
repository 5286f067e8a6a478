//! Local memory regions: memory that work requests and, with rights, peers may use.
//!
//! The Lmr owns the registration; the provider owns a clone of the memory range until close returns.

use std::sync::{Arc, Mutex, PoisonError};

use vp_api::{Access, Addressing, MemRange, MrInfo, MrInit, Stag};

use super::Pz;
use crate::error::{Error, Object, Result};
use crate::life::{Hold, Life, Living};
use crate::tag::Tag;

/// For registering memory.
#[derive(Clone, Debug)]
pub struct LmrInit {
    /// The memory, e.g. [`crate::Region::mem_range`].
    pub range: MemRange,
    /// Rights.
    pub access: Access,
    /// How octets are addressed.
    pub addressing: Addressing,
    /// The key octet of the STag.
    pub key: u8,
    /// Pin the pages.
    pub pin: bool,
}

impl LmrInit {
    /// Absolute addresses, key 0, not pinned.
    pub fn new(range: MemRange, access: Access) -> Self {
        Self { range, access, addressing: Addressing::Absolute, key: 0, pin: false }
    }

    fn for_pd(self, pz: &Pz) -> MrInit {
        let Self { range, access, addressing, key, pin } = self;
        MrInit { pd: pz.id(), range, addressing, access, key, pin }
    }
}

/// Local memory region (IT-API `it_lmr_create`).
pub struct Lmr {
    stag: Mutex<Stag>,
    life: Life,
    tag: Tag,
    pz: Mutex<Hold<Pz>>,
}

impl Lmr {
    pub(super) fn register(pz: &Arc<Pz>, init: LmrInit) -> Result<Arc<Self>> {
        let pz = Hold::new(pz)?;
        let init = init.for_pd(&pz);
        let stag = pz.ia().rnic().register_mr(&init).map_err(Error::verb("register memory"))?;
        Ok(Self::wrap(pz, stag))
    }

    pub(super) fn unlinked(pz: &Arc<Pz>, remote: bool) -> Result<Arc<Self>> {
        let pz = Hold::new(pz)?;
        let verb = Error::verb("allocate an STag");
        let stag = pz.ia().rnic().alloc_stag(pz.id(), remote).map_err(verb)?;
        Ok(Self::wrap(pz, stag))
    }

    /// Registers the same memory a second time, with other rights or in another zone; both become
    /// shared for good (RDMAC Register Shared MR).
    pub fn share(
        &self,
        pz: &Arc<Pz>,
        addressing: Addressing,
        access: Access,
        key: u8,
    ) -> Result<Arc<Self>> {
        let pz = Hold::new(pz)?;
        let original = self.stag();
        let shared = pz.ia().rnic().register_shared_mr(original, pz.id(), addressing, access, key);
        Ok(Self::wrap(pz, shared.map_err(Error::verb("share a memory region"))?))
    }

    fn wrap(pz: Hold<Pz>, stag: Stag) -> Arc<Self> {
        Arc::new(Self {
            stag: Mutex::new(stag),
            life: Life::new(Object::Lmr),
            tag: Tag::default(),
            pz: Mutex::new(pz),
        })
    }

    /// Its STag: for scatter/gather lists, and for peers if it has remote rights.
    pub fn stag(&self) -> Stag {
        *self.stag.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the face above knows it by.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Its zone.
    pub fn pz(&self) -> Arc<Pz> {
        self.pz.lock().unwrap_or_else(PoisonError::into_inner).arc().clone()
    }

    /// The region as it is.
    pub fn query(&self) -> Result<MrInfo> {
        let verb = Error::verb("query the memory region");
        self.pz().ia().rnic().query_mr(self.stag()).map_err(verb)
    }

    /// Replaces memory, rights, zone and key (IT-API `it_lmr_modify`). Refused without change while
    /// windows are bound; any other refusal leaves a region that can only be closed.
    pub fn modify(&self, pz: &Arc<Pz>, init: LmrInit) -> Result<()> {
        let pz = Hold::new(pz)?;
        let init = init.for_pd(&pz);
        let mut stag = self.stag.lock().unwrap_or_else(PoisonError::into_inner);
        let verb = Error::verb("reregister the memory region");
        *stag = pz.ia().rnic().reregister_mr(*stag, &init).map_err(verb)?;
        *self.pz.lock().unwrap_or_else(PoisonError::into_inner) = pz;
        Ok(())
    }

    /// Deregisters: when it returns, nothing reads or writes the memory any more. Refused while
    /// windows are bound to it.
    pub fn close(&self) -> Result<()> {
        self.life.close()?;
        if let Err(error) = self.pz().ia().rnic().dealloc_stag(self.stag()) {
            self.life.reopen();
            return Err(Error::verb("deregister the memory region")(error));
        }
        self.pz.lock().unwrap_or_else(PoisonError::into_inner).release();
        Ok(())
    }
}

impl Living for Lmr {
    fn life(&self) -> &Life {
        &self.life
    }
}

impl Drop for Lmr {
    fn drop(&mut self) {
        // Closed already, or nobody can use it any more; either way there is nobody to tell.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Lmr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lmr({:?})", self.stag())
    }
}
