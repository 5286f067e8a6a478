//! The timer of the engine's thread: a timerfd that any thread may set to an earlier time, never to a
//! later one.
//!
//! One per engine. The engine's thread sleeps on it. When it has expired, the thread checks every
//! deadline that may have set it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use kal_os::Timer;

use crate::fork::Ours;
use crate::sync::{Mutex, lock};

/// The timer.
pub(crate) struct Alarm {
    timer: Ours<Timer>,
    /// When it expires, in nanoseconds of the services' clock.
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

    /// Makes the timer expire at `at` or earlier.
    pub(crate) fn set(&self, at: u64, now: u64) {
        let mut current = lock(&self.at);
        if at >= *current {
            return;
        }
        *current = at;
        // This cannot fail: the descriptor is a timer.
        let _ = self.timer.set(Duration::from_nanos(at.saturating_sub(now)));
    }

    /// The timer expired. The caller then checks every deadline that may have set it.
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

    fn has_fired(alarm: &Alarm) -> bool {
        poll(&mut [PollFd::new(alarm, PollFlags::IN)], Some(&kal_os::timespec(Duration::ZERO)))
            == Ok(1)
    }

    #[test]
    fn it_rings_until_it_is_acknowledged_and_then_again_when_it_is_set() {
        const HOUR: u64 = 3_600_000_000_000;
        let alarm = Alarm::new().unwrap();
        for _ in 0..2 {
            alarm.set(2 * HOUR, HOUR);
            assert!(!has_fired(&alarm));
            alarm.set(HOUR, HOUR);
            warpline_patience::until("the alarm to fire", || has_fired(&alarm));
            // The deadline was not moved to a later time.
            alarm.set(3 * HOUR, HOUR);
            assert!(has_fired(&alarm));
            alarm.acknowledge();
            assert!(!has_fired(&alarm));
        }
    }
}
