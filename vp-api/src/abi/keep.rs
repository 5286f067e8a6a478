//! Reference counts across the C interface, for objects that are used after a call has returned.

use std::ffi::c_void;
use std::sync::Arc;

use super::types as c;

/// One reference to an object of the other side; released when dropped.
pub(super) struct Kept(c::Keep);

// SAFETY: the header lets every function be called from any thread; so the two of a keep.
unsafe impl Send for Kept {}
// SAFETY: as for `Send`; nothing is mutated here.
unsafe impl Sync for Kept {}

impl Kept {
    /// Retains the object.
    ///
    /// # Safety
    ///
    /// `keep` obeys the header: the object is alive now, and until its last reference is released.
    pub(super) unsafe fn new(keep: c::Keep) -> Self {
        if let Some(retain) = keep.retain {
            // SAFETY: the caller's promise.
            unsafe { retain(keep.context) };
        }
        Self(keep)
    }

    /// First argument of the functions that belong to it.
    pub(super) fn context(&self) -> *mut c_void {
        self.0.context
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: `new` retained it, and this is the only release of that use.
            unsafe { release(self.0.context) };
        }
    }
}

/// Nothing to keep.
pub(super) const NOTHING: c::Keep =
    c::Keep { context: std::ptr::null_mut(), retain: None, release: None };

/// Lends `value`: valid while `value` is borrowed, and longer if retained.
pub(super) fn lend<T: Send + Sync + 'static>(value: &Arc<T>) -> c::Keep {
    c::Keep {
        context: Arc::as_ptr(value).cast_mut().cast(),
        retain: Some(retain::<T>),
        release: Some(release::<T>),
    }
}

unsafe extern "C" fn retain<T>(context: *mut c_void) {
    // SAFETY: `context` is that of `lend::<T>`, and a use of it is alive.
    unsafe { Arc::increment_strong_count(context.cast::<T>().cast_const()) };
}

unsafe extern "C" fn release<T>(context: *mut c_void) {
    // A panic in a destructor must not cross.
    _ = std::panic::catch_unwind(|| {
        // SAFETY: `context` is that of `lend::<T>`, and one use of it ends here.
        unsafe { Arc::decrement_strong_count(context.cast::<T>().cast_const()) };
    });
}
