//! How the engine's thread and threads that poll share the sockets.
//!
//! Who polls receives sooner than a thread that must be woken, and a thread that is woken for each packet takes the time
//! of who polls. But a program that polls its memory, as `ib_write_lat` does, also polls a CQ now and then; what it waits
//! for is placed by the engine's thread only. So that thread tries: where a packet wakes it and others have polled
//! meanwhile, it leaves the sockets to them for a moment. If they receive, it stays away for as long as they poll; if
//! not, it receives, and tries again after twice as many packets.
//!
//! Owner: [`Attendance`] the engine, any thread; counts of several threads at once may be lost. [`Turns`] the engine's
//! thread.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use crate::tuning::{ATTENDED_POLLS, BACK_OFF, FIRST_BACK_OFF, MOST_BETWEEN_TRIALS, REFUSALS};

/// What threads that poll did since the engine's thread began to sleep.
#[derive(Default, Debug)]
pub(super) struct Attendance {
    polls: AtomicU32,
    /// One of them has received packets.
    served: AtomicBool,
    /// Polls one after the other that could not receive, because another thread did.
    refused: AtomicU32,
    /// The engine's thread leaves the sockets to them.
    away: AtomicBool,
}

impl Attendance {
    /// A poll.
    pub(super) fn poll(&self) {
        self.polls.store(self.polls.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// It received packets, or none.
    pub(super) fn received(&self, any: bool) {
        if any {
            self.served.store(true, Relaxed);
        }
        if self.refused.load(Relaxed) != 0 {
            self.refused.store(0, Relaxed);
        }
    }

    /// It could not receive. Returns whether so many could not that the other thread probably waits for a processor,
    /// perhaps for this one.
    pub(super) fn refuse(&self) -> bool {
        let refused = self.refused.load(Relaxed).wrapping_add(1);
        self.refused.store(refused, Relaxed);
        refused.is_multiple_of(REFUSALS)
    }

    /// A thread will wait for an event: its polls until now say nothing about the time that follows.
    pub(super) fn restart(&self) {
        self.polls.store(0, Relaxed);
    }

    /// Whether threads poll all the time.
    pub(super) fn lasts(&self) -> bool {
        self.away.load(Relaxed)
    }

    fn begin(&self, away: bool) {
        self.polls.store(0, Relaxed);
        self.served.store(false, Relaxed);
        self.away.store(away, Relaxed);
    }
}

/// How the engine's thread sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// On the sockets.
    Watch,
    /// It leaves them to threads that poll, to see whether they receive.
    Trial,
    /// They do; for so long.
    Away(Duration),
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Turns {
    turn: Turn,
    /// Packets that wake it between two trials, and until the next.
    between: u32,
    left: u32,
}

impl Default for Turns {
    fn default() -> Self {
        Self { turn: Turn::Watch, between: 0, left: 0 }
    }
}

impl Turns {
    /// For how long the sockets are left to others; `None`: the thread may sleep on them.
    pub(super) const fn away(&self) -> Option<Duration> {
        match self.turn {
            Turn::Watch => None,
            Turn::Trial => Some(FIRST_BACK_OFF),
            Turn::Away(time) => Some(time),
        }
    }

    /// The thread begins to sleep.
    pub(super) fn sleep(&self, attendance: &Attendance) {
        attendance.begin(matches!(self.turn, Turn::Away(_)));
    }

    /// It slept; `packets`: they woke it. `relied`: a thread waits for events, and polls a few times before. Decides
    /// about the next sleep.
    pub(super) fn wake(&mut self, attendance: &Attendance, packets: bool, relied: bool) {
        let least = if relied { ATTENDED_POLLS } else { 1 };
        let polled = attendance.polls.load(Relaxed) >= least;
        let served = attendance.served.load(Relaxed);
        self.turn = match self.turn {
            Turn::Watch | Turn::Trial if polled && served => {
                (self.between, self.left) = (0, 0);
                Turn::Away(FIRST_BACK_OFF)
            }
            Turn::Watch if polled && packets && self.left == 0 => Turn::Trial,
            Turn::Watch => {
                self.left = self.left.saturating_sub(packets.into());
                Turn::Watch
            }
            Turn::Trial => {
                self.between = (2 * self.between).clamp(1, MOST_BETWEEN_TRIALS);
                self.left = self.between;
                Turn::Watch
            }
            Turn::Away(_) if polled && relied => Turn::Away(FIRST_BACK_OFF),
            Turn::Away(before) if polled => Turn::Away(BACK_OFF.min(2 * before)),
            Turn::Away(_) => Turn::Watch,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens during a sleep: polls, whether one received, whether packets woke the thread.
    fn after(turns: &mut Turns, (polls, served, packets): (u32, bool, bool), relied: bool) {
        let attendance = Attendance::default();
        turns.sleep(&attendance);
        (0..polls).for_each(|_| attendance.poll());
        attendance.received(served);
        turns.wake(&attendance, packets, relied);
    }

    #[test]
    fn sockets_are_left_to_threads_that_receive_for_as_long_as_they_poll() {
        let mut turns = Turns::default();
        let mut next = |what, away| {
            after(&mut turns, what, false);
            assert_eq!(turns.away(), away);
        };
        next((0, false, true), None);
        next((9, false, false), None);
        next((9, false, true), Some(FIRST_BACK_OFF));
        next((9, true, false), Some(FIRST_BACK_OFF));
        next((1, false, false), Some(2 * FIRST_BACK_OFF));
        next((1, false, false), Some(4 * FIRST_BACK_OFF));
        next((1, false, false), Some(8 * FIRST_BACK_OFF));
        next((1, false, false), Some(BACK_OFF));
        next((1, false, false), Some(BACK_OFF));
        next((0, false, false), None);
        // Others received what woke it.
        next((1, true, true), Some(FIRST_BACK_OFF));
    }

    // A program polls its memory, and after each message a CQ.
    #[test]
    fn trials_become_rare_where_nobody_receives() {
        let mut turns = Turns::default();
        let mut trials = Vec::new();
        for wake in 0..10_000 {
            after(&mut turns, (1, false, true), false);
            if turns.away().is_some() {
                trials.push(wake);
                after(&mut turns, (0, false, false), false);
                assert_eq!(turns.away(), None);
            }
        }
        let gaps: Vec<_> = trials.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(gaps.is_sorted() && gaps.contains(&(MOST_BETWEEN_TRIALS + 1)), "{gaps:?}");
    }

    #[test]
    fn a_thread_that_will_wait_is_not_taken_for_one_that_polls() {
        let mut turns = Turns::default();
        after(&mut turns, (ATTENDED_POLLS - 1, false, true), true);
        assert_eq!(turns.away(), None);
        after(&mut turns, (ATTENDED_POLLS, true, true), true);
        after(&mut turns, (ATTENDED_POLLS, false, false), true);
        assert_eq!(turns.away(), Some(FIRST_BACK_OFF));
        let attendance = Attendance::default();
        turns.sleep(&attendance);
        (0..100).for_each(|_| attendance.poll());
        attendance.restart();
        turns.wake(&attendance, false, true);
        assert_eq!(turns.away(), None);
    }

    #[test]
    fn some_refusals_in_a_row_mean_that_the_other_thread_does_not_run() {
        let attendance = Attendance::default();
        let refused = |times: u32| (0..times).filter(|_| attendance.refuse()).count();
        assert_eq!(refused(REFUSALS - 1), 0);
        attendance.received(false);
        assert_eq!(refused(2 * REFUSALS), 2);
    }
}
