//! Memory windows and region keys, as the data path needs them to bind and post.
//!
//! Owner: the open device; queue pairs share it. Windows are locked only for binds and invalidations. A window that
//! a peer invalidates is marked when the completion of that message is polled; a window whose bind fails, when the
//! completion of the bind is polled.

use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use vp_api::{
    Access, Addressing, BindMw, MwId, MwInfo, MwKind, PdId, SendOp, Stag, VpError, VpResult,
    VpStatus,
};

use crate::device::Context;
use crate::mr::{Domain, Region};
use crate::object_table::{InUse, lock};
use crate::owned::{Owned, refused};
use crate::wire::window_access;
use ibv_sys::*;

/// Regions and windows by STag index.
#[derive(Default)]
pub(crate) struct Memory {
    regions: RwLock<BTreeMap<u32, Arc<Region>>>,
    /// Whether some region has a local key that differs from its STag.
    keys_differ: AtomicBool,
    windows: Mutex<BTreeMap<u32, Window>>,
    /// The serial of the next window.
    serials: AtomicU64,
}

/// The state of a window after a posted bind, and its state before the bind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bind {
    /// The window's serial.
    serial: u64,
    before: Option<BindMw>,
    after: BindMw,
}

impl Bind {
    /// An earlier bind has failed.
    pub(crate) fn forget(&mut self, earlier: &Self) {
        if self.serial == earlier.serial && self.before == Some(earlier.after) {
            self.before = earlier.before;
        }
    }
}

struct Window {
    raw: Owned<ibv_mw>,
    /// Distinguishes it from windows that had or will have its id.
    serial: u64,
    kind: MwKind,
    pd: PdId,
    _hold: InUse,
    bound: Option<BindMw>,
}

impl Window {
    /// The device's key at present.
    fn rkey(&self) -> u32 {
        // SAFETY: alive while it is in the table; the library writes it only during a bind.
        unsafe { (*self.raw.as_ptr()).rkey }
    }

    fn stag(&self) -> Option<Stag> {
        let bound = self.bound?;
        Some(match self.kind {
            MwKind::Narrow => Stag::new(bound.window.0, bound.key),
            // The device picks the key (InfiniBand 10.6.7.2).
            MwKind::Wide => Stag(self.rkey()),
        })
    }
}

fn no_region(stag: Stag) -> VpError {
    VpError::new(VpStatus::InvalidStag, format!("there is no region with the STag {:#x}", stag.0))
}

impl Memory {
    /// Adds a region under its STag.
    pub(crate) fn add(&self, region: Region) -> VpResult<Stag> {
        let stag = region.stag();
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        if regions.contains_key(&stag.index()) {
            let detail = format!("the device gave the STag index {} twice", stag.index());
            return Err(VpError::new(VpStatus::InsufficientResources, detail));
        }
        if region.lkey() != stag.0 {
            self.keys_differ.store(true, Ordering::Release);
        }
        regions.insert(stag.index(), Arc::new(region));
        Ok(stag)
    }

    pub(crate) fn region(&self, stag: Stag) -> VpResult<Arc<Region>> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.get(&stag.index()).cloned().ok_or_else(|| no_region(stag))
    }

    /// Removes a region that no window is bound to.
    pub(crate) fn remove(&self, stag: Stag) -> VpResult<Arc<Region>> {
        let region = self.region(stag)?;
        if region.stag() != stag {
            return Err(no_region(stag));
        }
        let windows = self.bound_to(stag);
        if windows != 0 {
            let detail = format!("{windows} windows are bound to the region {:#x}", stag.0);
            return Err(VpError::new(VpStatus::StagInUse, detail));
        }
        self.regions.write().unwrap_or_else(PoisonError::into_inner).remove(&stag.index());
        Ok(region)
    }

    /// Reinserts a region that could not be destroyed.
    pub(crate) fn put_back(&self, region: Arc<Region>) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        regions.insert(region.stag().index(), region);
    }

    /// The number of windows bound to a region.
    pub(crate) fn bound_to(&self, stag: Stag) -> u32 {
        let windows = lock(&self.windows);
        let bound = windows.values().filter_map(|window| window.bound);
        bound.filter(|bound| bound.region.index() == stag.index()).count() as u32
    }

    /// The local key of an STag.
    pub(crate) fn lkey(&self, stag: Stag) -> u32 {
        if !self.keys_differ.load(Ordering::Acquire) {
            return stag.0;
        }
        // The device refuses an unknown STag.
        self.region(stag).map_or(stag.0, |region| region.lkey())
    }

    pub(crate) fn alloc(&self, context: &Arc<Context>, pd: Domain, kind: MwKind) -> VpResult<MwId> {
        let ops = context.ops();
        let (Some(alloc), Some(dealloc)) = (ops.alloc_mw, ops.dealloc_mw) else {
            let detail = format!("{} has no memory windows", context.name);
            return Err(VpError::new(VpStatus::Unsupported, detail));
        };
        let type_ = match kind {
            MwKind::Wide => IBV_MW_TYPE_1,
            MwKind::Narrow => IBV_MW_TYPE_2,
        };
        // SAFETY: the domain is alive: the hold keeps it.
        let raw = unsafe { alloc(pd.raw, type_) };
        // SAFETY: just created; destroyed by its counterpart.
        let raw = unsafe { Owned::new(raw, dealloc, context) };
        let raw = raw.map_err(refused("allocate a memory window"))?;
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let window = Window { raw, serial, kind, pd: pd.id, _hold: pd.hold, bound: None };
        let id = window.rkey() >> 8;
        lock(&self.windows).insert(id, window);
        Ok(MwId(id))
    }

    pub(crate) fn query(&self, mw: MwId) -> VpResult<MwInfo> {
        let windows = lock(&self.windows);
        let window = windows.get(&mw.0).ok_or_else(|| no_window(mw))?;
        let bound = window.bound;
        Ok(MwInfo {
            id: mw,
            kind: window.kind,
            pd: window.pd,
            stag: window.stag(),
            access: bound.map_or(Access::empty(), |bound| bound.access),
            region: bound.map(|bound| bound.region),
            to: bound.map_or(0, |bound| bound.to),
            len: bound.map_or(0, |bound| bound.len),
            addressing: Addressing::Absolute,
        })
    }

    pub(crate) fn dealloc(&self, mw: MwId) -> VpResult<()> {
        let mut windows = lock(&self.windows);
        let window = windows.remove(&mw.0).ok_or_else(|| no_window(mw))?;
        let Window { raw, serial, kind, pd, _hold, bound } = window;
        if let Err((raw, error)) = raw.destroy() {
            windows.insert(mw.0, Window { raw, serial, kind, pd, _hold, bound });
            return Err(refused("deallocate the memory window")(error));
        }
        Ok(())
    }

    /// Deallocates all windows.
    pub(crate) fn clear_windows(&self) {
        lock(&self.windows).clear();
    }

    /// Deregisters all regions.
    pub(crate) fn clear_regions(&self) {
        self.regions.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// A bind for the device: window, new key, and range to bind to. From before the post the window counts as
    /// bound; an unbind takes effect only after the post ([`Self::posted`]). So the region stays while the device's
    /// library uses it. If the bind fails, see [`Self::undo`].
    pub(crate) fn bind(
        &self,
        bind: &BindMw,
    ) -> Result<(*mut ibv_mw, u32, ibv_mw_bind_info), VpStatus> {
        if bind.addressing != Addressing::Absolute {
            return Err(VpStatus::InvalidModifier);
        }
        let mut windows = lock(&self.windows);
        let window = windows.get_mut(&bind.window.0).ok_or(VpStatus::InvalidHandle)?;
        // A bind of length 0 unbinds. rxe's library still needs a region, and its driver an address in it: those
        // that the window is bound to.
        let (region, to) = match (bind.len, window.bound) {
            (0, Some(old)) => (old.region, old.to),
            _ => (bind.region, bind.to),
        };
        let region = self.region(region).map_err(|error| error.status)?;
        if bind.len != 0 {
            window.bound = Some(*bind);
        }
        let info = ibv_mw_bind_info {
            mr: region.as_ptr(),
            addr: to,
            length: bind.len,
            mw_access_flags: window_access(bind.access),
        };
        Ok((window.raw.as_ptr(), Stag::new(bind.window.0, bind.key).0, info))
    }

    /// What an operation that is about to be posted binds.
    pub(crate) fn binds(&self, op: &SendOp) -> Option<Bind> {
        let SendOp::BindMw(bind) = op else { return None };
        let windows = lock(&self.windows);
        let window = windows.get(&bind.window.0).filter(|_| bind.len != 0)?;
        Some(Bind { serial: window.serial, before: window.bound, after: *bind })
    }

    /// A bind was not posted, failed, or was flushed: the window gets its earlier state back.
    pub(crate) fn undo(&self, bind: &Bind) {
        if let Some(window) = lock(&self.windows).get_mut(&bind.after.window.0)
            && window.serial == bind.serial
            && window.bound == Some(bind.after)
        {
            window.bound = bind.before;
        }
    }

    /// A bind or an invalidation was posted.
    pub(crate) fn posted(&self, op: &SendOp) {
        let window = match op {
            SendOp::BindMw(bind) if bind.len == 0 => bind.window,
            SendOp::InvalidateLocal { stag } => MwId(stag.index()),
            _ => return,
        };
        if let Some(window) = lock(&self.windows).get_mut(&window.0) {
            window.bound = None;
        }
    }

    /// For a wide window (type 1), which is bound and unbound by a separate call: the arguments of that call.
    /// `None` if the operation goes to the send queue.
    pub(crate) fn wide(
        &self,
        op: &SendOp,
    ) -> Result<Option<(*mut ibv_mw, ibv_mw_bind_info)>, VpStatus> {
        let bind = match op {
            SendOp::BindMw(bind) => *bind,
            // Invalidation through the queue is for type 2 only (InfiniBand 10.6.7.2.6).
            SendOp::InvalidateLocal { stag } => BindMw {
                window: MwId(stag.index()),
                key: 0,
                region: Stag::default(),
                to: 0,
                len: 0,
                addressing: Addressing::Absolute,
                access: Access::empty(),
            },
            _ => return Ok(None),
        };
        if !self.is_wide(bind.window) {
            return Ok(None);
        }
        let (mw, _, info) = self.bind(&bind)?;
        Ok(Some((mw, info)))
    }

    fn is_wide(&self, mw: MwId) -> bool {
        lock(&self.windows).get(&mw.0).is_some_and(|window| window.kind == MwKind::Wide)
    }

    /// The key to invalidate. A process can invalidate only windows; only the kernel can invalidate regions.
    pub(crate) fn invalidate(&self, stag: Stag) -> Result<c_uint, VpStatus> {
        let windows = lock(&self.windows);
        windows.contains_key(&stag.index()).then_some(stag.0).ok_or(VpStatus::InvalidStag)
    }

    /// A peer invalidated the window.
    pub(crate) fn invalidated(&self, stag: Stag) {
        if let Some(window) = lock(&self.windows).get_mut(&stag.index()) {
            window.bound = None;
        }
    }
}

fn no_window(mw: MwId) -> VpError {
    VpError::new(VpStatus::InvalidHandle, format!("there is no memory window {:#x}", mw.0))
}
