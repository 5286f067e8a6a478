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
    unacked: Mutex<u64>,
    done: Condvar,
}

impl Acks {
    /// An event was returned to the application.
    pub fn given(&self) {
        *lock(&self.unacked) += 1;
    }

    /// The application acknowledged this many events. More than were returned count as all.
    pub fn acked(&self, events: u64) {
        let mut unacked = lock(&self.unacked);
        *unacked = unacked.saturating_sub(events);
        if *unacked == 0 {
            self.done.notify_all();
        }
    }

    /// Waits until all are acknowledged.
    pub fn wait(&self) {
        let mut unacked = lock(&self.unacked);
        while *unacked > 0 {
            unacked = self.done.wait(unacked).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}
