//! Memory regions, registered with the device, whose kernel driver pins the pages.
//!
//! Owner: [`Memory`](crate::mw::Memory). A region keeps the owner of its range until the device has deregistered
//! the region.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use vp_api::{
    Access, Addressing, GRH_OCTETS, MemRange, MrInfo, MrInit, PdId, Stag, VpError, VpResult,
    VpStatus,
};

use crate::device::Context;
use crate::map;
use crate::object_table::{InUse, lock};
use crate::owned::{Owned, done, refused};
use ibv_sys::*;

/// A registered region.
pub(crate) struct Region {
    live: Mutex<Option<Live>>,
    keys: (u32, u32),
    mr: *mut ibv_mr,
    pub(crate) pd: PdId,
    _hold: InUse,
    addr: u64,
    len: u64,
    addressing: Addressing,
    access: Access,
    shared: AtomicBool,
}

/// Dropped with the registration, in this order: the device's region first.
struct Live {
    raw: Owned<ibv_mr>,
    range: MemRange,
}

// SAFETY: `mr` is the pointer in `live`, which any thread may use; it is never dereferenced here.
unsafe impl Send for Region {}
// SAFETY: as for `Send`.
unsafe impl Sync for Region {}

/// The protection domain of a registration.
pub(crate) struct Domain {
    pub(crate) id: PdId,
    pub(crate) raw: *mut ibv_pd,
    pub(crate) hold: InUse,
}

impl Region {
    pub(crate) fn register(
        context: &Arc<Context>,
        pd: Domain,
        init: &MrInit,
        shared: bool,
    ) -> VpResult<Self> {
        check(init)?;
        let ibv = &context.api.ibv;
        let (addr, len) = (init.range.addr().as_ptr().cast(), init.range.len());
        let flags = map::access(init.access);
        // SAFETY: the domain is alive; by the range's invariant the octets stay mapped until the
        // last clone is dropped, and this region keeps one until it is deregistered.
        let raw = match init.addressing {
            Addressing::Based(base) => {
                let register = context.register_based().ok_or_else(|| no_bases(context))?;
                // SAFETY: as above.
                unsafe { register(pd.raw, addr, len, base, flags) }
            }
            // SAFETY: as above.
            _ => unsafe { (ibv.ibv_reg_mr)(pd.raw, addr, len, flags as c_int) },
        };
        // SAFETY: just created; destroyed by its counterpart.
        let raw = unsafe { Owned::new(raw, ibv.ibv_dereg_mr, context) };
        let raw = raw.map_err(|error| {
            refused(&format!("register {len} octets with the device {}", context.name))(error)
        })?;
        Ok(Self::of(raw, pd, init, shared))
    }

    fn of(raw: Owned<ibv_mr>, pd: Domain, init: &MrInit, shared: bool) -> Self {
        let mr = raw.as_ptr();
        // SAFETY: alive; the library writes it only while it makes or changes the region.
        let view = unsafe { &*mr };
        let range = init.range.clone();
        Self {
            keys: (view.lkey, view.rkey),
            addr: range.addr().as_ptr().addr() as u64,
            len: range.len() as u64,
            live: Mutex::new(Some(Live { raw, range })),
            mr,
            pd: pd.id,
            _hold: pd.hold,
            addressing: init.addressing,
            access: init.access,
            shared: AtomicBool::new(shared),
        }
    }

    /// The key that peers use. A region without remote rights may have only the local key.
    pub(crate) fn stag(&self) -> Stag {
        Stag(if self.keys.1 != 0 { self.keys.1 } else { self.keys.0 })
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.keys.0
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_mr {
        self.mr
    }

    /// From now on another region shares the memory.
    pub(crate) fn share(&self) {
        self.shared.store(true, Ordering::Relaxed);
    }

    /// The memory; `None` once deregistered.
    pub(crate) fn range(&self) -> Option<MemRange> {
        lock(&self.live).as_ref().map(|live| live.range.clone())
    }

    /// The first octets of a receive at `at`; `None` if they are not all in the region, or if it is deregistered.
    pub(crate) fn header(&self, at: u64) -> Option<[u8; GRH_OCTETS]> {
        let live = lock(&self.live);
        let range = &live.as_ref()?.range;
        let skip = usize::try_from(at.checked_sub(self.addressing.base(self.addr))?).ok()?;
        if skip.checked_add(GRH_OCTETS)? > range.len() {
            return None;
        }
        let mut out = [0; GRH_OCTETS];
        let from = range.addr().as_ptr().wrapping_add(skip);
        // SAFETY: within the range, whose octets stay mapped until deregistration, which the lock prevents. Peers
        // may write them meanwhile, so they are copied, and no reference to them is made.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), GRH_OCTETS) };
        Some(out)
    }

    /// Deregisters the region. After it returns, the device does not access the range.
    pub(crate) fn deregister(&self) -> VpResult<()> {
        let mut slot = lock(&self.live);
        if let Some(Live { raw, range }) = slot.take()
            && let Err((raw, error)) = raw.destroy()
        {
            *slot = Some(Live { raw, range });
            return Err(refused("deregister the region")(error));
        }
        Ok(())
    }

    /// Changes everything in place. On an error it returns the domain: the device cannot change regions, and the
    /// region cannot be used any more.
    pub(crate) fn reregister(
        &self,
        context: &Arc<Context>,
        pd: Domain,
        init: &MrInit,
    ) -> Result<Self, Domain> {
        // The library changes a region's address together with the region, and has no parameter for a base.
        if matches!(init.addressing, Addressing::Based(_)) {
            return Err(pd);
        }
        let what =
            IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
        let (addr, len) = (init.range.addr().as_ptr().cast(), init.range.len());
        let flags = map::access(init.access) as c_int;
        let mut slot = lock(&self.live);
        let Some(Live { raw, range }) = slot.take() else { return Err(pd) };
        let rereg = context.api.ibv.ibv_rereg_mr;
        // SAFETY: region and domain are alive; the range as in `register`.
        let code = unsafe { rereg(raw.as_ptr(), what, pd.raw, addr, len, flags) };
        if done(code).is_err() {
            *slot = Some(Live { raw, range });
            return Err(pd);
        }
        Ok(Self::of(raw, pd, init, self.shared.load(Ordering::Relaxed)))
    }

    pub(crate) fn info(&self, bound_windows: u32) -> MrInfo {
        MrInfo {
            stag: self.stag(),
            pd: self.pd,
            valid: true,
            shared: self.shared.load(Ordering::Relaxed),
            addr: self.addr,
            len: self.len,
            addressing: self.addressing,
            access: self.access,
            bound_windows,
        }
    }
}

/// Refuses what no device can do for a process through the kernel's verbs.
pub(crate) fn check(init: &MrInit) -> VpResult<()> {
    if !init.access.valid_for_region() {
        let detail = format!("{:?}: a remote right needs its local right", init.access);
        return Err(VpError::new(VpStatus::InvalidAccess, detail));
    }
    match init.addressing {
        Addressing::Absolute => Ok(()),
        Addressing::ZeroBased => {
            let detail =
                "rdma-core registers regions by their addresses or from a base, not zero-based";
            Err(VpError::new(VpStatus::Unsupported, detail))
        }
        Addressing::Based(base) if base.checked_add(init.range.len() as u64).is_some() => Ok(()),
        Addressing::Based(base) => {
            let len = init.range.len();
            let detail =
                format!("the tagged offsets of {len} octets from base {base:#x} exceed 64 bits");
            Err(VpError::new(VpStatus::InvalidAddress, detail))
        }
    }
}

fn no_bases(context: &Context) -> VpError {
    let detail = format!(
        "regions of {} have no base of the application's choice: that needs ibv_reg_mr_iova2 of \
         rdma-core 28 and another device than siw",
        context.name
    );
    VpError::new(VpStatus::Unsupported, detail)
}
