//! Counters of each object, and the sums of the counters of destroyed objects.
//!
//! Each object owns its counters; any thread writes them, without locks. The registry of an RNIC, which its hook
//! owns, finds them. The registry's lock is taken when objects are created and destroyed, and by readers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{ObjectStats, Snapshot, VerbStats, as_many};
use crate::hook::Names;
use crate::verb::{Object, Verb};

/// Counters of one verb of one object. Each is exact, but they are not read at the same instant.
#[derive(Default)]
pub(crate) struct Tally {
    calls: AtomicU64,
    refused: AtomicU64,
    items: AtomicU64,
    failed: AtomicU64,
    timed: AtomicU64,
    total_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// Adds an amount, unless it is 0: the branch saves an atomic addition.
fn add(counter: &AtomicU64, amount: usize) {
    if amount != 0 {
        counter.fetch_add(amount as u64, Ordering::Relaxed);
    }
}

impl Tally {
    /// Counts a call; returns its number, counted from 0.
    pub(super) fn call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn items(&self, items: usize) {
        add(&self.items, items);
    }

    pub(super) fn refuse(&self, items: usize) {
        add(&self.refused, 1);
        add(&self.items, items);
    }

    pub(super) fn complete(&self, polled: usize, failed: usize) {
        add(&self.items, polled);
        add(&self.failed, failed);
    }

    pub(super) fn time(&self, ns: u64) {
        self.timed.fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
        self.max_ns.fetch_max(ns, Ordering::Relaxed);
    }

    fn read(&self, verb: Verb) -> VerbStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        VerbStats {
            verb: verb.name(),
            calls: read(&self.calls),
            refused: read(&self.refused),
            items: read(&self.items),
            failed: read(&self.failed),
            timed: read(&self.timed),
            total_ns: read(&self.total_ns),
            max_ns: read(&self.max_ns),
        }
    }
}

/// The counters of one object.
pub(crate) struct Counters {
    object: Object,
    /// The first verb of this kind of object: the verb of `tallies[0]`.
    first: usize,
    tallies: Box<[Tally]>,
    registry: Weak<Registry>,
}

impl Counters {
    /// The counters of one of the object's verbs.
    pub(super) fn tally(&self, verb: Verb) -> &Tally {
        &self.tallies[verb as usize - self.first]
    }

    fn read(&self) -> Vec<VerbStats> {
        let verbs = Verb::of(self.object.kind).zip(&self.tallies);
        verbs.map(|(verb, tally)| tally.read(verb)).filter(|stats| stats.calls > 0).collect()
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            let mut objects = registry.lock();
            objects.open.remove(&self.object);
            sum(&mut objects.closed, &self.read());
        }
    }
}

#[derive(Default)]
struct Objects {
    open: BTreeMap<Object, Weak<Counters>>,
    closed: Vec<VerbStats>,
}

/// The counters of the objects of one RNIC.
pub(crate) struct Registry {
    provider: String,
    device: String,
    objects: Mutex<Objects>,
}

impl Registry {
    pub(super) fn new(names: Names<'_>) -> Self {
        let Names { provider, device } = names;
        Self { provider: provider.to_owned(), device: device.to_owned(), objects: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counters for an object.
    pub(super) fn open(registry: &Arc<Self>, object: Object) -> Arc<Counters> {
        let first = Verb::of(object.kind).next().map_or(0, |verb| verb as usize);
        let tallies = Verb::of(object.kind).map(|_| Tally::default()).collect();
        let counters =
            Arc::new(Counters { object, first, tallies, registry: Arc::downgrade(registry) });
        registry.lock().open.insert(object, Arc::downgrade(&counters));
        counters
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let (mut verbs, open) = {
            let objects = self.lock();
            let open = as_many(objects.open.len(), objects.open.values().filter_map(Weak::upgrade));
            (objects.closed.clone(), open)
        };
        // Dropped without the lock: the last owner of counters closes them, and that may be this function.
        let read = |counters: &Arc<Counters>| ObjectStats {
            object: counters.object,
            verbs: counters.read(),
        };
        let objects = as_many(open.len(), open.iter().map(read));
        objects.iter().for_each(|stats| sum(&mut verbs, &stats.verbs));
        Snapshot { provider: self.provider.clone(), device: self.device.clone(), verbs, objects }
    }
}

fn sum(sums: &mut Vec<VerbStats>, more: &[VerbStats]) {
    for stats in more {
        match sums.iter_mut().find(|sum| sum.verb == stats.verb) {
            Some(sum) => sum.add(stats),
            None => sums.push(*stats),
        }
    }
}
