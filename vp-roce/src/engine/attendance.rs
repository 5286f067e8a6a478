//! Whether threads poll all the time, so that the engine's thread may leave the sockets to them.
//!
//! A program that polls its memory, as `ib_write_lat` does, calls the library now and then, and finds nothing: what
//! it waits for is placed by the engine's thread only. So an empty poll counts once such polls have come one after the
//! other for a while.
//!
//! Owner: the engine. Any thread; if several poll, they count as one. Times are in microseconds of the engine's clock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::tuning::{ATTENDED_US, PAUSE_US};

/// See the module's documentation.
#[derive(Default, Debug)]
pub(super) struct Attendance {
    /// When the first of the polls without a pause was.
    begun: AtomicU64,
    last: AtomicU64,
}

impl Attendance {
    /// An empty poll. Returns whether such polls have come without a pause for long enough.
    pub(super) fn lasts(&self, now: u64) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        if last != now {
            self.last.store(now, Ordering::Relaxed);
        }
        if now.saturating_sub(last) > PAUSE_US {
            self.begun.store(now, Ordering::Relaxed);
        }
        now.saturating_sub(self.begun.load(Ordering::Relaxed)) >= ATTENDED_US
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_count_while_they_follow_each_other() {
        let attendance = Attendance::default();
        let start = 1_000;
        assert!(!attendance.lasts(start));
        let polls =
            |from: u64| (from..from + ATTENDED_US).filter(|at| attendance.lasts(*at)).count();
        assert_eq!(polls(start), 0);
        assert!(attendance.lasts(start + ATTENDED_US));
        // After a pause they begin anew.
        let again = start + ATTENDED_US + PAUSE_US + 1;
        assert_eq!(polls(again), 0);
    }
}
