//! Per-process state, which a child made by fork(2) creates again.
//!
//! Owner: a static; any thread gets it. The state's own locks may have been held when the parent forked, by
//! threads that the child does not have.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::{Descriptors, Owner};

/// Per-process state, which a child creates again, whatever locks were held when the parent forked. The
/// parent's state stays in memory, unused.
pub struct PerProcess<T: 'static> {
    /// Null, or leaked.
    current: AtomicPtr<(u32, T)>,
}

impl<T: Send + Sync + Default> PerProcess<T> {
    /// No state yet.
    #[allow(clippy::new_without_default)] // for statics
    pub const fn new() -> Self {
        Self { current: AtomicPtr::new(null_mut()) }
    }

    /// The state of this process.
    pub fn get<O: Owner>(&'static self) -> &'static T {
        let generation = Descriptors::generation::<O>();
        let mut current = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or leaked and therefore never freed; shared by reference only.
            if let Some((made, state)) = unsafe { current.as_ref::<'static>() }
                && *made == generation
            {
                return state;
            }
            let new = Box::into_raw(Box::new((generation, T::default())));
            match self.current.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => current = new,
                Err(other) => {
                    // SAFETY: made above by `into_raw`, and not shared yet.
                    drop(unsafe { Box::from_raw(new) });
                    current = other;
                }
            }
        }
    }
}
