//! Tables of verbs objects by id, with a use count for each.
//!
//! Owner: the open device, one table per kind. Any thread; never the data path.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) use kal_os::lock;
use vp_api::{VpError, VpResult, VpStatus};

/// Objects of one kind. An id is reused only after all 2^32 - 1 ids were used.
pub(crate) struct ObjectTable<T> {
    what: &'static str,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    next: u32,
    map: BTreeMap<u32, (Arc<T>, Arc<AtomicU32>)>,
}

/// Keeps an object in its table.
pub(crate) struct InUse(Arc<AtomicU32>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<T> ObjectTable<T> {
    /// `what` names the kind in messages.
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, inner: Mutex::new(Inner { next: 1, map: BTreeMap::new() }) }
    }

    /// Reserves an id for [`Table::insert`].
    pub(crate) fn reserve(&self) -> u32 {
        let mut inner = lock(&self.inner);
        loop {
            let id = inner.next;
            inner.next = inner.next.wrapping_add(1);
            if id != 0 && !inner.map.contains_key(&id) {
                return id;
            }
        }
    }

    pub(crate) fn insert(&self, id: u32, object: Arc<T>) {
        lock(&self.inner).map.insert(id, (object, Arc::default()));
    }

    pub(crate) fn get(&self, id: u32) -> VpResult<Arc<T>> {
        lock(&self.inner).map.get(&id).map(|(object, _)| object.clone()).ok_or_else(|| self.no(id))
    }

    /// Returns the object, which is in use until the hold is dropped.
    pub(crate) fn hold(&self, id: u32) -> VpResult<(Arc<T>, InUse)> {
        let inner = lock(&self.inner);
        let (object, users) = inner.map.get(&id).ok_or_else(|| self.no(id))?;
        users.fetch_add(1, Ordering::AcqRel);
        Ok((object.clone(), InUse(users.clone())))
    }

    /// Removes an object that is not in use, if `end` can destroy it.
    pub(crate) fn remove(&self, id: u32, end: impl FnOnce(&T) -> VpResult<()>) -> VpResult<()> {
        let mut inner = lock(&self.inner);
        let (object, users) = inner.map.get(&id).ok_or_else(|| self.no(id))?;
        let users = users.load(Ordering::Acquire);
        if users != 0 {
            let what = self.what;
            let detail =
                format!("{what} {id} is used by {users} other objects: destroy them first");
            return Err(VpError::new(VpStatus::InUse, detail));
        }
        end(object)?;
        inner.map.remove(&id);
        Ok(())
    }

    /// All objects.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        lock(&self.inner).map.values().map(|(object, _)| object.clone()).collect()
    }

    fn no(&self, id: u32) -> VpError {
        let detail = format!("there is no {} {id}, or it was destroyed", self.what);
        VpError::new(VpStatus::InvalidHandle, detail)
    }
}

/// The error of calls on an object that was destroyed.
pub(crate) fn destroyed(what: &str) -> VpError {
    VpError::new(VpStatus::InvalidHandle, format!("the {what} was destroyed"))
}
