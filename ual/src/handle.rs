//! Generation-checked handles: a number that names a value until it is removed, and nothing after.
//!
//! The connection manager names its requests so. A table is behind its owner's lock.

use slab::Slab;

/// Name of a value: slot in the low half, generation in the high half; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Handle(u64);

impl Handle {
    /// As a number, for languages without types.
    pub(crate) const fn to_raw(self) -> u64 {
        self.0
    }

    /// From a number; any number may be tried, only a live one resolves.
    pub(crate) const fn from_raw(raw: u64) -> Self {
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
pub(crate) struct HandleTable<T> {
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
    pub(crate) fn insert(&mut self, value: T) -> Handle {
        // Never 0, so that no handle is 0.
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        Handle::new(self.slots.insert((self.generation, value)), self.generation)
    }

    /// The value, unless the handle is stale.
    pub(crate) fn get(&self, handle: Handle) -> Option<&T> {
        let (generation, value) = self.slots.get(handle.slot())?;
        (*generation == handle.generation()).then_some(value)
    }

    /// Takes the value out; afterwards the handle is stale.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<T> {
        self.get(handle)?;
        Some(self.slots.remove(handle.slot()).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_handle_never_names_the_next_value() {
        let mut table = HandleTable::default();
        let first = table.insert("first");
        assert_eq!(table.get(first), Some(&"first"));
        assert_eq!(table.remove(first), Some("first"));
        let second = table.insert("second");
        assert_eq!(first.slot(), second.slot());
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
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
}
