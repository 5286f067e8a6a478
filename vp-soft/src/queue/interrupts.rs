//! Interrupts of waits for a CQ, and the end of the CQ, which interrupts all of them.
//!
//! Owned by the CQ; any thread waits, interrupts and destroys. A wait that began before the CQ was
//! destroyed is always interrupted by that. Peers play no part. A CQ is not used again after its end.

use vp_api::VpStatus;

use crate::sync::{AtomicBool, AtomicU32, Ordering};

/// The interrupts of one CQ.
#[derive(Default)]
pub struct Interrupts {
    count: AtomicU32,
    ended: AtomicBool,
}

/// The number of interrupts before a wait.
#[derive(Clone, Copy, Debug)]
pub struct Before(u32);

impl Interrupts {
    /// A wait begins.
    pub fn begin(&self) -> Result<Before, VpStatus> {
        // In this order, against the opposite one of `destroy`, which marks the end first and then
        // interrupts.
        let before = Before(self.count.load(Ordering::Acquire));
        self.check_alive().map(|()| before)
    }

    /// An interrupt has come since the wait began.
    pub fn interrupted_since(&self, before: Before) -> bool {
        self.count.load(Ordering::Acquire) != before.0
    }

    /// Interrupts all waits that have begun.
    pub fn interrupt(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// The CQ is destroyed; the caller interrupts next.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// `InvalidHandle` after the end.
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
