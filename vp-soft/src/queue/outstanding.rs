//! Outstanding receives of a QP: receives that were taken from a queue and whose completions are not polled
//! (RDMAC 6.3); and the limit event on their number.
//!
//! There is one per QP that ever had a limit, shared with the CQ of its receives. The QP increments and arms under
//! its lock; pollers decrement. A dead peer's flushed receives count like others.

use crate::sync::{AtomicU32, Ordering};

/// The count and its one-shot limit.
#[derive(Default)]
pub struct OutstandingReceives {
    count: AtomicU32,
    /// Fires when more receives are outstanding; 0 means not armed.
    limit: AtomicU32,
}

impl OutstandingReceives {
    /// Counts a receive that a message took; returns true if the limit event is due.
    pub fn take(&self) -> bool {
        self.flush(1);
        self.is_due()
    }

    /// Counts receives that were flushed. A flush is not a message: the event stays armed.
    pub fn flush(&self, receives: u32) {
        self.count.fetch_add(receives, Ordering::Relaxed);
    }

    /// Counts receives whose completions were polled. Those taken before the counting began do not count.
    pub fn give_back(&self, receives: u32) {
        let less = |count: u32| Some(count.saturating_sub(receives));
        // It never fails: `less` always returns a number.
        let _ = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// All completions were removed from the CQ.
    pub fn clear(&self) {
        self.count.store(0, Ordering::Relaxed);
    }

    /// Arms the event, or disarms it with 0; returns true if it is due already.
    pub fn arm(&self, limit: u32) -> bool {
        self.limit.store(limit, Ordering::Relaxed);
        self.is_due()
    }

    /// The armed limit; 0 if not armed.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Takes the event if it is due. It fires once. // [VERBS-26]
    fn is_due(&self) -> bool {
        let limit = self.limit();
        let due = limit != 0 && self.count.load(Ordering::Relaxed) > limit;
        if due {
            self.limit.store(0, Ordering::Relaxed);
        }
        due
    }
}
