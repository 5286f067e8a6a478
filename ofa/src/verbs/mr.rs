//! Memory regions (ibv_reg_mr(3), ibv_rereg_mr(3)). `lkey` and `rkey` are the STag.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ibv_sys::*;
use kal_os::lock;
use vp_api::{Addressing, MemRange, MrInit, Stag, VpStatus};

use crate::access;
use crate::errno::{self, EINVAL, Errno};
use crate::object::{self, Handle};
use crate::verbs::pd::{Pd, Registered};

/// A region.
pub struct Mr {
    now: Mutex<Region>,
}

/// Its present attributes.
#[derive(Clone)]
struct Region {
    pd: Registered,
    stag: Stag,
    addr: usize,
    length: usize,
    iova: u64,
    flags: c_uint,
    /// A re-registration failed and took it away (RDMAC 9.2.6): its STag may be another region's.
    is_gone: bool,
}

impl Handle for ibv_mr {
    type Whole = Self;
    type Private = Mr;
    const NAME: &'static str = "struct ibv_mr";
}

impl Mr {
    pub(crate) fn stag(&self) -> Stag {
        lock(&self.now).stag
    }
}

/// Key octets of consecutive regions differ, so that a stale key is detected.
fn next_key() -> u8 {
    static KEY: AtomicU32 = AtomicU32::new(0x9e);
    KEY.fetch_add(0x4f, Ordering::Relaxed) as u8
}

fn init(
    pd: &Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_uint,
    key: u8,
) -> Result<MrInit, Errno> {
    let access = access::of_region(flags)?;
    let addressing = match (flags & IBV_ACCESS_ZERO_BASED != 0, iova) {
        (true, _) | (false, 0) if !addr.is_null() => Addressing::ZeroBased,
        (_, iova) if iova == addr.addr() as u64 => Addressing::Absolute,
        (_, iova) => Addressing::Based(iova),
    };
    if length == 0 || addr.addr().checked_add(length).is_none() {
        return Err(EINVAL);
    }
    let at = NonNull::new(addr.cast()).ok_or(Errno(libc::EFAULT))?;
    // SAFETY: contract of ibv_reg_mr: the memory is the caller's until the region is deregistered, and what
    // is not mapped is refused or, if unmapped later, the caller's fault.
    let range = unsafe { MemRange::unowned(at, length) };
    Ok(MrInit { pd: pd.id, range, addressing, access, key, pin: false })
}

fn register(
    pd: &Arc<Pd>,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_uint,
) -> Result<Region, Errno> {
    let init = init(pd, addr, length, iova, flags, next_key())?;
    let stag = pd.adapter()?.rnic().register_mr(&init)?;
    let (pd, addr) = (Registered::new(pd.clone()), addr.expose_provenance());
    Ok(Region { pd, stag, addr, length, iova, flags, is_gone: false })
}

unsafe fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller's protection domain.
    let private = unsafe { object::with(pd) };
    errno::pointer(private.and_then(|private| {
        let region = register(private, addr, length, iova, flags)?;
        let (context, key) = (private.context.handle(), region.stag.0);
        let whole = ibv_mr { context, pd, addr, length, handle: key >> 8, lkey: key, rkey: key };
        Ok(object::new(whole, Arc::new(Mr { now: Mutex::new(region) })))
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's arguments.
    unsafe { reg_mr(pd, addr, length, addr.addr() as u64, access as c_uint) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's arguments.
    unsafe { reg_mr(pd, addr, length, iova, access as c_uint) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller's arguments.
    unsafe { reg_mr(pd, addr, length, iova, access) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the caller's region.
    let private = unsafe { object::with(mr) };
    errno::code(private.and_then(|private| {
        let Region { pd, stag, is_gone, .. } = lock(&private.now).clone();
        let adapter = pd.adapter()?;
        if !is_gone {
            adapter.rnic().dealloc_stag(stag)?;
        }
        // SAFETY: the caller gives it up.
        unsafe { object::destroy(mr) }.map(drop)
    }))
}

/// 0, or `IBV_REREG_MR_ERR_…`: whether the region is unchanged, or gone but for ibv_dereg_mr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let all = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
    let changes = |flag: c_int| flags & flag != 0;
    let rights_fit = access == 0 || changes(IBV_REREG_MR_CHANGE_ACCESS);
    // SAFETY: the caller's region.
    let private = match unsafe { object::with(mr) } {
        Ok(private) if flags & !all == 0 && flags != 0 && rights_fit => private,
        _ => return refuse(EINVAL, IBV_REREG_MR_ERR_INPUT),
    };
    let mut now = lock(&private.now);
    if now.is_gone {
        return refuse(EINVAL, IBV_REREG_MR_ERR_CMD);
    }
    let mut next = now.clone();
    if changes(IBV_REREG_MR_CHANGE_TRANSLATION) {
        (next.addr, next.length) = (addr.expose_provenance(), length);
        next.iova = addr.addr() as u64;
    }
    if changes(IBV_REREG_MR_CHANGE_PD) {
        // SAFETY: the caller's protection domain.
        match unsafe { object::with(pd) } {
            Ok(pd) if Arc::ptr_eq(&pd.context, &now.pd.context) => {
                next.pd = Registered::new(pd.clone())
            }
            other => return refuse(other.err().unwrap_or(EINVAL), IBV_REREG_MR_ERR_INPUT),
        }
    }
    if changes(IBV_REREG_MR_CHANGE_ACCESS) {
        next.flags = access as c_uint;
    }
    let at = std::ptr::with_exposed_provenance_mut(next.addr);
    // Keys stay, as with rdma-core's drivers: peers may have them.
    let key = now.stag.key();
    let init = match init(&next.pd, at, next.length, next.iova, next.flags, key) {
        Ok(init) => init,
        Err(error) => return refuse(error, IBV_REREG_MR_ERR_INPUT),
    };
    let adapter = match next.pd.adapter() {
        Ok(adapter) => adapter,
        Err(error) => return refuse(error, IBV_REREG_MR_ERR_INPUT),
    };
    next.stag = match adapter.rnic().reregister_mr(now.stag, &init) {
        Ok(stag) => stag,
        Err(error) => {
            // Bound windows and accesses under way leave it unchanged (RDMAC 9.2.6).
            let kept = matches!(
                error.status,
                VpStatus::StagInUse | VpStatus::InUse | VpStatus::Unsupported
            );
            now.is_gone = !kept;
            let what = if kept { IBV_REREG_MR_ERR_INPUT } else { IBV_REREG_MR_ERR_CMD };
            return refuse(error.into(), what);
        }
    };
    *now = next;
    let key = now.stag.0;
    // SAFETY: the caller's region, as above; it is not read during this call.
    let whole = unsafe { &mut *mr };
    (whole.lkey, whole.rkey) = (key, key);
    if changes(IBV_REREG_MR_CHANGE_TRANSLATION) {
        (whole.addr, whole.length) = (addr, length);
    }
    if changes(IBV_REREG_MR_CHANGE_PD) {
        whole.pd = pd;
    }
    0
}

fn refuse(error: Errno, what: c_int) -> c_int {
    errno::set(error);
    what
}
