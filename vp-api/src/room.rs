//! Fallible allocation of lists whose length a caller chooses: lack of memory is an error and does not end the
//! process. No state.

use crate::{VpError, VpResult, VpStatus};

/// An empty list that takes `capacity` elements without allocating. `what` names the elements in the error.
///
/// # Errors
/// [`VpStatus::InsufficientResources`]: there is not enough memory.
pub fn list<T>(what: &str, capacity: usize) -> VpResult<Vec<T>> {
    try_list(capacity).ok_or_else(|| none::<T>(what, capacity))
}

/// As [`list`], without an error text: `None` if there is no memory.
pub fn try_list<T>(capacity: usize) -> Option<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(capacity).ok()?;
    Some(list)
}

/// As [`filled`], without an error text: `None` if there is no memory.
pub fn try_filled<T: Clone>(len: usize, value: T) -> Option<Box<[T]>> {
    let mut filled = try_list(len)?;
    filled.resize(len, value);
    Some(filled.into_boxed_slice())
}

/// Appends `value` to a list that grows with the objects of callers.
///
/// # Errors
/// As [`list`].
pub fn push<T>(list: &mut Vec<T>, what: &str, value: T) -> VpResult<()> {
    list.try_reserve(1).map_err(|_| none::<T>(what, list.len() + 1))?;
    list.push(value);
    Ok(())
}

/// A list of `len` copies of `value`.
///
/// # Errors
/// As [`list`].
pub fn filled<T: Clone>(what: &str, len: usize, value: T) -> VpResult<Box<[T]>> {
    try_filled(len, value).ok_or_else(|| none::<T>(what, len))
}

/// A slab: values that are removed in any order, by small numbers. Removing a value does not allocate.
#[derive(Clone, Debug)]
pub struct Slots<T> {
    places: Vec<Option<T>>,
    /// Free slots; has room for all of them.
    free: Vec<u32>,
}

impl<T> Slots<T> {
    /// Creates a slab for `capacity` values, which it takes without allocating; `what` names them in the error.
    ///
    /// # Errors
    /// As [`list`].
    pub fn new(what: &str, capacity: usize) -> VpResult<Self> {
        Ok(Self { places: list(what, capacity)?, free: list(what, capacity)? })
    }

    /// Makes sure that there is memory for `more` values. Called before they are added.
    ///
    /// # Errors
    /// [`VpStatus::InsufficientResources`] if they exceed the capacity and there is no memory.
    #[inline]
    pub fn make_room(&mut self, more: usize) -> Result<(), VpStatus> {
        let places = self.used() + more;
        let most = self.places.capacity().min(self.free.capacity());
        if places > most { self.grow(places) } else { Ok(()) }
    }

    #[cold]
    fn grow(&mut self, places: usize) -> Result<(), VpStatus> {
        let none = |_| VpStatus::InsufficientResources;
        self.places.try_reserve(places.saturating_sub(self.places.len())).map_err(none)?;
        let places = self.places.capacity();
        self.free.try_reserve(places.saturating_sub(self.free.len())).map_err(none)
    }

    /// Adds a value; returns its number.
    pub fn add(&mut self, value: T) -> u32 {
        if let Some(number) = self.free.pop()
            && let Some(place) = self.places.get_mut(number as usize)
        {
            *place = Some(value);
            return number;
        }
        self.places.push(Some(value));
        self.places.len() as u32 - 1
    }

    /// Removes a value; `None` if it was removed before.
    pub fn take(&mut self, number: u32) -> Option<T> {
        let value = self.places.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(value)
    }

    /// The number of values.
    pub fn used(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

/// The error for a list of `len` elements for which there is not enough memory.
#[cold]
pub fn none<T>(what: &str, len: usize) -> VpError {
    let octets = len.saturating_mul(size_of::<T>());
    VpError::new(
        VpStatus::InsufficientResources,
        format!(
            "no memory for {octets} octets: {len} {what}; ask for fewer, close what is not used, or \
             raise the limit on the process's memory"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oversized_value_is_an_error_with_its_size() {
        let error = filled("places of the queue", usize::MAX / 32, [0u64; 2]).unwrap_err();
        assert_eq!(error.status, VpStatus::InsufficientResources);
        assert!(error.detail.contains(": 576460752303423487 places of the queue;"), "{error}");
        // More than an address space, but the numbers do not overflow.
        assert!(list::<u8>("it", 1 << 62).is_err());
    }

    #[test]
    fn slots_are_reused_and_stale_numbers_refused() {
        let mut slots = Slots::new("it", 2).unwrap();
        let (a, b) = (slots.add(10), slots.add(11));
        assert_eq!((slots.take(a), slots.take(a)), (Some(10), None));
        assert_eq!(slots.add(12), a);
        assert_eq!((slots.take(b), slots.used()), (Some(11), 1));
        assert_eq!(slots.take(99), None);
        slots.make_room(100).unwrap();
        let room = slots.free.capacity();
        let numbers: Vec<u32> = (0..100).map(|n| slots.add(n)).collect();
        assert!(numbers.into_iter().all(|number| slots.take(number).is_some()));
        assert_eq!((slots.used(), slots.free.capacity()), (1, room));
        assert_eq!(slots.make_room(1 << 60), Err(VpStatus::InsufficientResources));
    }

    #[test]
    fn a_value_that_fits_is_copied() {
        assert_eq!(filled("it", 3, 7u8).unwrap()[..], [7, 7, 7]);
        assert_eq!(list::<u32>("it", 9).unwrap().capacity(), 9);
    }
}
