//! How often a poll that found nothing serves the QPs that complete in other CQs, too.
//!
//! A program may poll one CQ all the time, so that the engine's thread backs off, while its peers wait for
//! a QP that completes in another CQ. After such work every poll looks for more of it for a while; else one poll
//! in [`SERVE_ALL_EVERY`] does.
//!
//! Owned by the CQ; any thread that polls it. The state is a hint: two threads at once look once more or once
//! less. Peers play no part beyond the work that they make.

use crate::sync::{AtomicU32, Ordering};
use crate::tuning::{EAGER_POLLS, SERVE_ALL_EVERY};

/// When the other QPs are served next.
#[derive(Default)]
pub(crate) struct OtherQps {
    /// Polls since the last time.
    since: AtomicU32,
    /// Polls that serve them each time.
    eager: AtomicU32,
}

impl OtherQps {
    /// A poll found nothing. True if it is time to serve the others.
    #[inline]
    pub(crate) fn are_due(&self) -> bool {
        let eager = self.eager.load(Ordering::Relaxed);
        if eager != 0 {
            self.eager.store(eager - 1, Ordering::Relaxed);
            return true;
        }
        let since = self.since.load(Ordering::Relaxed).wrapping_add(1);
        self.since.store(since, Ordering::Relaxed);
        since.is_multiple_of(SERVE_ALL_EVERY)
    }

    /// There was work for them.
    pub(crate) fn had_work(&self) {
        self.eager.store(EAGER_POLLS, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn others_are_served_at_each_poll_after_work() {
        let others = OtherQps::default();
        let polls = || (1..).find(|_| others.are_due()).unwrap();
        assert_eq!(polls(), SERVE_ALL_EVERY);
        others.had_work();
        assert!((0..EAGER_POLLS).all(|_| polls() == 1));
        assert_eq!(polls(), SERVE_ALL_EVERY);
    }
}
