//! Map of objects by their id at the provider, held weakly. Off the data path.
//!
//! B-trees, which grow in small pieces; no object is dropped under a lock. Any thread.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use vp_api::room;

/// From id to object, and its number in the [`ual_cm::Sequence`]; the object keeps itself alive.
pub(crate) struct Map<K, T: ?Sized>(RwLock<BTreeMap<K, (Weak<T>, u64)>>);

impl<K: Ord, T: ?Sized> Map<K, T> {
    pub(crate) fn new() -> Self {
        Self(RwLock::default())
    }

    pub(crate) fn get(&self, id: K) -> Option<Arc<T>> {
        self.get_of(id, u64::MAX)
    }

    /// The object that the event with this number is about.
    pub(super) fn get_of(&self, id: K, number: u64) -> Option<Arc<T>> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        map.get(&id).filter(|(_, made)| *made < number)?.0.upgrade()
    }

    pub(super) fn add(&self, id: K, object: Weak<T>, made: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(id, (object, made));
    }

    pub(super) fn remove(&self, id: K) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// All of them; none if there is no memory for the list.
    pub(super) fn all(&self) -> Vec<(K, Arc<T>)>
    where
        K: Copy,
    {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut all = room::try_list(map.len()).unwrap_or_default();
        let most = all.capacity();
        let open = map.iter().filter_map(|(id, (object, _))| Some((*id, object.upgrade()?)));
        all.extend(open.take(most));
        all
    }
}
