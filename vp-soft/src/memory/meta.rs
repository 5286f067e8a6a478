//! Attributes of an STag that only the verbs need. The grant holds the others.
//!
//! Owner: the STag's slot, under the slot's lock. Verbs and local send-queue operations read them;
//! placement never does. Lock order: a window's slot before its region's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vp_api::{Access, Addressing, MemRange, MwKind, PdId, QpId, Stag, VpError, VpResult, VpStatus};

use crate::memory::pin::Pinned;
use crate::objects::{InUse, Objects};

/// The use of a slot: free, region or window.
pub(crate) enum Meta {
    Free,
    Region(Region),
    Window(Window),
}

/// Protection domain of an STag; the guard keeps it from being destroyed.
pub struct PdUse {
    /// The protection domain.
    pub id: PdId,
    /// Counts the use.
    pub hold: InUse,
}

impl PdUse {
    /// A use of a protection domain of this table.
    ///
    /// # Errors
    /// [`VpStatus::InvalidPd`]: there is no such protection domain.
    pub fn of(pds: &Objects<PdId>, pd: PdId) -> VpResult<Self> {
        let held = pds.hold(pd.0);
        let (_, hold) = held.map_err(|error| VpError { status: VpStatus::InvalidPd, ..error })?;
        Ok(Self { id: pd, hold })
    }
}

/// A memory region. It is valid while it has memory (RDMAC 7.2.2). // [VERBS-25]
pub(crate) struct Region {
    pub(crate) pd: PdUse,
    pub(crate) memory: Option<Arc<Memory>>,
    /// Set permanently once a second STag names the same memory.
    pub(crate) shared: bool,
    /// Remote rights may be given: fixed at allocation.
    pub(crate) remote: bool,
    pub(crate) addressing: Addressing,
    pub(crate) access: Access,
    /// The key that a privileged verb gave; `None` once fast registration gave another.
    pub(crate) key: Option<u8>,
    pub(crate) bound_windows: u32,
}

/// Memory of one region or, if shared, of several.
pub(crate) struct Memory {
    /// Unpins when the last region is dropped; the first field, so that it is dropped before the
    /// memory's owner.
    pub(crate) _pinned: Option<Pinned>,
    pub(crate) range: MemRange,
}

/// A memory window.
// Its protection domain is not a `PdUse`, whose padding would make every slot of the table larger.
pub(crate) struct Window {
    pub(crate) pd: PdId,
    pub(crate) _pd_hold: InUse,
    pub(crate) kind: MwKind,
    /// `Some` while valid.
    pub(crate) binding: Option<Binding>,
}

/// What a window is bound to, as in its work request.
pub(crate) struct Binding {
    pub(crate) region: Stag,
    pub(crate) to: u64,
    pub(crate) len: u64,
    pub(crate) addressing: Addressing,
    pub(crate) access: Access,
    pub(crate) qp: QpId,
    /// For narrow windows: the QP's count of windows.
    pub(crate) _windows: Option<WindowCount>,
}

/// Counts one narrow window of a QP. While the count is not 0, the QP cannot be destroyed.
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
