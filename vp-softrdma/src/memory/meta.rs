//! What the verbs know about an STag beyond its grant.
//!
//! Owner: the STag's slot, under the slot's lock. Verbs and local send-queue operations look here;
//! placement never does. Lock order: a window's slot before its region's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vp_api::{Access, Addressing, MemRange, MwKind, PdId, QpId, Stag};

use crate::memory::pin::Pinned;
use crate::objects::Hold;

/// A slot's role.
pub(crate) enum Meta {
    Free,
    Region(Region),
    Window(Window),
}

/// Protection domain of an STag, kept in use.
pub(crate) struct PdUse {
    pub(crate) id: PdId,
    pub(crate) _hold: Hold,
}

/// A memory region; valid while it has memory (RDMAC 7.2.2). // [VERBS-25]
pub(crate) struct Region {
    pub(crate) pd: PdUse,
    pub(crate) memory: Option<Arc<Memory>>,
    /// For good, once a second STag names the same memory.
    pub(crate) shared: bool,
    /// Remote rights may be given: fixed at allocation.
    pub(crate) remote: bool,
    pub(crate) addressing: Addressing,
    pub(crate) access: Access,
    pub(crate) bound_windows: u32,
}

/// Memory of one or, if shared, several regions.
pub(crate) struct Memory {
    /// Unpins when the last region is gone; first field, so before the memory's owner is dropped.
    pub(crate) _pinned: Option<Pinned>,
    pub(crate) range: MemRange,
}

/// A memory window.
// Its protection domain is not a `PdUse`, whose padding would make every slot of the table larger.
pub(crate) struct Window {
    pub(crate) pd: PdId,
    pub(crate) _pd_hold: Hold,
    pub(crate) kind: MwKind,
    /// `Some` while valid.
    pub(crate) binding: Option<Binding>,
}

/// What a window is bound to, as its work request had it.
pub(crate) struct Binding {
    pub(crate) region: Stag,
    pub(crate) to: u64,
    pub(crate) len: u64,
    pub(crate) addressing: Addressing,
    pub(crate) access: Access,
    pub(crate) qp: QpId,
    /// Narrow only: the QP's count of windows.
    pub(crate) _windows: Option<WindowCount>,
}

/// One in a QP's count of narrow windows, which keeps the QP from being destroyed.
pub(crate) struct WindowCount(Arc<AtomicU32>);

impl WindowCount {
    pub(crate) fn new(count: &Arc<AtomicU32>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count.clone())
    }
}

impl Drop for WindowCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
