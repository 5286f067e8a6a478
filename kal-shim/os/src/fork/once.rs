//! A value that is made when it is first needed, without a lock.
//!
//! Owner: a static; any thread gets it. Threads that come at once may each make a value: the first one that is done is
//! kept. A child made by fork(2) while another thread was making it makes it itself; with a lock it would wait for a
//! thread that it does not have.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// As [`std::sync::OnceLock`], without a lock. For values that are the same in a child.
pub struct Once<T: 'static> {
    /// Null, or leaked.
    value: AtomicPtr<T>,
}

impl<T: Send + Sync> Once<T> {
    /// No value yet.
    #[allow(clippy::new_without_default)] // for statics
    pub const fn new() -> Self {
        Self { value: AtomicPtr::new(null_mut()) }
    }

    /// The value, which `make` makes if there is none.
    pub fn get_or_init(&'static self, make: impl FnOnce() -> T) -> &'static T {
        // SAFETY: null, or leaked and therefore never freed; shared by reference only.
        if let Some(value) = unsafe { self.value.load(Ordering::Acquire).as_ref::<'static>() } {
            return value;
        }
        let new = Box::into_raw(Box::new(make()));
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let kept = match self.value.compare_exchange(null_mut(), new, success, failure) {
            Ok(_) => new,
            Err(first) => {
                // SAFETY: made above by `into_raw`, and not shared.
                drop(unsafe { Box::from_raw(new) });
                first
            }
        };
        // SAFETY: as above, and not null.
        unsafe { &*kept }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn all_threads_get_the_same_value() {
        static ONCE: Once<u32> = Once::new();
        static MADE: AtomicU32 = AtomicU32::new(0);
        let get = || *ONCE.get_or_init(|| MADE.fetch_add(1, Ordering::Relaxed));
        let found: Vec<u32> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(get)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(found.iter().all(|value| *value == get()), "{found:?}");
    }
}
