//! The table of handles, from number to object; looking one up takes no lock.
//!
//! A handle is `generation << 32 | slot + 1`, passed to C as an opaque pointer. A slot holds its
//! object and generation behind one atomic pointer ([`arc_swap`]): looking one up takes no lock and
//! writes nothing that other endpoints share. Slots come in chunks that are never moved or freed;
//! making and freeing handles takes a mutex. Any thread.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::{ArcSwapOption, Guard};
use ual::vp_api::room;

/// Slots of the first chunk; each further chunk has as many as all before it together.
const FIRST: usize = 256;
/// Chunks: 2^30 slots.
const CHUNKS: usize = 23;

/// What a slot holds.
pub(crate) struct Entry<T> {
    generation: u32,
    /// The object.
    pub(crate) object: T,
}

type Slot<T> = ArcSwapOption<Entry<T>>;

/// A found object; keeps it alive while it is used.
pub(crate) type Found<T> = Guard<Option<Arc<Entry<T>>>>;

/// The table.
pub(crate) struct HandleTable<T> {
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    free: Mutex<Free>,
}

struct Free {
    slots: Vec<u32>,
    /// Slots used so far.
    used: u32,
    generation: u32,
}

/// Why an object gets no handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// All are in use.
    Handles,
    /// There is no memory for more.
    Memory,
}

/// A handle as a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Raw(u64);

impl Raw {
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }

    fn compose(generation: u32, slot: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(slot + 1))
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// The slot: it identifies the object in work request ids. At most 30 bits.
    pub(crate) fn slot(self) -> Option<u32> {
        (self.0 as u32).checked_sub(1)
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl<T> HandleTable<T> {
    pub(crate) const fn new() -> Self {
        let free = Free { slots: Vec::new(), used: 0, generation: 0 };
        Self { chunks: [const { OnceLock::new() }; CHUNKS], free: Mutex::new(free) }
    }

    /// Stores an object under a new handle, from which `object` makes it.
    pub(crate) fn insert(&self, object: impl FnOnce(Raw) -> T) -> Result<Raw, Full> {
        let mut free = self.free();
        let slot = match free.slots.pop() {
            Some(slot) => slot,
            None => self.next(&mut free)?,
        };
        // Never 0, so that no handle is a small number.
        free.generation = free.generation.checked_add(1).unwrap_or(1);
        let generation = free.generation;
        let raw = Raw::compose(generation, slot);
        let (chunk, index) = place(slot);
        let place = self.chunks[chunk].get().and_then(|slots| slots.get(index));
        place
            .ok_or(Full::Handles)?
            .store(Some(Arc::new(Entry { generation, object: object(raw) })));
        Ok(raw)
    }

    /// A slot that was never used; there is memory for it, and for its entry in the list of free ones.
    fn next(&self, free: &mut Free) -> Result<u32, Full> {
        let slot = free.used;
        let (chunk, _) = place(slot);
        let chunk = self.chunks.get(chunk).map(|place| (place, len_of(chunk)));
        let (place, len) = chunk.ok_or(Full::Handles)?;
        free.slots.try_reserve(slot as usize + 1).map_err(|_| Full::Memory)?;
        if place.get().is_none() {
            let mut slots = room::list("handles", len).map_err(|_| Full::Memory)?;
            slots.extend((0..len).map(|_| Slot::empty()));
            // Under the lock: no other thread sets it.
            let _ = place.set(slots.into_boxed_slice());
        }
        free.used = slot + 1;
        Ok(slot)
    }

    /// The object of a slot, whatever its generation.
    #[inline]
    pub(crate) fn at(&self, slot: u32) -> Option<Found<T>> {
        let (chunk, index) = place(slot);
        let found = self.chunks.get(chunk)?.get()?[index].load();
        found.is_some().then_some(found)
    }

    /// The object of a handle, unless it is stale.
    #[inline]
    pub(crate) fn get(&self, raw: Raw) -> Option<Found<T>> {
        let found = self.at(raw.slot()?)?;
        let live = found.as_ref().is_some_and(|entry| entry.generation == raw.generation());
        live.then_some(found)
    }

    /// All objects with their handles, without those that are inserted meanwhile. Allocates nothing.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Raw, Arc<Entry<T>>)> {
        let used = self.free().used;
        (0..used).filter_map(|slot| {
            let entry = self.at(slot)?.as_ref()?.clone();
            Some((Raw::compose(entry.generation, slot), entry))
        })
    }

    /// Takes the object out: exactly one caller gets it, and the handle is stale afterwards.
    pub(crate) fn remove(&self, raw: Raw) -> Option<Arc<Entry<T>>> {
        let mut free = self.free();
        self.get(raw)?;
        let slot = raw.slot()?;
        let (chunk, index) = place(slot);
        let taken = self.chunks[chunk].get()?[index].swap(None)?;
        free.slots.push(slot);
        Some(taken)
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        // `object` is the only caller's code under the lock, and makes plain values.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Chunk and index of a slot.
#[inline]
fn place(slot: u32) -> (usize, usize) {
    let slot = slot as usize;
    if slot < FIRST {
        return (0, slot);
    }
    // Chunk n > 0 holds the slots from FIRST << (n - 1) on.
    let chunk = (slot / FIRST).ilog2() as usize + 1;
    (chunk, slot - (FIRST << (chunk - 1)))
}

/// Slots of a chunk.
fn len_of(chunk: usize) -> usize {
    if chunk == 0 { FIRST } else { FIRST << (chunk - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_fill_the_chunks_without_gap_or_overlap() {
        let mut expected = (0, 0);
        for slot in 0..5000 {
            assert_eq!(place(slot), expected);
            expected.1 += 1;
            if expected.1 == len_of(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    #[test]
    fn a_stale_handle_never_names_the_next_object() {
        let table = HandleTable::new();
        let first = table.insert(|_| "first").unwrap();
        assert_eq!(table.get(first).unwrap().as_ref().unwrap().object, "first");
        assert_eq!(table.remove(first).unwrap().object, "first");
        assert!(table.remove(first).is_none());
        let second = table.insert(|_| "second").unwrap();
        assert_eq!(first.slot(), second.slot());
        assert!(table.get(first).is_none());
        assert!(table.get(second).is_some());
    }

    #[test]
    fn any_number_may_be_tried() {
        let table = HandleTable::new();
        let live = table.insert(|raw| raw).unwrap();
        assert_eq!(table.get(live).unwrap().as_ref().unwrap().object, live);
        for number in [0, 1, u64::MAX, 1 << 32, live.number() + 1, live.number() | 1 << 63] {
            assert!(table.get(Raw::new(number)).is_none(), "{number:#x}");
        }
    }

    #[test]
    fn many_objects_keep_their_names() {
        let table = HandleTable::new();
        let all: Vec<_> = (0..3000).map(|n| table.insert(|_| n).unwrap()).collect();
        for (n, raw) in all.iter().enumerate() {
            assert_eq!(table.get(*raw).unwrap().as_ref().unwrap().object, n);
        }
        assert!(table.remove(all[7]).is_some());
        let left: Vec<_> = table.iter().map(|(raw, _)| raw).collect();
        assert_eq!(left, [&all[..7], &all[8..]].concat());
    }
}
