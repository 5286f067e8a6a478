//! Tables of verbs objects by id, with a use count for each object.
//!
//! Owner: the RNIC, one table per kind. Used only by the privileged verbs, never on the data path. The tables are
//! B-trees, which grow by small allocations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use vp_api::{VpError, VpResult, VpStatus};

/// Objects of one kind. Ids are assigned in increasing order and reused only after all 2^32 - 1 were used.
pub struct Objects<T> {
    what: &'static str,
    max: usize,
    table: RwLock<Table<T>>,
}

struct Table<T> {
    /// The next id.
    next: u32,
    /// Objects that are being built, which count like those of the map.
    coming: usize,
    map: BTreeMap<u32, Entry<T>>,
}

struct Entry<T> {
    object: Arc<T>,
    users: Arc<AtomicU32>,
}

/// Prevents the removal of an object, until dropped.
#[derive(Debug)]
pub struct InUse {
    users: Arc<AtomicU32>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<T> Objects<T> {
    /// `what` names the kind in messages; `max` is the maximum number of objects.
    pub fn new(what: &'static str, max: u32) -> Self {
        let table = Table { next: 1, coming: 0, map: BTreeMap::new() };
        Self { what, max: max as usize, table: RwLock::new(table) }
    }

    /// Adds an object, which `make` builds for its id.
    pub fn insert(&self, make: impl FnOnce(u32) -> VpResult<Arc<T>>) -> VpResult<Arc<T>> {
        let id = self.reserve()?;
        let made = make(id);
        let mut table = self.write();
        table.coming -= 1;
        let object = made?;
        let entry = Entry { object: object.clone(), users: Arc::default() };
        table.map.insert(id, entry);
        Ok(object)
    }

    /// An id for an object that is coming.
    fn reserve(&self) -> VpResult<u32> {
        let mut table = self.write();
        if table.map.len() + table.coming >= self.max {
            let detail = format!("all {} {}s of the device are in use", self.max, self.what);
            return Err(VpError::new(VpStatus::InsufficientResources, detail));
        }
        table.coming += 1;
        loop {
            let id = table.next;
            table.next = id.wrapping_add(1);
            if id != 0 && !table.map.contains_key(&id) {
                return Ok(id);
            }
        }
    }

    /// Returns the object, which cannot be removed until the guard is dropped.
    pub fn hold(&self, id: u32) -> VpResult<(Arc<T>, InUse)> {
        let table = self.read();
        let entry = table.map.get(&id).ok_or_else(|| self.unknown(id))?;
        // Incremented under the lock, so that `remove` sees it.
        entry.users.fetch_add(1, Ordering::AcqRel);
        Ok((entry.object.clone(), InUse { users: entry.users.clone() }))
    }

    /// Returns the object, which may be removed meanwhile.
    pub fn get(&self, id: u32) -> VpResult<Arc<T>> {
        self.read().map.get(&id).map(|entry| entry.object.clone()).ok_or_else(|| self.unknown(id))
    }

    /// Removes an object that is not in use, if `check` allows it.
    pub fn remove(&self, id: u32, check: impl FnOnce(&T) -> VpResult<()>) -> VpResult<Arc<T>> {
        let map = &mut self.write().map;
        let entry = map.get(&id).ok_or_else(|| self.unknown(id))?;
        let users = entry.users.load(Ordering::Acquire);
        if users != 0 {
            let detail =
                format!("{} {id} is used by {users} other objects: destroy them first", self.what);
            return Err(VpError::new(VpStatus::InUse, detail));
        }
        check(&entry.object)?;
        map.remove(&id).map(|entry| entry.object).ok_or_else(|| self.unknown(id))
    }

    /// Removes all objects, used or not.
    pub fn drain(&self) -> Vec<Arc<T>> {
        std::mem::take(&mut self.write().map).into_values().map(|entry| entry.object).collect()
    }

    fn unknown(&self, id: u32) -> VpError {
        VpError::new(
            VpStatus::InvalidHandle,
            format!("there is no {} {id}, or it was destroyed", self.what),
        )
    }

    fn read(&self) -> RwLockReadGuard<'_, Table<T>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table<T>> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn ids_are_not_reused_and_stale_ones_are_errors() {
        let objects = Objects::new("thing", 2);
        let first = objects.insert(|id| Ok(Arc::new(id))).unwrap();
        let second = objects.insert(|id| Ok(Arc::new(id))).unwrap();
        assert_ne!(first, second);
        let full = objects.insert(|id| Ok(Arc::new(id))).unwrap_err();
        assert_eq!(full.status, VpStatus::InsufficientResources);
        objects.remove(*first, |_| Ok(())).unwrap();
        let third = objects.insert(|id| Ok(Arc::new(id))).unwrap();
        assert!(*third != *first && *third != *second);
        assert_eq!(objects.remove(*first, |_| Ok(())).unwrap_err().status, VpStatus::InvalidHandle);
    }

    // Neither 0, which names no object, nor an id in use.
    #[test]
    fn ids_start_again_after_the_last() {
        let objects = Objects::new("thing", 9);
        assert_eq!(objects.insert(|id| Ok(Arc::new(id))).as_deref(), Ok(&1));
        objects.write().next = u32::MAX;
        assert_eq!(objects.insert(|id| Ok(Arc::new(id))).as_deref(), Ok(&u32::MAX));
        assert_eq!(objects.insert(|id| Ok(Arc::new(id))).as_deref(), Ok(&2));
    }

    // All threads are between the reservation and the insertion at once.
    #[test]
    fn threads_that_insert_at_once_exceed_no_bound() {
        const MAX: u32 = 3;
        let (objects, building) = (Objects::new("thing", MAX), Barrier::new(8));
        let insert = || {
            let waits = objects.insert(|id| {
                building.wait();
                Ok(Arc::new(id))
            });
            if waits.is_err() {
                building.wait();
            }
            waits.is_ok()
        };
        let inserted = std::thread::scope(|scope| {
            let all = [(); 8].map(|()| scope.spawn(insert));
            all.into_iter().map(|thread| thread.join().unwrap()).filter(|ok| *ok).count()
        });
        assert_eq!(inserted, MAX as usize);
        assert!(objects.insert(|id| Ok(Arc::new(id))).is_err());
    }

    #[test]
    fn an_object_that_is_not_built_leaves_its_place() {
        let objects = Objects::<u32>::new("thing", 1);
        let none = VpError::new(VpStatus::Os, "not built");
        assert_eq!(objects.insert(|_| Err(none.clone())).unwrap_err(), none);
        assert!(objects.insert(|id| Ok(Arc::new(id))).is_ok());
    }

    #[test]
    fn an_object_in_use_stays() {
        let objects = Objects::new("thing", 2);
        let id = *objects.insert(|id| Ok(Arc::new(id))).unwrap();
        let (_, hold) = objects.hold(id).unwrap();
        assert_eq!(objects.remove(id, |_| Ok(())).unwrap_err().status, VpStatus::InUse);
        drop(hold);
        objects.remove(id, |_| Ok(())).unwrap();
    }
}
