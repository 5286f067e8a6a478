//! One-shot timer with a descriptor (timerfd), and conversion of times for the kernel.
//!
//! Owned by the thread that sleeps on it; any thread may set it. The last setting applies.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// The timer: its descriptor is readable from its expiration until [`Timer::acknowledge`].
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// A timer that is not set. Fails when the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Makes the timer expire after `delay` instead of any earlier setting; a zero delay expires at
    /// once.
    pub fn set(&self, delay: Duration) -> io::Result<()> {
        // An all-zero time would disarm.
        let it_value = timespec(delay.max(Duration::from_nanos(1)));
        let spec = Itimerspec { it_interval: timespec(Duration::ZERO), it_value };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }

    /// Makes the descriptor unreadable after the timer expired or was set again.
    pub fn acknowledge(&self) {
        // Without an expiration there is nothing to read.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// In the kernel's form; limited to the longest time that it can represent.
pub fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn goes_off(timer: &Timer, within: Duration) -> bool {
        let mut fds = [PollFd::new(timer, PollFlags::IN)];
        poll(&mut fds, Some(&timespec(within))).unwrap() == 1
    }

    #[test]
    fn goes_off_once_and_at_once_without_a_delay() {
        let timer = Timer::new().unwrap();
        assert!(!goes_off(&timer, Duration::ZERO));
        timer.set(Duration::ZERO).unwrap();
        assert!(goes_off(&timer, Duration::from_secs(60)));
        timer.acknowledge();
        assert!(!goes_off(&timer, Duration::ZERO));
        timer.acknowledge();
    }

    #[test]
    fn the_last_setting_counts() {
        let timer = Timer::new().unwrap();
        timer.set(Duration::from_secs(3600)).unwrap();
        timer.set(Duration::from_millis(1)).unwrap();
        assert!(goes_off(&timer, Duration::from_secs(60)));
        timer.set(Duration::MAX).unwrap();
        assert!(!goes_off(&timer, Duration::ZERO));
    }
}
