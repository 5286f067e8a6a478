//! Generation-checked handles: a number that names an object until it is closed, and nothing after.
//!
//! One table per process for the objects ([`find`]), so that a foreign-language face can resolve a
//! handle without knowing its Ia; the connection manager keeps its requests in another. A table is
//! behind its owner's lock.

use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use slab::Slab;

use crate::error::{Error, Object, Result};
use crate::event::Evd;
use crate::resource::{Ep, Ia, Listen, Lmr, Pz, Rmr, Srq};

/// Name of an object: slot in the low half, generation in the high half; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle(u64);

impl Handle {
    /// As a number, for languages without types.
    pub const fn to_raw(self) -> u64 {
        self.0
    }

    /// From a number; any number may be tried, only a live one resolves.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    fn new(slot: usize, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | slot as u64)
    }

    fn slot(self) -> usize {
        (self.0 & 0xFFFF_FFFF) as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Slots with generations. A generation is used for 2^32 - 1 objects before it repeats.
#[derive(Debug)]
pub struct HandleTable<T> {
    slots: Slab<(u32, T)>,
    generation: u32,
}

impl<T> Default for HandleTable<T> {
    fn default() -> Self {
        Self { slots: Slab::new(), generation: 0 }
    }
}

impl<T> HandleTable<T> {
    /// Stores a value under a new handle.
    pub fn insert(&mut self, value: T) -> Handle {
        // Never 0, so that no handle is 0.
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        Handle::new(self.slots.insert((self.generation, value)), self.generation)
    }

    /// The value, unless the handle is stale.
    pub fn get(&self, handle: Handle) -> Option<&T> {
        let (generation, value) = self.slots.get(handle.slot())?;
        (*generation == handle.generation()).then_some(value)
    }

    /// Takes the value out; afterwards the handle is stale.
    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        self.get(handle)?;
        Some(self.slots.remove(handle.slot()).1)
    }

    /// Values stored.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True if no value is stored.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

/// Any object that has a handle.
#[derive(Clone)]
#[allow(missing_docs)]
pub enum AnyObject {
    Ia(Arc<Ia>),
    Pz(Arc<Pz>),
    Evd(Arc<Evd>),
    Ep(Arc<Ep>),
    Lmr(Arc<Lmr>),
    Rmr(Arc<Rmr>),
    Srq(Arc<Srq>),
    Listen(Arc<Listen>),
}

/// As [`AnyObject`], without keeping it alive.
pub(crate) enum WeakObject {
    Ia(Weak<Ia>),
    Pz(Weak<Pz>),
    Evd(Weak<Evd>),
    Ep(Weak<Ep>),
    Lmr(Weak<Lmr>),
    Rmr(Weak<Rmr>),
    Srq(Weak<Srq>),
    Listen(Weak<Listen>),
}

impl WeakObject {
    fn upgrade(&self) -> Option<AnyObject> {
        Some(match self {
            Self::Ia(weak) => AnyObject::Ia(weak.upgrade()?),
            Self::Pz(weak) => AnyObject::Pz(weak.upgrade()?),
            Self::Evd(weak) => AnyObject::Evd(weak.upgrade()?),
            Self::Ep(weak) => AnyObject::Ep(weak.upgrade()?),
            Self::Lmr(weak) => AnyObject::Lmr(weak.upgrade()?),
            Self::Rmr(weak) => AnyObject::Rmr(weak.upgrade()?),
            Self::Srq(weak) => AnyObject::Srq(weak.upgrade()?),
            Self::Listen(weak) => AnyObject::Listen(weak.upgrade()?),
        })
    }
}

type Objects = RwLock<HandleTable<WeakObject>>;

fn objects() -> &'static Objects {
    static OBJECTS: OnceLock<Objects> = OnceLock::new();
    OBJECTS.get_or_init(Objects::default)
}

/// The open object that a handle names; [`Error::Closed`] if there is none (any more).
pub fn find(handle: Handle, expected: Object) -> Result<AnyObject> {
    let table = objects().read().unwrap_or_else(PoisonError::into_inner);
    table.get(handle).and_then(WeakObject::upgrade).ok_or(Error::Closed(expected))
}

/// The place of an open object in the process's table, until drop.
#[derive(Debug)]
pub(crate) struct Registered(Handle);

impl Registered {
    pub(crate) fn new(object: WeakObject) -> Self {
        Self(objects().write().unwrap_or_else(PoisonError::into_inner).insert(object))
    }

    pub(crate) fn handle(&self) -> Handle {
        self.0
    }

    /// Makes the handle stale; done by the object's `close`.
    pub(crate) fn forget(&self) {
        objects().write().unwrap_or_else(PoisonError::into_inner).remove(self.0);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_handle_never_names_the_next_object() {
        let mut table = HandleTable::default();
        let first = table.insert("first");
        assert_eq!(table.get(first), Some(&"first"));
        assert_eq!(table.remove(first), Some("first"));
        let second = table.insert("second");
        assert_eq!(first.slot(), second.slot());
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.len(), 1);
        assert_eq!(table.get(Handle::from_raw(second.to_raw())), Some(&"second"));
    }

    #[test]
    fn no_handle_is_zero_and_any_number_may_be_tried() {
        let mut table = HandleTable::default();
        assert_ne!(table.insert(1).to_raw(), 0);
        for raw in [0, 1, u64::MAX, 1 << 32 | 7] {
            assert_eq!(table.get(Handle::from_raw(raw)), None);
        }
    }

    #[test]
    fn the_generation_skips_zero_when_it_wraps() {
        let mut table = HandleTable { slots: Slab::new(), generation: u32::MAX };
        assert_eq!(table.insert(()).generation(), 1);
    }

    #[test]
    fn unknown_objects_are_closed() {
        let result = find(Handle::from_raw(u64::MAX), Object::Ep);
        assert!(matches!(result, Err(Error::Closed(Object::Ep))));
    }
}
