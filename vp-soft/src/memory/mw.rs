//! Memory windows: the privileged verbs, and binding through a send queue.
//!
//! Owner of all state: the STag table; a QP also counts its narrow windows. Binding runs on the thread that drives
//! the QP. A peer's death changes no window.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vp_api::{
    Access, Addressing, BindMw, MwId, MwInfo, MwKind, QpId, Stag, VpError, VpResult, VpStatus,
};

use crate::limits::MAX_REGIONS;
use crate::memory::grant::{Caller, Grant, Scope};
use crate::memory::meta::{Binding, Meta, PdUse, Region, Window, WindowCount};
use crate::memory::mr::fits;
use crate::memory::stag_table::{Busy, Kind, Slot, StagTable};
use crate::memory::{AccessError, LocalFault};

/// Allocate MW.
pub fn allocate(table: &StagTable, pd: PdUse, kind: MwKind) -> VpResult<MwId> {
    let index = table.allocate(Kind::Window)?.ok_or_else(|| {
        let detail = format!("all {MAX_REGIONS} memory windows of the device are in use");
        VpError::new(VpStatus::InsufficientResources, detail)
    })?;
    let id = MwId(index);
    let (_, mut meta) = table.open(index).ok_or_else(|| unknown(id))?;
    *meta = Meta::Window(Window { pd: pd.id, _pd_hold: pd.hold, kind, binding: None });
    Ok(id)
}

/// Query MW.
pub fn query(table: &StagTable, id: MwId) -> VpResult<MwInfo> {
    let (slot, meta) = table.open(id.0).ok_or_else(|| unknown(id))?;
    let Meta::Window(window) = &*meta else { return Err(unknown(id)) };
    let bound = window.binding.as_ref();
    Ok(MwInfo {
        id,
        kind: window.kind,
        pd: window.pd,
        stag: slot.valid_key().map(|key| Stag::new(id.0, key)),
        access: bound.map_or(Access::empty(), |bound| bound.access),
        region: bound.map(|bound| bound.region),
        to: bound.map_or(0, |bound| bound.to),
        len: bound.map_or(0, |bound| bound.len),
        addressing: bound.map_or(Addressing::default(), |bound| bound.addressing),
    })
}

/// Returns an error if windows are bound to the QP, which then cannot be destroyed (RDMAC 6.1.4). `bound` is
/// the QP's count of them. [VERBS-20]
pub fn check_none_bound(qp: QpId, bound: &AtomicU32) -> VpResult<()> {
    match bound.load(Ordering::Acquire) {
        0 => Ok(()),
        bound => {
            let detail = format!("{bound} memory windows are bound to queue pair {}", qp.0);
            Err(VpError::new(VpStatus::InUse, detail))
        }
    }
}

/// Deallocate MW, bound or not.
pub fn deallocate(table: &StagTable, id: MwId) -> VpResult<()> {
    let (slot, mut meta) = table.open(id.0).ok_or_else(|| unknown(id))?;
    let Meta::Window(window) = &mut *meta else { return Err(unknown(id)) };
    unbind(table, slot, window).map_err(|Busy| {
        let detail = format!("window {:#x} is still being read or written; try again", id.0);
        VpError::new(VpStatus::InUse, detail)
    })?;
    *meta = Meta::Free;
    drop(meta);
    table.release(id.0, Kind::Window);
    Ok(())
}

fn unknown(id: MwId) -> VpError {
    let detail = format!("there is no memory window {:#x}, or it was deallocated", id.0);
    VpError::new(VpStatus::InvalidHandle, detail)
}

/// Bind Memory Window; length 0 unbinds. `windows` is the QP's count of narrow windows.
// RDMAC 7.10 [DDP-20] [SEC-02] [SEC-04]
pub fn bind(
    table: &StagTable,
    caller: &Caller,
    windows: &Arc<AtomicU32>,
    request: &BindMw,
) -> Result<(), LocalFault> {
    if !caller.allow.contains(Access::BIND) {
        return Err(LocalFault::Bind);
    }
    let (slot, mut meta) = table.open(request.window.0).ok_or(LocalFault::Bind)?;
    let Meta::Window(window) = &mut *meta else { return Err(LocalFault::Bind) };
    if window.pd != caller.pd {
        return Err(LocalFault::Access(AccessError::NotAssociated));
    }
    // A narrow window can be rebound only after it was invalidated, a wide one at any time.
    let unbinds = request.len == 0;
    if window.kind == MwKind::Narrow && window.binding.is_some() && !unbinds {
        return Err(LocalFault::NotInvalid);
    }
    unbind(table, slot, window).map_err(|Busy| LocalFault::Bind)?;
    if unbinds {
        return Ok(());
    }
    bind_to_region(table, caller, windows, request, slot, window)
}

fn bind_to_region(
    table: &StagTable,
    caller: &Caller,
    windows: &Arc<AtomicU32>,
    request: &BindMw,
    slot: &Slot,
    window: &mut Window,
) -> Result<(), LocalFault> {
    let invalid = LocalFault::Access(AccessError::InvalidStag);
    // That is the window itself, which is already locked.
    if request.region.index() == request.window.0 {
        return Err(invalid);
    }
    let (region_slot, mut region_meta) = table.open(request.region.index()).ok_or(invalid)?;
    let Meta::Region(region) = &mut *region_meta else { return Err(invalid) };
    if region_slot.valid_key() != Some(request.region.key()) {
        return Err(invalid);
    }
    let grant = window_grant(caller, request, region, window.kind)?;
    region.bound_windows += 1;
    window.binding = Some(Binding {
        region: request.region,
        to: request.to,
        len: request.len,
        addressing: request.addressing,
        access: request.access,
        qp: caller.qp,
        _windows: (window.kind == MwKind::Narrow).then(|| WindowCount::new(windows)),
    });
    slot.publish(request.key, grant);
    Ok(())
}

/// Checks a bind against its region, and returns the window's grant as a part of the region's.
fn window_grant(
    caller: &Caller,
    request: &BindMw,
    region: &Region,
    kind: MwKind,
) -> Result<Grant, LocalFault> {
    if region.pd.id != caller.pd {
        return Err(LocalFault::Access(AccessError::NotAssociated));
    }
    // rnicpi 7: no window can be bound to a zero-based region.
    if region.addressing == Addressing::ZeroBased {
        return Err(LocalFault::Bind);
    }
    let local = [
        (Access::REMOTE_READ, Access::LOCAL_READ),
        (Access::REMOTE_WRITE, Access::LOCAL_WRITE),
        (Access::REMOTE_ATOMIC, Access::LOCAL),
    ];
    let covered = local.iter().all(|&(remote, local)| {
        !request.access.intersects(remote) || region.access.contains(local)
    });
    let remote_only = Access::REMOTE.contains(request.access);
    if !covered || !remote_only || !region.access.contains(Access::BIND) {
        return Err(LocalFault::Access(AccessError::Access));
    }
    let memory = region.memory.as_ref().ok_or(LocalFault::Access(AccessError::InvalidStag))?;
    let whole = Grant {
        addr: memory.range.addr().as_ptr(),
        len: memory.range.len() as u64,
        base: region.addressing.base(memory.range.addr().as_ptr().addr() as u64),
        access: request.access,
        pd: caller.pd,
        scope: match kind {
            MwKind::Wide => Scope::WideWindow,
            MwKind::Narrow => Scope::NarrowWindow(caller.qp),
        },
    };
    if !fits(request.addressing, request.len) {
        return Err(LocalFault::Access(AccessError::Wrap));
    }
    let offset = whole.offset(request.to, request.len).map_err(LocalFault::Access)?;
    Ok(Grant {
        addr: whole.addr.wrapping_add(offset),
        len: request.len,
        base: request.addressing.base(request.to),
        ..whole
    })
}

/// Makes a window invalid and updates its region and QP. The caller holds the window's lock.
pub(crate) fn unbind(table: &StagTable, slot: &Slot, window: &mut Window) -> Result<(), Busy> {
    let Some(binding) = &window.binding else { return Ok(()) };
    slot.revoke()?;
    if let Some((_, mut meta)) = table.open(binding.region.index())
        && let Meta::Region(region) = &mut *meta
    {
        region.bound_windows -= 1;
    }
    window.binding = None;
    Ok(())
}

#[cfg(all(test, not(loom)))]
#[path = "mw_tests.rs"]
mod tests;
