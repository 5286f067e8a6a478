//! Lifetime of objects: one word that counts the users of an object and has a bit for whether it is closed.
//!
//! Each object owns its [`Life`]; users hold an [`InUse`]. Any thread; no lock.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::error::{Error, Object, Result};

const CLOSED: u32 = u32::MAX;

/// Number of users, or closed.
#[derive(Debug)]
pub(crate) struct Life {
    object: Object,
    users: AtomicU32,
}

impl Life {
    pub(crate) fn new(object: Object) -> Self {
        Self { object, users: AtomicU32::new(0) }
    }

    /// Closes the object if it has no users. Exactly one caller gets `Ok`.
    pub(crate) fn close(&self) -> Result<()> {
        let swap = self.users.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire);
        match swap {
            Ok(_) => Ok(()),
            Err(CLOSED) => Err(Error::Closed(self.object)),
            Err(users) => Err(Error::InUse { object: self.object, users }),
        }
    }

    /// Undoes a `close` whose provider call was refused.
    pub(crate) fn reopen(&self) {
        self.users.store(0, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.users.load(Ordering::Acquire) == CLOSED
    }

    /// The number of users.
    pub(crate) fn users(&self) -> u32 {
        match self.users.load(Ordering::Acquire) {
            CLOSED => 0,
            users => users,
        }
    }

    fn enter(&self) -> Result<()> {
        let mut users = self.users.load(Ordering::Relaxed);
        loop {
            if users == CLOSED {
                return Err(Error::Closed(self.object));
            }
            let next = users + 1;
            match self.users.compare_exchange_weak(users, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(now) => users = now,
            }
        }
    }

    fn remove_user(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An object that has a [`Life`].
pub(crate) trait Living {
    fn life(&self) -> &Life;
}

/// One use of an object: until it is released or dropped, the object cannot be closed.
pub(crate) struct InUse<T: Living> {
    object: Arc<T>,
    released: AtomicBool,
}

impl<T: Living> InUse<T> {
    pub(crate) fn new(object: &Arc<T>) -> Result<Self> {
        object.life().enter()?;
        Ok(Self { object: object.clone(), released: AtomicBool::new(false) })
    }

    /// Ends the use: the object may be closed now, but this still refers to it.
    pub(crate) fn release(&self) {
        if !self.released.swap(true, Ordering::AcqRel) {
            self.object.life().remove_user();
        }
    }

    /// The object itself.
    pub(crate) fn arc(&self) -> &Arc<T> {
        &self.object
    }
}

impl<T: Living> Deref for InUse<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T: Living> Drop for InUse<T> {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing(Life);
    impl Living for Thing {
        fn life(&self) -> &Life {
            &self.0
        }
    }

    #[test]
    fn closes_once_and_only_when_unused() {
        let thing = Arc::new(Thing(Life::new(Object::Pz)));
        let hold = InUse::new(&thing).unwrap();
        let second = InUse::new(&thing).unwrap();
        assert!(matches!(thing.0.close(), Err(Error::InUse { users: 2, .. })));
        drop(second);
        hold.release();
        hold.release();
        thing.0.close().unwrap();
        drop(hold);
        assert!(matches!(thing.0.close(), Err(Error::Closed(Object::Pz))));
        assert!(InUse::new(&thing).is_err());
        thing.0.reopen();
        assert!(InUse::new(&thing).is_ok());
    }
}
