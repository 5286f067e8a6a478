//! Protection domains (ibv_alloc_pd(3)).
//!
//! It is not freed while queue pairs, shared receive queues, windows or address handles are in it, and on RoCE no region.
//! On iWARP regions that a program left in it (as perftest leaves those of its credits) do not matter: it is freed
//! after the last of them.

use std::ffi::c_int;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ibv_sys::*;
use vp_api::{PdId, Transport};

use crate::adapter::Adapter;
use crate::errno::{self, EBUSY, Errno};
use crate::object::{self, Handle};
use crate::verbs::context::{Context, context_of};

/// A protection domain. It belongs to its context.
pub struct Pd {
    pub(crate) context: Arc<Context>,
    pub(crate) id: PdId,
    /// Queue pairs, shared receive queues, windows and address handles in it.
    users: AtomicU32,
    regions: AtomicU32,
}

/// The domain of a region, which counts there until this is dropped.
pub(crate) struct Registered(Arc<Pd>);

impl Registered {
    pub(crate) fn new(pd: Arc<Pd>) -> Self {
        pd.regions.fetch_add(1, Ordering::AcqRel);
        Self(pd)
    }
}

impl Clone for Registered {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl Deref for Registered {
    type Target = Pd;
    fn deref(&self) -> &Pd {
        &self.0
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.0.regions.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Handle for ibv_pd {
    type Whole = Self;
    type Private = Pd;
    const NAME: &'static str = "struct ibv_pd";
}

impl Pd {
    /// Its adapter.
    pub fn adapter(&self) -> Result<&Arc<Adapter>, Errno> {
        self.context.adapter()
    }

    /// An object is created in it that keeps it from being freed.
    pub(crate) fn enter(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// Such an object is destroyed.
    pub(crate) fn remove_user(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        if let Ok(adapter) = self.adapter() {
            // Nothing is left in it.
            let _ = adapter.rnic().dealloc_pd(self.id);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the caller's context.
    let private = unsafe { context_of(context) };
    errno::pointer(private.and_then(|private| {
        let id = private.adapter()?.rnic().alloc_pd()?;
        let whole = ibv_pd { context, handle: id.0 };
        Ok(object::new(
            whole,
            Arc::new(Pd { context: private.clone(), id, users: 0.into(), regions: 0.into() }),
        ))
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the caller's protection domain.
    let private = unsafe { object::with(pd) };
    errno::code(private.and_then(|private| {
        let of_roce = private.adapter()?.device().transport() != Transport::Iwarp;
        let regions = if of_roce { private.regions.load(Ordering::Acquire) } else { 0 };
        if private.users.load(Ordering::Acquire) + regions != 0 {
            return Err(EBUSY);
        }
        // SAFETY: the caller gives it up.
        unsafe { object::destroy(pd) }.map(drop)
    }))
}
