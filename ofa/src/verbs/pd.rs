//! Protection domains (ibv_alloc_pd(3)).

use std::ffi::c_int;
use std::sync::Arc;

use ibv_sys::*;
use vp_api::PdId;

use crate::adapter::Adapter;
use crate::errno::{self, Errno};
use crate::object::{self, Handle};
use crate::verbs::context::{Context, context_of};

/// A protection domain. It belongs to its context.
pub struct Pd {
    pub(crate) context: Arc<Context>,
    pub(crate) id: PdId,
}

impl Handle for ibv_pd {
    type Whole = Self;
    type Private = Pd;
    const NAME: &'static str = "struct ibv_pd";
}

impl Pd {
    /// The adapter that it is of.
    pub fn adapter(&self) -> Result<&Arc<Adapter>, Errno> {
        self.context.adapter()
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the caller's context.
    let private = unsafe { context_of(context) };
    errno::pointer(private.and_then(|private| {
        let id = private.adapter()?.rnic().alloc_pd()?;
        let whole = ibv_pd { context, handle: id.0 };
        Ok(object::new(whole, Arc::new(Pd { context: private.clone(), id })))
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the caller's protection domain.
    let private = unsafe { object::with(pd) };
    errno::code(private.and_then(|private| {
        private.adapter()?.rnic().dealloc_pd(private.id)?;
        // SAFETY: the caller gives it up, and nothing is in it.
        unsafe { object::destroy(pd) }.map(drop)
    }))
}
