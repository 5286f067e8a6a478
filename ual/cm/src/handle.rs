//! Handles: numbers that name a value until it is removed, and nothing afterwards.
//!
//! The connection manager names its requests by handles. A table is under its owner's lock.

use std::collections::BTreeMap;

/// Name of a value; never 0, and never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Handle(u64);

impl Handle {
    /// As a number, for languages without types.
    pub(crate) const fn to_raw(self) -> u64 {
        self.0
    }

    /// From a number. Any number may be given; only a live one resolves.
    pub(crate) const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }
}

/// Values by handles that count up. It grows by small pieces.
#[derive(Debug)]
pub(crate) struct HandleTable<T> {
    values: BTreeMap<Handle, T>,
    last: u64,
}

impl<T> Default for HandleTable<T> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), last: 0 }
    }
}

impl<T> HandleTable<T> {
    /// Stores a value under a new handle.
    pub(crate) fn insert(&mut self, value: T) -> Handle {
        self.last += 1;
        let handle = Handle(self.last);
        self.values.insert(handle, value);
        handle
    }

    /// The value, unless the handle is stale.
    pub(crate) fn get(&self, handle: Handle) -> Option<&T> {
        self.values.get(&handle)
    }

    /// Takes the value out; afterwards the handle is stale.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<T> {
        self.values.remove(&handle)
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
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(Handle::from_raw(second.to_raw())), Some(&"second"));
    }

    #[test]
    fn no_handle_is_zero_and_any_number_may_be_tried() {
        let mut table = HandleTable::default();
        let handle = table.insert(1).to_raw();
        assert_ne!(handle, 0);
        for raw in [0, handle + 1, u64::MAX, 1 << 32 | 7] {
            assert_eq!(table.get(Handle::from_raw(raw)), None);
        }
    }
}
