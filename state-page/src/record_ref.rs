//! Counted reference to a record in a page, for its writer.
//!
//! The memory is freed, or reused for another queue pair, when the last [`RecordRef`] of a record is dropped. Any
//! thread.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::layout::{Device, Slot};

/// A record, and the object that keeps its memory.
pub struct RecordRef<T: Sync + 'static> {
    at: NonNull<T>,
    keep: Arc<dyn Any + Send + Sync>,
}

/// The record of a queue pair.
pub type SlotRef = RecordRef<Slot>;
/// The record of an adapter.
pub type DeviceRef = RecordRef<Device>;

// SAFETY: it is a shared reference to a `T`, which is `Sync`, and a counted one to a `Send` and `Sync` object.
unsafe impl<T: Sync + 'static> Send for RecordRef<T> {}
// SAFETY: the same.
unsafe impl<T: Sync + 'static> Sync for RecordRef<T> {}

impl<T: Sync + 'static> RecordRef<T> {
    /// A record at an address.
    ///
    /// # Safety
    ///
    /// A `T` is at `at`, and may be shared, until `keep` and all its clones are dropped. It consists of
    /// atomics: other processes that map the file may write there.
    pub unsafe fn at(at: NonNull<T>, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { at, keep }
    }
}

impl<T: Send + Sync + Default + 'static> Default for RecordRef<T> {
    /// A record outside any page.
    fn default() -> Self {
        let record = Arc::new(T::default());
        Self { at: NonNull::from(&*record), keep: record }
    }
}

impl<T: Sync + 'static> Clone for RecordRef<T> {
    fn clone(&self) -> Self {
        Self { at: self.at, keep: self.keep.clone() }
    }
}

impl<T: Sync + 'static> Deref for RecordRef<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `keep` keeps it (`RecordRef::at`, and for `Default` it is the record).
        unsafe { self.at.as_ref() }
    }
}

impl<T: Sync + 'static> fmt::Debug for RecordRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordRef({:?})", self.at)
    }
}
