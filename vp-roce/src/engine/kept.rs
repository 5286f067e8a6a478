//! Queue pairs that keep an acknowledgement for a request which their consumer will probably post soon, or posts for
//! others, so that all leave in one system call.
//!
//! Owner: the engine. What is kept leaves with that request, at the next poll of any thread, or when the engine's
//! thread wakes up. So it is kept only while that thread sleeps for a short time, or will look here before it sleeps:
//! it announces that it sleeps for long, *then* looks here; a thread adds a queue pair, *then* looks whether that was
//! announced. Both execute a sequentially consistent fence between the two steps, so at least one sees the other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};

use kal_os::lock;

use super::Served;
use crate::tuning::FOLLOWS_US;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Kept {
    qps: Mutex<Vec<Arc<dyn Served>>>,
    /// Whether there are any; so that polls take no lock.
    any: AtomicBool,
    /// When the first of them was added, in microseconds of the engine's clock.
    since: AtomicU64,
    /// Some were added since the engine's thread last went to sleep.
    added: AtomicBool,
    /// The engine's thread sleeps for long.
    unattended: AtomicBool,
}

impl Kept {
    /// Whether acknowledgements may be kept.
    pub(super) fn may_keep(&self) -> bool {
        !self.unattended.load(Ordering::Relaxed)
    }

    /// A queue pair keeps one. Returns false if the caller must [`Kept::flush`].
    pub(super) fn add(&self, qp: &Arc<dyn Served>, now: u64) -> bool {
        let mut qps = lock(&self.qps);
        if qps.try_reserve(1).is_err() {
            drop(qps);
            qp.settle(false);
            return true;
        }
        if qps.is_empty() {
            self.since.store(now, Ordering::Relaxed);
        }
        qps.push(qp.clone());
        self.any.store(true, Ordering::Relaxed);
        drop(qps);
        self.added.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.may_keep()
    }

    /// Has all of them send what they keep. Called without locks.
    pub(super) fn flush(&self) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let mut qps = lock(&self.qps);
        self.any.store(false, Ordering::Relaxed);
        let all = std::mem::take(&mut *qps);
        drop(qps);
        for qp in all {
            qp.settle(false);
        }
    }

    /// The same for the engine's thread, which leaves what was added just now to the consumer.
    pub(super) fn flush_late(&self, now: u64) {
        if now.saturating_sub(self.since.load(Ordering::Relaxed)) > FOLLOWS_US {
            self.flush();
        }
    }

    /// The engine's thread goes to sleep, for long if it may. Returns false if it must not.
    pub(super) fn begin_sleep(&self) -> bool {
        if self.added.swap(false, Ordering::Relaxed) {
            return false;
        }
        self.unattended.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let long = !self.any.load(Ordering::Relaxed);
        self.unattended.store(long, Ordering::Relaxed);
        long
    }

    /// It is awake, and looks here before it sleeps again.
    pub(super) fn end_sleep(&self) {
        self.unattended.store(false, Ordering::Relaxed);
    }
}
