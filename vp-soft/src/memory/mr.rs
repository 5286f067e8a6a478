//! Memory regions: the privileged verbs, and fast registration through a send queue.
//!
//! Owner of all state: the STag table. Privileged verbs run on the application's thread, fast registration on the
//! thread that drives the QP. A peer's death changes no region.

use std::sync::Arc;

use vp_api::{
    Access, Addressing, FastRegister, MrInfo, MrInit, PdId, Services, Stag, VpError, VpResult,
    VpStatus,
};

use crate::limits::{MAX_REGION_OCTETS, MAX_REGIONS};
use crate::memory::grant::{Caller, Grant, Scope};
use crate::memory::meta::{Memory, Meta, PdUse, Region};
use crate::memory::pin::Pinned;
use crate::memory::place;
use crate::memory::stag_table::{Busy, Kind, StagTable};
use crate::memory::{AccessError, LocalFault, unmapped};

/// Registers and pins memory for one RNIC.
pub struct Regions {
    /// The STags of the regions.
    pub table: Arc<StagTable>,
    /// Pins memory.
    pub services: Arc<dyn Services>,
    /// Whether the kernel can tell if memory may be accessed (see `place::can_probe`).
    pub probes: bool,
}

impl Regions {
    /// Register Non-Shared MR: adds a table entry, in O(1) of the size unless pinned.
    // RDMAC 9.2.6 [SEC-04]
    pub fn register(&self, pd: PdUse, init: &MrInit) -> VpResult<Stag> {
        let region = self.region(pd, init)?;
        self.add(region, init.key)
    }

    /// Reregister: keeps the index and replaces everything else. It is refused while windows are bound; any other
    /// error destroys the region (RDMAC 9.2.6).
    pub fn reregister(
        &self,
        stag: Stag,
        init: &MrInit,
        pd: impl FnOnce() -> VpResult<PdUse>,
    ) -> VpResult<Stag> {
        let old = self.retire(stag, "reregister")?;
        let new = pd().and_then(|pd| self.region(pd, init));
        drop(old);
        let region = new.inspect_err(|_| self.table.release(stag.index(), Kind::Region))?;
        self.place(stag.index(), region, init.key)?;
        Ok(Stag::new(stag.index(), init.key))
    }

    /// Register Shared MR: a second STag for the memory of the first.
    pub fn register_shared(
        &self,
        original: Stag,
        pd: PdUse,
        addressing: Addressing,
        access: Access,
        key: u8,
    ) -> VpResult<Stag> {
        check_access(access)?;
        let memory = {
            let (_, mut meta) =
                self.table.open(original.index()).ok_or_else(|| unknown(original))?;
            let Meta::Region(region) = &mut *meta else { return Err(unknown(original)) };
            let Some(memory) = region.memory.clone() else {
                let detail =
                    format!("region {:#x} is invalid and has no memory to share", original.index());
                return Err(VpError::new(VpStatus::InvalidStag, detail));
            };
            check_base(addressing, memory.range.len())?;
            region.shared = true;
            memory
        };
        let remote = access.intersects(Access::REMOTE);
        let memory = Some(memory);
        let region = Region {
            pd,
            memory,
            shared: true,
            remote,
            addressing,
            access,
            key: None,
            bound_windows: 0,
        };
        self.add(region, key)
    }

    /// Allocate Non-Shared MR STag: in the Invalid state, for fast registration.
    pub fn allocate(&self, pd: PdUse, remote: bool) -> VpResult<Stag> {
        let region = Region {
            pd,
            memory: None,
            shared: false,
            remote,
            addressing: Addressing::Absolute,
            access: Access::empty(),
            key: None,
            bound_windows: 0,
        };
        self.add(region, 0)
    }

    /// Query MR, by index.
    pub fn query(&self, stag: Stag) -> VpResult<MrInfo> {
        let (slot, meta) = self.table.open(stag.index()).ok_or_else(|| unknown(stag))?;
        let Meta::Region(region) = &*meta else { return Err(unknown(stag)) };
        let key = slot.valid_key();
        let range = region.memory.as_ref().filter(|_| key.is_some()).map(|memory| &memory.range);
        Ok(MrInfo {
            stag: Stag::new(stag.index(), key.unwrap_or(0)),
            pd: region.pd.id,
            valid: key.is_some(),
            shared: region.shared,
            addr: range.map_or(0, |range| range.addr().as_ptr().addr() as u64),
            len: range.map_or(0, |range| range.len() as u64),
            addressing: region.addressing,
            access: region.access,
            bound_windows: region.bound_windows,
        })
    }

    /// Deallocates the STag of a region in any state. When it returns, no thread reads or writes the memory, and
    /// the region no longer owns it. The key must be the one that a verb gave, so that an old STag cannot free
    /// another region. After fast registration the index suffices (RDMAC 9.2.6).
    /// [SEC-05] [DDP-21]
    pub fn deallocate(&self, stag: Stag) -> VpResult<()> {
        let region = self.retire(stag, "deallocate")?;
        self.table.release(stag.index(), Kind::Region);
        drop(region);
        Ok(())
    }

    /// Removes a region from its slot. Its memory is no longer used.
    fn retire(&self, stag: Stag, verb: &str) -> VpResult<Region> {
        let (slot, mut meta) = self.table.open(stag.index()).ok_or_else(|| unknown(stag))?;
        let Meta::Region(region) = &*meta else { return Err(unknown(stag)) };
        if region.key.is_some_and(|key| key != stag.key()) {
            let detail = format!(
                "{:#x} is not, or no longer, the STag of region {:#x}: the key octet differs",
                stag.0,
                stag.index()
            );
            return Err(VpError::new(VpStatus::InvalidStag, detail));
        }
        if region.bound_windows != 0 {
            let detail = format!(
                "cannot {verb} region {:#x}: {} memory windows are bound to it; unbind them first",
                stag.index(),
                region.bound_windows
            );
            return Err(VpError::new(VpStatus::StagInUse, detail));
        }
        slot.revoke().map_err(|Busy| {
            let detail =
                format!("region {:#x} is still being read or written; try again", stag.index());
            VpError::new(VpStatus::InUse, detail)
        })?;
        match std::mem::replace(&mut *meta, Meta::Free) {
            Meta::Region(region) => Ok(region),
            other => {
                *meta = other;
                Err(unknown(stag))
            }
        }
    }

    fn region(&self, pd: PdUse, init: &MrInit) -> VpResult<Region> {
        check_access(init.access)?;
        check_base(init.addressing, init.range.len())?;
        self.check_range(init)?;
        unmapped::guard(&init.range, init.access);
        let pinned = init.pin.then(|| Pinned::new(&self.services, &init.range)).transpose()?;
        Ok(Region {
            pd,
            memory: Some(Arc::new(Memory { range: init.range.clone(), _pinned: pinned })),
            shared: false,
            remote: init.access.intersects(Access::REMOTE),
            addressing: init.addressing,
            access: init.access,
            key: None,
            bound_windows: 0,
        })
    }

    // RFC 5042 7.3 [SEC-13]
    fn check_range(&self, init: &MrInit) -> VpResult<()> {
        let range = &init.range;
        let addr = range.addr().as_ptr().addr();
        let wraps = addr.checked_add(range.len()).is_none();
        if wraps || range.len() as u64 > MAX_REGION_OCTETS {
            let detail =
                format!("{} octets at {addr:#x} are not a range of this process", range.len());
            return Err(VpError::new(VpStatus::InvalidAddress, detail));
        }
        let write = init.access.contains(Access::LOCAL_WRITE);
        // For an owned range, its maker has proven that it is accessible; a bare address may be a C program's
        // mistake.
        if range.is_owned() || !self.probes {
            return Ok(());
        }
        place::probe(range, write).map_err(|error| {
            let verb = if write { "write" } else { "read" };
            let detail = format!(
                "this process may not {verb} all of {} octets at {addr:#x} ({error}); map the memory \
                 or ask for fewer rights",
                range.len()
            );
            VpError::new(VpStatus::InvalidAddress, detail)
        })
    }

    fn add(&self, region: Region, key: u8) -> VpResult<Stag> {
        let index = self.table.allocate(Kind::Region)?.ok_or_else(|| {
            let detail = format!("all {MAX_REGIONS} memory regions of the device are in use");
            VpError::new(VpStatus::InsufficientResources, detail)
        })?;
        self.place(index, region, key)?;
        Ok(Stag::new(index, key))
    }

    /// Puts a region into a free slot. It is valid if it has memory.
    fn place(&self, index: u32, mut region: Region, key: u8) -> VpResult<()> {
        let stag = Stag::new(index, key);
        let (slot, mut meta) = self.table.open(index).ok_or_else(|| unknown(stag))?;
        if let Some(memory) = &region.memory {
            slot.publish(key, grant(memory, region.addressing, region.access, region.pd.id));
        }
        region.key = Some(key);
        *meta = Meta::Region(region);
        Ok(())
    }
}

fn grant(memory: &Memory, addressing: Addressing, access: Access, pd: PdId) -> Grant {
    let addr = memory.range.addr().as_ptr();
    Grant {
        addr,
        len: memory.range.len() as u64,
        // STag 0 and SGEs by address access memory through the provenances exposed here.
        base: addressing.base(addr.expose_provenance() as u64),
        access,
        pd,
        scope: Scope::Region,
    }
}

// RDMAC 7.5, 9.2.6 [VERBS-24]
fn check_access(access: Access) -> VpResult<()> {
    if access.valid_for_region() {
        return Ok(());
    }
    let detail = format!(
        "rights {access:?} do not go together: at least one local right, and for each remote right \
         the local one"
    );
    Err(VpError::new(VpStatus::InvalidAccess, detail))
}

// RFC 5041 7.1: no TO wraps around. [DDP-21]
fn check_base(addressing: Addressing, len: usize) -> VpResult<()> {
    if fits(addressing, len as u64) {
        return Ok(());
    }
    let base = addressing.base(0);
    let detail = format!("the tagged offsets of {len} octets from base {base:#x} exceed 64 bits");
    Err(VpError::new(VpStatus::InvalidAddress, detail))
}

/// Whether the end of `len` octets has a TO. In the address space of this process it always has one.
pub(crate) fn fits(addressing: Addressing, len: u64) -> bool {
    addressing.base(0).checked_add(len).is_some()
}

fn unknown(stag: Stag) -> VpError {
    let detail = format!("there is no memory region with STag index {:#x}", stag.index());
    VpError::new(VpStatus::InvalidStag, detail)
}

/// Fast-Register Non-Shared MR: gives memory to an allocated, Invalid STag.
// RDMAC 7.3.2.3
pub fn fast_register(
    table: &StagTable,
    caller: &Caller,
    request: &FastRegister,
) -> Result<(), LocalFault> {
    if !caller.privileged {
        return Err(LocalFault::NotPrivileged);
    }
    let invalid = LocalFault::Access(AccessError::InvalidStag);
    let (slot, mut meta) = table.open(request.stag.index()).ok_or(invalid)?;
    let Meta::Region(region) = &mut *meta else { return Err(invalid) };
    if region.pd.id != caller.pd {
        return Err(LocalFault::Access(AccessError::NotAssociated));
    }
    // A region with memory is either Valid or could not be revoked.
    if region.memory.is_some() {
        return Err(LocalFault::NotInvalid);
    }
    let remote = request.access.intersects(Access::REMOTE);
    if !request.access.valid_for_region() || (remote && !region.remote) {
        return Err(LocalFault::Access(AccessError::Access));
    }
    if !fits(request.addressing, request.range.len() as u64) {
        return Err(LocalFault::Access(AccessError::Wrap));
    }
    unmapped::guard(&request.range, request.access);
    let memory = Memory { range: request.range.clone(), _pinned: None };
    slot.publish(
        request.stag.key(),
        grant(&memory, request.addressing, request.access, region.pd.id),
    );
    region.memory = Some(Arc::new(memory));
    region.addressing = request.addressing;
    region.access = request.access;
    region.key = None;
    Ok(())
}

#[cfg(all(test, not(loom)))]
#[path = "mr_tests.rs"]
mod tests;
