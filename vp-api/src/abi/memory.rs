//! Conversion of memory ranges, regions and windows between Rust and C. The only state: a range that came from the
//! other side keeps its owner.

use std::ptr::NonNull;
use std::sync::Arc;

use super::keep::{self, Kept};
use super::types::Sized32;
use super::{codes, types as c};
use crate::{Access, MemRange, MrInfo, MrInit, MwId, MwInfo, PdId, Stag};

/// A range lent for a call; if it has an owner, with the reference count that the header calls `owner`.
pub(super) struct Lent {
    range: MemRange,
    owner: Option<Arc<MemRange>>,
}

impl Lent {
    pub(super) fn new(range: &MemRange) -> Self {
        let owner = range.is_owned().then(|| Arc::new(range.clone()));
        Self { range: range.clone(), owner }
    }

    /// Valid as long as `self`, and longer if retained.
    pub(super) fn get(&self) -> c::Range {
        c::Range {
            addr: self.range.addr().as_ptr().cast(),
            len: self.range.len() as u64,
            owner: self.owner.as_ref().map_or(keep::NOTHING, keep::lend),
        }
    }
}

/// The host's range; `None` if it has no address or does not fit into an address space.
///
/// # Safety
///
/// `range` obeys the header: readable and writable while its owner is kept, or while registered.
pub(super) unsafe fn range(range: &c::Range) -> Option<MemRange> {
    let addr = NonNull::new(range.addr.cast::<u8>())?;
    let len = usize::try_from(range.len).ok().filter(|len| *len <= isize::MAX as usize)?;
    if range.owner.retain.is_none() {
        // SAFETY: the caller's promise; without an owner the host keeps the memory.
        return Some(unsafe { MemRange::unowned(addr, len) });
    }
    // SAFETY: the caller's promise.
    let owner = Arc::new(unsafe { Kept::new(range.owner) });
    // SAFETY: the caller's promise, for as long as the owner is kept.
    Some(unsafe { MemRange::owned(addr, len, owner) })
}

/// Converts the attributes for a call, with the range lent.
pub(super) fn init_to(init: &MrInit, lent: &Lent) -> c::MrInit {
    let (addressing, base) = codes::addressing_code(init.addressing);
    c::MrInit {
        pd: init.pd.0,
        range: lent.get(),
        addressing,
        base,
        access: init.access.bits(),
        key: init.key.into(),
        pin: init.pin.into(),
        ..c::MrInit::blank()
    }
}

/// `None` for an unknown number.
///
/// # Safety
///
/// As for [`range`].
pub(super) unsafe fn init_from(init: &c::MrInit) -> Option<MrInit> {
    Some(MrInit {
        pd: PdId(init.pd),
        // SAFETY: the caller's promise.
        range: unsafe { range(&init.range) }?,
        addressing: codes::addressing(init.addressing, init.base)?,
        access: Access::from_bits(init.access)?,
        key: u8::try_from(init.key).ok()?,
        pin: init.pin != 0,
    })
}

pub(super) fn info_to(info: &MrInfo) -> c::MrInfo {
    let (addressing, base) = codes::addressing_code(info.addressing);
    c::MrInfo {
        stag: info.stag.0,
        pd: info.pd.0,
        valid: info.valid.into(),
        shared: info.shared.into(),
        addressing,
        base,
        addr: info.addr,
        len: info.len,
        access: info.access.bits(),
        bound_windows: info.bound_windows,
        ..c::MrInfo::blank()
    }
}

pub(super) fn info_from(info: &c::MrInfo) -> Option<MrInfo> {
    Some(MrInfo {
        stag: Stag(info.stag),
        pd: PdId(info.pd),
        valid: info.valid != 0,
        shared: info.shared != 0,
        addr: info.addr,
        len: info.len,
        addressing: codes::addressing(info.addressing, info.base)?,
        access: Access::from_bits_truncate(info.access),
        bound_windows: info.bound_windows,
    })
}

pub(super) fn window_to(info: &MwInfo) -> c::MwInfo {
    let (addressing, base) = codes::addressing_code(info.addressing);
    c::MwInfo {
        id: info.id.0,
        kind: codes::kind_code(info.kind),
        pd: info.pd.0,
        bound: info.stag.is_some().into(),
        stag: info.stag.map_or(0, |s| s.0),
        access: info.access.bits(),
        has_region: info.region.is_some().into(),
        region: info.region.map_or(0, |s| s.0),
        addressing,
        base,
        to: info.to,
        len: info.len,
        ..c::MwInfo::blank()
    }
}

pub(super) fn window_from(info: &c::MwInfo) -> Option<MwInfo> {
    Some(MwInfo {
        id: MwId(info.id),
        kind: codes::kind(info.kind)?,
        pd: PdId(info.pd),
        stag: (info.bound != 0).then_some(Stag(info.stag)),
        access: Access::from_bits_truncate(info.access),
        region: (info.has_region != 0).then_some(Stag(info.region)),
        to: info.to,
        len: info.len,
        addressing: codes::addressing(info.addressing, info.base)?,
    })
}
