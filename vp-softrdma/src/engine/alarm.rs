//! The engine thread's alarm clock: a timerfd that any thread may set earlier, never later.
//!
//! One per engine. The engine's thread sleeps on it, and re-reads all that could have set it after
//! it rang.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use kal_os::Timer;

use crate::fork::Ours;
use crate::sync::{Mutex, lock};

/// The clock.
pub(crate) struct Alarm {
    timer: Ours<Timer>,
    /// When it rings, in nanoseconds of the services' clock.
    at: Mutex<u64>,
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

impl Alarm {
    /// Not set.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { timer: Ours::make(Timer::new)?, at: Mutex::new(u64::MAX) })
    }

    /// Rings at `at` at the latest.
    pub(crate) fn set(&self, at: u64, now: u64) {
        let mut current = lock(&self.at);
        if at >= *current {
            return;
        }
        *current = at;
        // It cannot fail: the fd is a timer.
        let _ = self.timer.set(Duration::from_nanos(at.saturating_sub(now)));
    }

    /// It rang. Everything that may have set it must be looked at after this.
    pub(crate) fn acknowledge(&self) {
        let mut current = lock(&self.at);
        *current = u64::MAX;
        self.timer.acknowledge();
    }
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn rings(alarm: &Alarm) -> bool {
        poll(&mut [PollFd::new(alarm, PollFlags::IN)], Some(&kal_os::timespec(Duration::ZERO)))
            == Ok(1)
    }

    #[test]
    fn it_rings_until_it_is_acknowledged_and_then_again_when_it_is_set() {
        const HOUR: u64 = 3_600_000_000_000;
        let alarm = Alarm::new().unwrap();
        for _ in 0..2 {
            alarm.set(2 * HOUR, HOUR);
            assert!(!rings(&alarm));
            alarm.set(HOUR, HOUR);
            warpline_patience::until("the alarm to ring", || rings(&alarm));
            // Not put off.
            alarm.set(3 * HOUR, HOUR);
            assert!(rings(&alarm));
            alarm.acknowledge();
            assert!(!rings(&alarm));
        }
    }
}
