//! A ring of fixed capacity: allocated once, when the first entry comes, and never grows. An idle
//! QP never allocates some of its rings.
//!
//! Owner: the QP that contains it; touched only by the thread that drives that QP. When the
//! peer dies, the QP's flush removes the entries.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// First in, first out; an entry's position does not change.
#[derive(Clone, Debug)]
pub(crate) struct Ring<T> {
    slots: Box<[Option<T>]>,
    capacity: u32,
    head: u32,
    len: u32,
}

impl<T: Clone> Ring<T> {
    /// An empty ring for `capacity` entries, at least one.
    pub(crate) fn new(capacity: u32) -> Self {
        Self { slots: Box::default(), capacity: capacity.max(1), head: 0, len: 0 }
    }
    /// Appends; returns the position, or `None` if the ring is full, or there is no memory for it.
    pub(crate) fn push(&mut self, entry: T) -> Option<u32> {
        if self.is_full() || !self.make_room() {
            return None;
        }
        let position = self.position(self.len);
        self.slots[position as usize] = Some(entry);
        self.len += 1;
        Some(position)
    }
    /// Allocates the memory for its entries; false if there is none.
    #[inline]
    pub(crate) fn make_room(&mut self) -> bool {
        self.is_allocated() || self.allocate()
    }
    #[cold]
    fn allocate(&mut self) -> bool {
        let mut slots = Vec::new();
        let capacity = self.capacity as usize;
        let reserved = slots.try_reserve_exact(capacity).is_ok();
        if reserved {
            slots.resize(capacity, None);
            self.slots = slots.into_boxed_slice();
        }
        reserved
    }
}

impl<T> Ring<T> {
    pub(crate) fn len(&self) -> u32 {
        self.len
    }
    /// Pushes need no memory.
    pub(crate) fn is_allocated(&self) -> bool {
        !self.slots.is_empty()
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
    pub(crate) fn is_full(&self) -> bool {
        self.len == self.capacity
    }
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }
    /// Position of the entry `index` places after the oldest.
    pub(crate) fn position(&self, index: u32) -> u32 {
        let position = u64::from(self.head) + u64::from(index);
        let capacity = u64::from(self.capacity());
        (if position < capacity { position } else { position - capacity }) as u32
    }
    /// Oldest entry.
    pub(crate) fn front(&self) -> Option<&T> {
        self.slots.get(self.head as usize)?.as_ref()
    }
    /// Takes the oldest entry out.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let entry = self.slots.get_mut(self.head as usize)?.take()?;
        self.head = self.position(1);
        self.len -= 1;
        Some(entry)
    }
    /// The entry at a position, if there is one.
    pub(crate) fn get_mut(&mut self, position: u32) -> Option<&mut T> {
        self.slots.get_mut(position as usize)?.as_mut()
    }
    /// All entries, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len).filter_map(|i| self.slots[self.position(i) as usize].as_ref())
    }
    /// Drops all entries.
    pub(crate) fn clear(&mut self) {
        while self.pop().is_some() {}
        self.head = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::Ring;

    #[test]
    fn wraps_and_refuses_when_full() {
        let mut ring = Ring::new(3);
        for round in 0..10u32 {
            assert_eq!(ring.push(round), Some(round * 2 % 3));
            assert_eq!(ring.push(round + 100), Some((round * 2 + 1) % 3));
            assert_eq!(ring.iter().copied().sum::<u32>(), 2 * round + 100);
            assert_eq!(ring.pop(), Some(round));
            assert_eq!(ring.front(), Some(&(round + 100)));
            assert_eq!(ring.pop(), Some(round + 100));
        }
        assert!(ring.push(1).and(ring.push(2)).and(ring.push(3)).is_some());
        assert_eq!(ring.push(4), None);
        ring.clear();
        assert!(ring.is_empty() && ring.pop().is_none());
    }

    #[test]
    fn capacity_zero_holds_one() {
        let mut ring = Ring::new(0);
        assert_eq!((ring.push(7), ring.push(8)), (Some(0), None));
    }
}
