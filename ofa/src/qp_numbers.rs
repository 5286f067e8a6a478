//! Map from the provider's ids of queue pairs to the numbers that programs know, read for every
//! completion without a lock.
//!
//! One table per adapter, in pieces that are allocated when first needed and kept. Ids count up, so a
//! later queue pair uses an entry again; two at once in the same entry are rare, and the second one is
//! in a map. Written when a queue pair is created and destroyed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use kal_os::lock;
use vp_api::QpId;

const LEAF: usize = 1 << 10;
const LEAVES: usize = 1 << 10;

/// The id in the upper half, the number in the lower; 0: free.
type Leaf = Box<[AtomicU64]>;

/// The numbers of one adapter.
pub(crate) struct QpNumbers {
    leaves: Box<[OnceLock<Leaf>]>,
    crowded: Mutex<BTreeMap<u32, u32>>,
}

fn entry(id: QpId, number: u32) -> u64 {
    u64::from(id.0) << 32 | u64::from(number)
}

fn id_of(entry: u64) -> u32 {
    (entry >> 32) as u32
}

impl QpNumbers {
    pub(crate) fn new() -> Self {
        let leaves = (0..LEAVES).map(|_| OnceLock::new()).collect();
        Self { leaves, crowded: Mutex::default() }
    }

    fn slot(&self, id: QpId) -> &AtomicU64 {
        let (leaf, at) = ((id.0 as usize / LEAF) % LEAVES, id.0 as usize % LEAF);
        let make = || (0..LEAF).map(|_| AtomicU64::new(0)).collect();
        &self.leaves[leaf].get_or_init(make)[at]
    }

    pub(crate) fn set(&self, id: QpId, number: u32) {
        let new = entry(id, number);
        let order = Ordering::AcqRel;
        if self.slot(id).compare_exchange(0, new, order, Ordering::Relaxed).is_err() {
            lock(&self.crowded).insert(id.0, number);
        }
    }

    pub(crate) fn remove(&self, id: QpId) {
        let slot = self.slot(id);
        if id_of(slot.load(Ordering::Acquire)) == id.0 {
            slot.store(0, Ordering::Release);
        } else {
            lock(&self.crowded).remove(&id.0);
        }
    }

    /// The number of a queue pair; 0 if it is unknown.
    #[inline]
    pub(crate) fn get(&self, id: QpId) -> u32 {
        let (leaf, at) = ((id.0 as usize / LEAF) % LEAVES, id.0 as usize % LEAF);
        let found = self.leaves[leaf].get().map_or(0, |leaf| leaf[at].load(Ordering::Acquire));
        if id_of(found) == id.0 { found as u32 } else { self.get_crowded(id) }
    }

    #[cold]
    fn get_crowded(&self, id: QpId) -> u32 {
        lock(&self.crowded).get(&id.0).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_share_an_entry_are_distinguished() {
        let numbers = QpNumbers::new();
        let (first, second) = (QpId(7), QpId(7 + (LEAF * LEAVES) as u32));
        assert_eq!(numbers.get(first), 0);
        numbers.set(first, 70);
        numbers.set(second, 80);
        assert_eq!([first, second].map(|id| numbers.get(id)), [70, 80]);
        numbers.remove(first);
        assert_eq!([first, second].map(|id| numbers.get(id)), [0, 80]);
        numbers.remove(second);
        assert_eq!(numbers.get(second), 0);
    }
}
