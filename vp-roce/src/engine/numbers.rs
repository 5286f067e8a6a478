//! Queue pair numbers (QPN) of this process, by which peers address its queue pairs: 4 bits of its slot, 20 random ones.
//!
//! Owner: the engine. Each connection of a queue pair has its own number. Lookups are on the data path, under a
//! shared lock.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use vp_api::MULTICAST_QPN;

use super::{Served, steering};

/// The table.
pub(crate) struct Numbers {
    /// Of this process, since it has one.
    slot: AtomicU8,
    key: RandomState,
    counter: AtomicU64,
    all: RwLock<BTreeMap<u32, Weak<dyn Served>>>,
}

/// Reserved numbers: the management queue pairs, and multicast.
const RESERVED: [u32; 3] = [0, 1, MULTICAST_QPN];

impl Numbers {
    pub(super) fn new() -> Self {
        let (slot, counter) = (AtomicU8::new(0), AtomicU64::new(0));
        Self { slot, key: RandomState::new(), counter, all: RwLock::default() }
    }

    /// The process takes this slot; called before it has sockets or numbers.
    pub(super) fn begin(&self, slot: u8) {
        self.slot.store(slot, Ordering::Release);
    }

    fn slot(&self) -> u8 {
        self.slot.load(Ordering::Acquire)
    }

    /// A random id of an exchange or a lookup, by which the kernel finds this process.
    pub(crate) fn id(&self) -> u32 {
        steering::id(self.slot(), self.random())
    }

    /// A random number.
    pub(crate) fn random(&self) -> u32 {
        self.key.hash_one(self.counter.fetch_add(1, Ordering::Relaxed)) as u32
    }

    /// Gives a queue pair a number that no other has. There are far fewer queue pairs than numbers, so one is
    /// found. The process has its slot.
    pub(crate) fn assign(&self, qp: Weak<impl Served + 'static>) -> u32 {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        loop {
            let number = steering::number(self.slot(), self.random());
            if !RESERVED.contains(&number) && !all.contains_key(&number) {
                all.insert(number, qp);
                return number;
            }
        }
    }

    /// Frees the number.
    pub(crate) fn release(&self, number: u32) {
        self.all.write().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    /// The queue pair with this number.
    pub(crate) fn find(&self, number: u32) -> Option<Arc<dyn Served>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).get(&number)?.upgrade()
    }
}
