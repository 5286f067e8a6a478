//! Invalidating an STag, through a send queue or on behalf of a peer.
//!
//! Owner of all state: the STag table. Runs on the thread that drives the QP. The caller holds no `Use` (see the
//! rule for holders there), so the wait for placements of other QPs is bounded.

use vp_api::{Access, MwKind, Stag};

use crate::memory::grant::Caller;
use crate::memory::meta::{Meta, Region, Window};
use crate::memory::mw;
use crate::memory::stag_table::{Busy, Slot, StagTable};
use crate::memory::{AccessError, LocalFault};

/// Invalidate Local STag, and the sink of an RDMA Read with Invalidate.
// RDMAC 7.11 [VERBS-25]
pub fn local(table: &StagTable, caller: &Caller, stag: Stag) -> Result<(), LocalFault> {
    invalidate(table, caller, stag, false).map_err(LocalFault::Access)
}

/// Send with Invalidate from the peer.
// RFC 5040 5.3 [RDMAP-13] [VERBS-27]
pub fn remote(table: &StagTable, caller: &Caller, stag: Stag) -> Result<(), AccessError> {
    // RDMAC 7.11: a peer without remote rights may not invalidate, either. [SEC-14]
    if !caller.allow.intersects(Access::REMOTE) {
        return Err(AccessError::CannotInvalidate);
    }
    invalidate(table, caller, stag, true)
}

fn invalidate(
    table: &StagTable,
    caller: &Caller,
    stag: Stag,
    by_peer: bool,
) -> Result<(), AccessError> {
    if stag.index() == 0 {
        return Err(AccessError::InvalidStag); // [VERBS-23]
    }
    let (slot, mut meta) = table.open(stag.index()).ok_or(AccessError::InvalidStag)?;
    match &mut *meta {
        Meta::Free => Err(AccessError::InvalidStag),
        Meta::Region(region) => {
            let memory = invalidate_region(slot, region, caller, stag, by_peer)?;
            drop(meta);
            // The destructor of the memory's owner may run any code.
            drop(memory);
            Ok(())
        }
        Meta::Window(window) => invalidate_window(table, slot, window, caller, stag, by_peer),
    }
}

fn invalidate_region(
    slot: &Slot,
    region: &mut Region,
    caller: &Caller,
    stag: Stag,
    by_peer: bool,
) -> Result<Option<impl Sized + use<>>, AccessError> {
    if region.pd.id != caller.pd {
        return Err(AccessError::NotAssociated); // [SEC-01]
    }
    check_key(slot, stag)?;
    // RFC 5042 6.4.5: a peer never invalidates an STag that other streams use. [SEC-06]
    let remote = region.access.intersects(Access::REMOTE);
    if region.shared || region.bound_windows != 0 || (by_peer && region.memory.is_some() && !remote)
    {
        return Err(AccessError::CannotInvalidate);
    }
    slot.revoke().map_err(|Busy| AccessError::CannotInvalidate)?;
    Ok(region.memory.take())
}

fn invalidate_window(
    table: &StagTable,
    slot: &Slot,
    window: &mut Window,
    caller: &Caller,
    stag: Stag,
    by_peer: bool,
) -> Result<(), AccessError> {
    if window.pd != caller.pd {
        return Err(AccessError::NotAssociated);
    }
    check_key(slot, stag)?;
    match (&window.binding, window.kind) {
        (Some(binding), MwKind::Narrow) if binding.qp != caller.qp => {
            return Err(AccessError::NotAssociated); // [SEC-02]
        }
        // A wide window serves several streams. [SEC-06]
        (Some(_), MwKind::Wide) if by_peer => return Err(AccessError::CannotInvalidate),
        _ => (),
    }
    mw::unbind(table, slot, window).map_err(|Busy| AccessError::CannotInvalidate)
}

/// A valid STag must be named with its key; one that is already invalid has no key (RDMAC 7.11).
fn check_key(slot: &Slot, stag: Stag) -> Result<(), AccessError> {
    match slot.valid_key() {
        Some(key) if key != stag.key() => Err(AccessError::InvalidStag), // [VERBS-22]
        _ => Ok(()),
    }
}

#[cfg(all(test, not(loom)))]
#[path = "invalidate_tests.rs"]
mod tests;
