//! Service requests to other machines that have no reply yet, by token: one table per adapter, behind a
//! mutex.
//!
//! A caller adds its request before it gives it to the provider. The manager removes it when the reply
//! arrives, or the caller when it cancels it. If a peer dies the provider reports it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::face::ReplySink;

/// The table.
#[derive(Default)]
pub(crate) struct ServiceQueries {
    next: AtomicU64,
    pending: Mutex<BTreeMap<u64, Weak<dyn ReplySink>>>,
}

impl ServiceQueries {
    /// A token for a service request or a listener; never used again.
    pub(crate) fn token(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<dyn ReplySink>>> {
        // Nothing panics while the lock is held.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, token: u64, sink: Weak<dyn ReplySink>) {
        self.pending().insert(token, sink);
    }

    /// Removes a request; returns the receiver of the reply.
    pub(crate) fn finish(&self, token: u64) -> Option<Arc<dyn ReplySink>> {
        self.pending().remove(&token)?.upgrade()
    }

    /// Removes the requests of a sink that cancels; returns their tokens.
    pub(crate) fn take_of(&self, sink: &dyn ReplySink) -> Vec<u64> {
        let mut taken = Vec::new();
        self.pending().retain(|token, asked| {
            let of_it = std::ptr::addr_eq(asked.as_ptr(), std::ptr::from_ref(sink));
            if of_it {
                taken.push(*token);
            }
            !of_it
        });
        taken
    }
}
