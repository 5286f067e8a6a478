//! Handles of regions and windows by the STag index of their adapter.
//!
//! One map for the process, used only when a peer unlinked memory and by query calls.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use ual::Ia;
use ual::vp_api::Stag;

/// By the adapter's handle and the index.
type Map = BTreeMap<(u64, u32), u64>;

static HANDLES: RwLock<Option<Map>> = RwLock::new(None);

/// Assigns the index to `handle`.
pub(crate) fn add(ia: &Ia, stag: Stag, handle: u64) {
    let mut handles = HANDLES.write().unwrap_or_else(PoisonError::into_inner);
    handles.get_or_insert_default().insert((ia.tag().get(), stag.index()), handle);
}

/// Frees the index, if it is still assigned to `handle`.
pub(crate) fn remove(ia: &Ia, stag: Stag, handle: u64) {
    let mut handles = HANDLES.write().unwrap_or_else(PoisonError::into_inner);
    let key = (ia.tag().get(), stag.index());
    if let Some(handles) = handles.as_mut()
        && handles.get(&key) == Some(&handle)
    {
        handles.remove(&key);
    }
}

/// The handle, or 0.
pub(crate) fn handle(ia: &Ia, stag: Stag) -> u64 {
    let handles = HANDLES.read().unwrap_or_else(PoisonError::into_inner);
    let key = (ia.tag().get(), stag.index());
    handles.as_ref().and_then(|handles| handles.get(&key)).copied().unwrap_or(0)
}
