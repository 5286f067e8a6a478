//! How often a poll that found nothing serves the QPs that complete in other CQs, too.
//!
//! A program may poll one CQ all the time, so that the engine's thread backs off, while its peers wait for
//! a QP that completes in another CQ. After such work every poll checks for more of it for a while, and one in
//! [`OWN_EVERY`] serves the QPs of its own CQ; else every poll serves these, and one in [`SERVE_ALL_EVERY`]
//! the others.
//!
//! Owned by the CQ; any thread that polls it. The state is a hint: two threads at once look once more or once
//! less. Peers play no part beyond the work that they make.

use crate::sync::{AtomicU32, Ordering};
use crate::tuning::{EAGER_POLLS, OWN_EVERY, SERVE_ALL_EVERY};

/// Which QPs a poll serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Serve {
    /// Those of the CQ.
    Own,
    /// The others.
    Others,
    /// Both.
    All,
}

/// When the other QPs are served next.
#[derive(Default)]
pub(crate) struct OtherQps {
    /// Polls that found nothing.
    since: AtomicU32,
    /// So many more of them serve the others.
    eager: AtomicU32,
}

impl OtherQps {
    /// A poll found nothing. Returns which QPs it serves.
    #[inline]
    pub(crate) fn next(&self) -> Serve {
        let since = self.since.load(Ordering::Relaxed).wrapping_add(1);
        self.since.store(since, Ordering::Relaxed);
        let eager = self.eager.load(Ordering::Relaxed);
        if eager != 0 {
            self.eager.store(eager - 1, Ordering::Relaxed);
            return if since.is_multiple_of(OWN_EVERY) { Serve::All } else { Serve::Others };
        }
        if since.is_multiple_of(SERVE_ALL_EVERY) { Serve::All } else { Serve::Own }
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
        let next = |count| (0..count).map(|_| others.next()).collect::<Vec<_>>();
        let count =
            |polls: &[Serve], what| polls.iter().filter(|next| **next == what).count() as u32;
        let polls = next(SERVE_ALL_EVERY);
        assert_eq!((count(&polls, Serve::All), count(&polls, Serve::Others)), (1, 0));
        others.had_work();
        let polls = next(EAGER_POLLS);
        assert_eq!(count(&polls, Serve::All), EAGER_POLLS / OWN_EVERY);
        assert_eq!(count(&polls, Serve::Own), 0);
        let polls = next(SERVE_ALL_EVERY);
        assert_eq!((count(&polls, Serve::All), count(&polls, Serve::Others)), (1, 0));
    }

    /// Others that always have work do not keep the CQ's own QPs from being served.
    #[test]
    fn own_are_served_beside_busy_others() {
        let others = OtherQps::default();
        for _ in 0..10 {
            let served = (0..OWN_EVERY).filter(|_| {
                others.had_work();
                others.next() == Serve::All
            });
            assert_eq!(served.count(), 1);
        }
    }
}
