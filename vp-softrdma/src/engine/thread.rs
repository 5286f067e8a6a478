//! The engine's own thread: watches the sockets while no application thread does, and runs the timers.
//!
//! One per engine, from its start to its end. After an application thread served the sockets it backs
//! off, so as not to compete for them: briefly at first, because peers wait that long when the
//! application polls seldom. The death of a peer shows as an event or by a timer, as at any other
//! thread.

use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use vp_api::LogLevel;

use super::{By, Engine, Member};
use crate::sync::Ordering;
use crate::tuning::{ABSENCE_NS, BACK_OFF_NS, FIRST_BACK_OFF_NS};
use kal_os::progress::Mode;

/// The length of the back-off that follows one of `back_off` nanoseconds in this mode: it approaches
/// half of the time between two polls.
fn next_back_off(back_off: u64, mode: Mode) -> u64 {
    match mode {
        Mode::BackOff => BACK_OFF_NS.min(2 * back_off),
        Mode::Watch => FIRST_BACK_OFF_NS.max(back_off / 2),
        Mode::Sleep => FIRST_BACK_OFF_NS,
    }
}

/// How long a leader that leaves next may stay away before this thread serves the sockets, after `absence`
/// nanoseconds: longer each time that a leader had come back meanwhile.
fn next_absence(absence: u64, mode: Mode) -> u64 {
    if mode == Mode::Sleep { ABSENCE_NS.min(2 * absence) } else { FIRST_BACK_OFF_NS }
}

impl Engine {
    /// The engine's thread.
    pub(super) fn run(&self) {
        let (mut back_off, mut unregistered) = (FIRST_BACK_OFF_NS, Vec::new());
        while !self.stopping.load(Ordering::Acquire) {
            self.run_timers();
            let mode = self.progress.decide(|| self.leadership.has_leader());
            self.end_back_off(mode == Mode::BackOff, &mut unregistered);
            let absence = next_absence(self.absence.load(Ordering::Relaxed), mode);
            self.absence.store(absence, Ordering::Relaxed);
            if mode != Mode::Sleep {
                self.serve_as_engine();
            }
            self.sleep(mode, back_off);
            back_off = next_back_off(back_off, mode);
        }
    }

    /// Serves what is ready.
    fn serve_as_engine(&self) {
        let mut streams = 0;
        self.serve(Some(Duration::ZERO), &|| {}, By::Other, |_| streams += 1);
        self.count_served(streams);
    }

    /// Registers sockets again: those that were not polled since the last call, or all if no back-off
    /// follows. `unregistered` is empty before and after.
    pub(crate) fn end_back_off(&self, backing_off: bool, unregistered: &mut Vec<u32>) {
        let ended = self.back_off.fetch_add(1, Ordering::Relaxed);
        self.unregistered.take(backing_off, unregistered);
        for id in unregistered.drain(..) {
            let stays =
                |member: Arc<dyn Member>| member.stays_unregistered(backing_off.then_some(ended));
            if self.member(id).is_some_and(stays) {
                self.unregistered.add(id);
            }
        }
    }

    /// Calls the QPs whose deadlines have passed.
    pub(crate) fn run_timers(&self) {
        while let Some((id, stream, timer)) = self.timers.take_due(self.now()) {
            if let Some(member) = self.member(id) {
                member.on_timer(stream, timer);
            }
        }
    }

    fn sleep(&self, mode: Mode, back_off_ns: u64) {
        let now = self.now();
        let back_off = if mode == Mode::BackOff { now + back_off_ns } else { u64::MAX };
        self.alarm.set(self.next_timer().map_or(back_off, |at| at.min(back_off)), now);
        let mut fds =
            [PollFd::new(&self.alarm, PollFlags::IN), PollFd::new(&self.epoll, PollFlags::IN)];
        let watched = if mode == Mode::Watch { &mut fds[..] } else { &mut fds[..1] };
        match poll(watched, None) {
            Ok(_) if fds[0].revents().is_empty() => {}
            Ok(_) => self.alarm.acknowledge(),
            Err(Errno::INTR) => {}
            Err(errno) => {
                let message = format!("the progress engine cannot sleep: poll: {errno}");
                self.services.log(LogLevel::Error, "softrdma::engine", &message);
                std::thread::sleep(Duration::from_nanos(BACK_OFF_NS));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_offs_grow_while_applications_poll_and_shrink_when_they_stop() {
        let after = |back_off, modes: &[Mode]| {
            modes.iter().fold(back_off, |back_off, &mode| next_back_off(back_off, mode))
        };
        assert_eq!(after(FIRST_BACK_OFF_NS, &[Mode::BackOff; 3]), 8 * FIRST_BACK_OFF_NS);
        assert_eq!(after(FIRST_BACK_OFF_NS, &[Mode::BackOff; 9]), BACK_OFF_NS);
        assert_eq!(after(BACK_OFF_NS, &[Mode::Watch; 2]), BACK_OFF_NS / 4);
        assert_eq!(after(BACK_OFF_NS, &[Mode::Watch; 9]), FIRST_BACK_OFF_NS);
        assert_eq!(after(BACK_OFF_NS, &[Mode::Sleep]), FIRST_BACK_OFF_NS);
    }

    #[test]
    fn a_leader_that_comes_back_may_stay_away_longer_next_time() {
        let after = |modes: &[Mode]| {
            modes.iter().fold(FIRST_BACK_OFF_NS, |absence, &mode| next_absence(absence, mode))
        };
        assert_eq!(after(&[Mode::Sleep; 2]), 4 * FIRST_BACK_OFF_NS);
        assert_eq!(after(&[Mode::Sleep; 9]), ABSENCE_NS);
        assert_eq!(after(&[Mode::Sleep, Mode::Sleep, Mode::Watch]), FIRST_BACK_OFF_NS);
    }
}
