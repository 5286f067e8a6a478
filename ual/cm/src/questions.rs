//! Services that were asked and have not replied, by token: a table of one adapter behind a mutex.
//!
//! A caller adds its question before the provider hears of it; the manager takes it out when the reply is
//! there, or the caller when it gives up. A peer that dies does not reply; the provider says so.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::face::ReplySink;

/// See the module.
#[derive(Default)]
pub(crate) struct Questions {
    next: AtomicU64,
    asked: Mutex<BTreeMap<u64, Weak<dyn ReplySink>>>,
}

impl Questions {
    /// A token for a question or a listener; never used again.
    pub(crate) fn token(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn asked(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<dyn ReplySink>>> {
        // Nothing panics while the lock is held.
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, token: u64, sink: Weak<dyn ReplySink>) {
        self.asked().insert(token, sink);
    }

    /// Takes a question out; who gets the reply.
    pub(crate) fn finish(&self, token: u64) -> Option<Arc<dyn ReplySink>> {
        self.asked().remove(&token)?.upgrade()
    }

    /// Takes out the questions of one that gives up; their tokens.
    pub(crate) fn take_of(&self, sink: &dyn ReplySink) -> Vec<u64> {
        let mut taken = Vec::new();
        self.asked().retain(|token, asked| {
            let of_it = std::ptr::addr_eq(asked.as_ptr(), std::ptr::from_ref(sink));
            if of_it {
                taken.push(*token);
            }
            !of_it
        });
        taken
    }
}
