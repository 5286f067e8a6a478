//! The engine thread's alarm clock: a timerfd that any thread may set earlier, never later.
//!
//! One per engine. The engine's thread sleeps on it, and re-reads all that could have set it after
//! it rang.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::sync::{Mutex, lock};

/// The clock.
pub(crate) struct Alarm {
    timer: OwnedFd,
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
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { timer, at: Mutex::new(u64::MAX) })
    }

    /// Rings at `at` at the latest.
    pub(crate) fn set(&self, at: u64, now: u64) {
        let mut current = lock(&self.at);
        if at >= *current {
            return;
        }
        *current = at;
        // Zero would disarm.
        let delay = at.saturating_sub(now).max(1);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec {
            tv_sec: i64::try_from(delay / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (delay % 1_000_000_000) as _,
        };
        let value = Itimerspec { it_interval: zero, it_value: value };
        // It cannot fail: the fd is a timer and the value is normal.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value);
    }

    /// It rang. Everything that may have set it must be looked at after this.
    pub(crate) fn acknowledge(&self) {
        let mut current = lock(&self.at);
        *current = u64::MAX;
        let mut expirations = [0; 8];
        // Nothing to read means that it was set anew just now; the caller looks anyhow.
        let _ = rustix::io::read(&self.timer, &mut expirations);
    }
}
