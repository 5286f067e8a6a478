//! Event mode of a CQ: its consumer armed it and sleeps in a place that we cannot see, such as an epoll
//! of its own. A consumer that polls an empty CQ often enough without arming does not sleep, and the mode
//! ends.
//!
//! Owned by the CQ; any thread arms and polls. Each call returns whether it changed the mode, so that the
//! engine gets as many begins as ends, whichever threads make them. Peers play no part. After its end the mode
//! can begin again.

use kal_os::sync::{AtomicU32, Ordering};

/// Empty polls until the mode ends; 0 outside of it.
#[derive(Default, Debug)]
pub struct EventMode(AtomicU32);

/// The mode in which a poll found nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InVain {
    /// Not in event mode.
    Off,
    /// In event mode.
    Stays,
    /// It ended event mode.
    Ended,
}

impl EventMode {
    /// The CQ was armed; `polls` empty polls end the mode. True if it begins.
    #[inline]
    pub fn begin(&self, polls: u32) -> bool {
        self.0.swap(polls, Ordering::AcqRel) == 0
    }

    /// The CQ is destroyed; true if the mode ends.
    #[inline]
    pub fn end(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) != 0
    }

    /// A poll found nothing.
    #[inline]
    pub fn poll_in_vain(&self) -> InVain {
        let left = self.0.load(Ordering::Relaxed);
        if left == 0 {
            return InVain::Off;
        }
        let (done, missed) = (Ordering::AcqRel, Ordering::Relaxed);
        match self.0.compare_exchange(left, left - 1, done, missed) {
            Ok(1) => InVain::Ended,
            // Another thread armed or polled meanwhile, and that call counts.
            _ => InVain::Stays,
        }
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    const POLLS: u32 = 2;

    /// Threads arm and poll, and one destroys the CQ: the mode is on exactly if there was one more begin
    /// than ends.
    #[test]
    fn loom_begins_and_ends_come_in_pairs() {
        loom::model(|| {
            let mode = Arc::new(EventMode::default());
            let poller = {
                let mode = mode.clone();
                thread::spawn(move || {
                    (0..POLLS).filter(|_| mode.poll_in_vain() == InVain::Ended).count()
                })
            };
            let armer = {
                let mode = mode.clone();
                thread::spawn(move || {
                    [mode.begin(POLLS), mode.begin(POLLS)].map(usize::from).iter().sum()
                })
            };
            let mut ended = usize::from(mode.end());
            let begun: usize = armer.join().unwrap();
            ended += poller.join().unwrap();
            let on = mode.poll_in_vain() != InVain::Off;
            assert_eq!(begun, ended + usize::from(on));
        });
    }
}
