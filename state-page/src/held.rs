//! A record in a page, for whoever writes it: as good as a reference, for as long as it is kept.
//!
//! What keeps the memory is counted, so the memory goes, or is given to another queue pair, when the last
//! [`Held`] of a record has gone. Any thread.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::layout::{Device, Slot};

/// A record, and what keeps it.
pub struct Held<T: Sync + 'static> {
    at: NonNull<T>,
    keep: Arc<dyn Any + Send + Sync>,
}

/// The record of a queue pair.
pub type SlotRef = Held<Slot>;
/// The record of an adapter.
pub type DeviceRef = Held<Device>;

// SAFETY: it is a shared reference to a `T`, which is `Sync`, and a counted one to what is `Send` and `Sync`.
unsafe impl<T: Sync + 'static> Send for Held<T> {}
// SAFETY: the same.
unsafe impl<T: Sync + 'static> Sync for Held<T> {}

impl<T: Sync + 'static> Held<T> {
    /// A record at an address.
    ///
    /// # Safety
    ///
    /// A `T` is at `at`, and may be shared, until `keep` and all its clones have gone. It consists of atomics: who
    /// maps the same file may write there.
    pub unsafe fn at(at: NonNull<T>, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { at, keep }
    }
}

impl<T: Send + Sync + Default + 'static> Default for Held<T> {
    /// A record that is in no page.
    fn default() -> Self {
        let record = Arc::new(T::default());
        Self { at: NonNull::from(&*record), keep: record }
    }
}

impl<T: Sync + 'static> Clone for Held<T> {
    fn clone(&self) -> Self {
        Self { at: self.at, keep: self.keep.clone() }
    }
}

impl<T: Sync + 'static> Deref for Held<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `keep` keeps it (`Held::at`, and for `Default` it is the record).
        unsafe { self.at.as_ref() }
    }
}

impl<T: Sync + 'static> fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({:?})", self.at)
    }
}
