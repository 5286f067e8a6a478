//! Local memory regions: registered memory for work requests and, with remote rights, for peers.
//!
//! The Lmr owns the registration; the provider owns a clone of the memory range until close returns.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vp_api::{Access, Addressing, MemRange, MrInfo, MrInit, Stag, VpError, VpResult, VpStatus};

use super::{Keys, Pz};
use crate::error::{Error, Object, Result};
use crate::life::{InUse, Life, Living};
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
    /// Absolute addresses, a random key, not pinned.
    pub fn new(range: MemRange, access: Access) -> Self {
        let key = Keys::random();
        Self { range, access, addressing: Addressing::Absolute, key, pin: false }
    }

    fn for_pd(self, pz: &Pz) -> MrInit {
        let Self { range, access, addressing, key, pin } = self;
        MrInit { pd: pz.id(), range, addressing, access, key, pin }
    }
}

/// Local memory region (IT-API `it_lmr_create`).
pub struct Lmr {
    registration: Mutex<Registration>,
    life: Life,
    tag: Tag,
}

struct Registration {
    /// `None` after a reregistration that destroyed it.
    stag: Option<Stag>,
    pz: InUse<Pz>,
}

impl Registration {
    /// STags of another adapter are unknown here, or name something else.
    fn check_adapter(&self, pz: &Pz) -> VpResult<()> {
        if Arc::ptr_eq(pz.ia(), self.pz.ia()) {
            return Ok(());
        }
        let detail = "the protection zone belongs to another adapter than the memory region";
        Err(VpError::new(VpStatus::InvalidPd, detail))
    }
}

/// An STag that no region has.
const NOWHERE: Stag = Stag(u32::MAX);

impl Pz {
    /// Registers memory.
    pub fn create_lmr(self: &Arc<Self>, init: LmrInit) -> Result<Arc<Lmr>> {
        Lmr::register(self, init)
    }

    /// Allocates an STag without memory, for fast registration through a send queue; `remote`: with
    /// rights for peers.
    pub fn create_lmr_unlinked(self: &Arc<Self>, remote: bool) -> Result<Arc<Lmr>> {
        Lmr::unlinked(self, remote)
    }
}

impl Lmr {
    fn register(pz: &Arc<Pz>, init: LmrInit) -> Result<Arc<Self>> {
        let pz = InUse::new(pz)?;
        let init = init.for_pd(&pz);
        let stag = pz.ia().rnic().register_mr(&init).map_err(Error::verb("register memory"))?;
        Ok(Self::wrap(pz, stag))
    }

    fn unlinked(pz: &Arc<Pz>, remote: bool) -> Result<Arc<Self>> {
        let pz = InUse::new(pz)?;
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
        let refuse = Error::verb("share a memory region");
        let pz = InUse::new(pz)?;
        self.registration().check_adapter(&pz).map_err(&refuse)?;
        let original = self.stag();
        let shared = pz.ia().rnic().register_shared_mr(original, pz.id(), addressing, access, key);
        Ok(Self::wrap(pz, shared.map_err(&refuse)?))
    }

    fn wrap(pz: InUse<Pz>, stag: Stag) -> Arc<Self> {
        Arc::new(Self {
            registration: Mutex::new(Registration { stag: Some(stag), pz }),
            life: Life::new(Object::Lmr),
            tag: Tag::default(),
        })
    }

    fn registration(&self) -> MutexGuard<'_, Registration> {
        // Nothing panics while the lock is held.
        self.registration.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its STag: for scatter/gather lists, and for peers if it has remote rights. After a
    /// [`Lmr::modify`] that destroyed the registration, one that grants nothing.
    pub fn stag(&self) -> Stag {
        self.registration().stag.unwrap_or(NOWHERE)
    }

    /// The face's number for it.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Its zone.
    pub fn pz(&self) -> Arc<Pz> {
        self.registration().pz.arc().clone()
    }

    /// The attributes of the region.
    pub fn query(&self) -> Result<MrInfo> {
        let verb = Error::verb("query the memory region");
        self.pz().ia().rnic().query_mr(self.stag()).map_err(verb)
    }

    /// Replaces memory, rights, zone and key (IT-API `it_lmr_modify`). Refused without change while
    /// windows are bound, while a peer's access is in progress, for rights that cannot be combined, and
    /// for a zone of another adapter; after any other refusal the region can only be closed.
    pub fn modify(&self, pz: &Arc<Pz>, init: LmrInit) -> Result<()> {
        let refuse = Error::verb("reregister the memory region");
        let pz = InUse::new(pz)?;
        let mut registration = self.registration();
        registration.check_adapter(&pz).map_err(&refuse)?;
        if !init.access.valid_for_region() {
            let detail = format!("rights {:?} do not go together", init.access);
            return Err(refuse(VpError::new(VpStatus::InvalidAccess, detail)));
        }
        let old = registration.stag.ok_or(Error::Closed(Object::Lmr))?;
        match pz.ia().rnic().reregister_mr(old, &init.for_pd(&pz)) {
            Ok(stag) => *registration = Registration { stag: Some(stag), pz },
            Err(error) => {
                // RDMAC 9.2.6: every other error destroys the region, and its index may be given to
                // another.
                if !matches!(error.status, VpStatus::StagInUse | VpStatus::InUse) {
                    registration.stag = None;
                }
                return Err(refuse(error));
            }
        }
        Ok(())
    }

    /// For memory that processor and adapter see differently: makes writes of one visible to the other,
    /// in `len` octets at the TO `to` (IT-API `it_lmr_flush_to_mem`, `it_lmr_refresh_from_mem`).
    /// Providers in user space are coherent, so this only refuses octets outside the region
    /// ([`VpStatus::InvalidAddress`]).
    pub fn sync(&self, to: u64, len: u64) -> Result<()> {
        let region = self.query()?;
        let base = region.addressing.base(region.addr);
        let end = to.checked_add(len);
        if region.valid && to >= base && end.is_some_and(|end| end <= base + region.len) {
            return Ok(());
        }
        let detail = format!(
            "{len} octets at {to:#x} are not inside the region's {} octets at {base:#x}",
            region.len
        );
        let error = VpError::new(VpStatus::InvalidAddress, detail);
        Err(Error::verb("synchronise memory")(error))
    }

    /// Deregisters: when it returns, nothing reads or writes the memory any more. Refused while
    /// windows are bound to it.
    pub fn close(&self) -> Result<()> {
        self.life.close()?;
        let stag = self.registration().stag.take();
        // Without the lock: the memory's owner is dropped with the registration, and may run any code.
        if let Some(stag) = stag
            && let Err(error) = self.pz().ia().rnic().dealloc_stag(stag)
        {
            self.registration().stag = Some(stag);
            self.life.reopen();
            return Err(Error::verb("deregister the memory region")(error));
        }
        self.registration().pz.release();
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
        // It is closed already, or can no longer be used; either way the error concerns no one.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Lmr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lmr({:?})", self.stag())
    }
}
