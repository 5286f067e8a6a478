//! Counters of unacknowledged events: the object that they are about is not destroyed before they are
//! acknowledged (ibv_ack_cq_events(3), ibv_get_async_event(3), rdma_ack_cm_event(3)).
//!
//! One per object and kind of event. Readers count up, acknowledgers down, the destroying call waits; as
//! in the interface, only the application bounds that wait.

use std::sync::{Condvar, Mutex};

use kal_os::lock;

/// The unacknowledged events of one object.
#[derive(Default)]
pub struct Acks {
    counts: Mutex<Counts>,
    done: Condvar,
}

#[derive(Default)]
struct Counts {
    unacked: u64,
    /// Threads in [`Acks::wait`]: mostly none, and to wake them is a system call.
    waiting: u32,
}

impl Acks {
    /// An event was returned to the application.
    pub fn given(&self) {
        lock(&self.counts).unacked += 1;
    }

    /// The application acknowledged this many events. More than were returned count as all.
    pub fn acked(&self, events: u64) {
        let mut counts = lock(&self.counts);
        counts.unacked = counts.unacked.saturating_sub(events);
        if counts.unacked == 0 && counts.waiting != 0 {
            self.done.notify_all();
        }
    }

    /// Waits until all are acknowledged.
    pub fn wait(&self) {
        let mut counts = lock(&self.counts);
        counts.waiting += 1;
        while counts.unacked > 0 {
            counts = self.done.wait(counts).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        counts.waiting -= 1;
    }
}
