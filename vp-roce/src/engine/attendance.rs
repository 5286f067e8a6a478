//! Whether threads poll all the time, so that the engine's thread may leave the sockets to them.
//!
//! A program that polls its memory, as `ib_write_lat` does, calls the library now and then, and finds nothing: what
//! it waits for may be placed by the engine's thread only. So empty polls count once they have come one after the other
//! for a while, and as long as they come.
//!
//! Owner: the engine. Any thread; if several poll, they count as one. Times are in microseconds of the engine's clock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use kal_os::progress::Mode;

use crate::tuning::{ATTENDED_US, BACK_OFF, FIRST_BACK_OFF, PAUSE_US, POLLED_US};

/// See the module's documentation.
#[derive(Default, Debug)]
pub(super) struct Attendance {
    /// When the first of the polls and posts without a pause was.
    begun: AtomicU64,
    last: AtomicU64,
    /// When the last poll was: a post receives nothing.
    polled: AtomicU64,
    /// Threads inside a poll, or a post that sends: such a call may take long.
    inside: AtomicU32,
}

impl Attendance {
    /// An empty poll.
    pub(super) fn poll(&self, now: u64) {
        if self.polled.load(Ordering::Relaxed) != now {
            self.polled.store(now, Ordering::Relaxed);
        }
        self.note(now);
    }

    /// A post, which bridges the time between two polls.
    pub(super) fn note(&self, now: u64) {
        let last = self.last.load(Ordering::Relaxed);
        if last != now {
            self.last.store(now, Ordering::Relaxed);
        }
        if now.saturating_sub(last) > PAUSE_US {
            self.begun.store(now, Ordering::Relaxed);
        }
    }

    /// A poll, or a post that sends, begins; until [`Attendance::leave`].
    pub(super) fn enter(&self) {
        self.inside.fetch_add(1, Ordering::Relaxed);
    }

    /// It ends; a long one is no pause.
    pub(super) fn leave(&self, now: u64) {
        self.inside.fetch_sub(1, Ordering::Relaxed);
        self.stay(now);
    }

    /// A thread will wait for an event: its polls until now say nothing about the time that follows.
    pub(super) fn restart(&self, now: u64) {
        self.begun.store(now, Ordering::Relaxed);
    }

    /// Threads that poll had to wait until now.
    pub(super) fn stay(&self, now: u64) {
        self.last.store(now, Ordering::Relaxed);
    }

    /// Whether a poll or a post was just now.
    pub(super) fn is_recent(&self, now: u64) -> bool {
        let pause = now.saturating_sub(self.last.load(Ordering::Relaxed));
        pause <= PAUSE_US || self.inside.load(Ordering::Relaxed) != 0
    }

    /// Whether such polls come now, and have come without a pause for long enough.
    pub(super) fn lasts(&self, now: u64) -> bool {
        let (begun, last) = (self.begun.load(Ordering::Relaxed), self.last.load(Ordering::Relaxed));
        let polled = now.saturating_sub(self.polled.load(Ordering::Relaxed)) <= POLLED_US;
        polled && self.is_recent(now) && last.saturating_sub(begun) >= ATTENDED_US
    }
}

/// For how long the engine's thread leaves the sockets to threads that poll, after it did so for `before` or not:
/// longer each time that they still poll.
pub(super) fn next_back_off(before: Duration, mode: Mode) -> Duration {
    match mode {
        Mode::BackOff => BACK_OFF.min(2 * before),
        Mode::Watch | Mode::Sleep => FIRST_BACK_OFF,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_count_while_they_follow_each_other() {
        let attendance = Attendance::default();
        let start = 1_000;
        let poll = |from: u64| (from..=from + ATTENDED_US).for_each(|at| attendance.poll(at));
        attendance.poll(start);
        assert!(!attendance.lasts(start));
        poll(start);
        let end = start + ATTENDED_US;
        assert!(attendance.lasts(end + PAUSE_US));
        assert!(!attendance.lasts(end + PAUSE_US + 1));
        // After a pause they begin anew.
        attendance.poll(end + PAUSE_US + 1);
        assert!(!attendance.lasts(end + PAUSE_US + 1));
        poll(end + PAUSE_US + 1);
        let end = end + PAUSE_US + 1 + ATTENDED_US;
        assert!(attendance.lasts(end));
        // Posts alone do not receive.
        (end..=end + POLLED_US).for_each(|at| attendance.note(at));
        assert!(attendance.lasts(end + POLLED_US));
        attendance.note(end + POLLED_US + 1);
        assert!(!attendance.lasts(end + POLLED_US + 1));
    }

    #[test]
    fn a_long_call_is_no_pause() {
        let attendance = Attendance::default();
        (0..=ATTENDED_US).for_each(|at| attendance.poll(at));
        attendance.enter();
        let during = ATTENDED_US + 2 * PAUSE_US;
        assert!(attendance.lasts(during));
        attendance.leave(during);
        assert!(attendance.lasts(during + PAUSE_US));
        assert!(!attendance.lasts(during + PAUSE_US + 1));
    }

    #[test]
    fn who_waits_for_an_event_polls_anew() {
        let attendance = Attendance::default();
        (0..=ATTENDED_US).for_each(|at| attendance.poll(at));
        attendance.restart(ATTENDED_US);
        (ATTENDED_US..2 * ATTENDED_US).for_each(|at| attendance.poll(at));
        assert!(!attendance.lasts(2 * ATTENDED_US));
        attendance.poll(2 * ATTENDED_US);
        assert!(attendance.lasts(2 * ATTENDED_US));
    }

    #[test]
    fn back_offs_grow_while_threads_poll() {
        let after = |modes: &[Mode]| {
            modes.iter().fold(FIRST_BACK_OFF, |before, &mode| next_back_off(before, mode))
        };
        assert_eq!(after(&[Mode::BackOff; 2]), 4 * FIRST_BACK_OFF);
        assert_eq!(after(&[Mode::BackOff; 20]), BACK_OFF);
        assert_eq!(after(&[Mode::BackOff, Mode::BackOff, Mode::Watch]), FIRST_BACK_OFF);
    }
}
