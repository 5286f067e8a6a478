//! Interrupts threads that wait for a CQ. Destroying the CQ interrupts all of them.
//!
//! Owned by the CQ; any thread waits, interrupts and destroys. A wait that began before the CQ was destroyed is
//! always interrupted by the destruction. Peers have no influence. A CQ is not used again after it is destroyed.

use vp_api::VpStatus;

use crate::sync::{AtomicBool, AtomicU32, Ordering};

/// The interrupts of one CQ.
#[derive(Default)]
pub struct Interrupts {
    count: AtomicU32,
    ended: AtomicBool,
}

/// The number of interrupts before the wait.
#[derive(Clone, Copy, Debug)]
pub struct Before(u32);

impl Interrupts {
    /// Begins a wait.
    pub fn begin(&self) -> Result<Before, VpStatus> {
        // The order matters: `destroy` does the opposite, and first marks the end, then interrupts.
        let before = Before(self.count.load(Ordering::Acquire));
        self.check_alive().map(|()| before)
    }

    /// Whether an interrupt has come since the wait began.
    pub fn interrupted_since(&self, before: Before) -> bool {
        self.count.load(Ordering::Acquire) != before.0
    }

    /// Interrupts all waits that have begun.
    pub fn interrupt(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// Marks the CQ as destroyed; the caller interrupts next.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Returns `InvalidHandle` once the CQ is destroyed.
    #[inline]
    pub fn check_alive(&self) -> Result<(), VpStatus> {
        if self.ended.load(Ordering::Acquire) { Err(VpStatus::InvalidHandle) } else { Ok(()) }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_notices_what_comes_after_its_beginning() {
        let interrupts = Interrupts::default();
        interrupts.interrupt();
        let before = interrupts.begin().unwrap();
        assert!(!interrupts.interrupted_since(before));
        interrupts.interrupt();
        assert!(interrupts.interrupted_since(before));
        interrupts.end();
        assert_eq!(interrupts.begin().err(), Some(VpStatus::InvalidHandle));
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    // [RI-06]
    #[test]
    fn loom_a_wait_that_begins_while_its_cq_is_destroyed_notices() {
        loom::model(|| {
            let interrupts = Arc::new(Interrupts::default());
            let waiter = {
                let interrupts = interrupts.clone();
                thread::spawn(move || interrupts.begin())
            };
            interrupts.end();
            interrupts.interrupt();
            if let Ok(before) = waiter.join().unwrap() {
                assert!(interrupts.interrupted_since(before));
                assert!(interrupts.check_alive().is_err());
            }
        });
    }
}
