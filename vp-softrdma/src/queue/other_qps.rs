//! How often a poll that found nothing serves the QPs that complete in other CQs, too.
//!
//! A program may poll one CQ all the time, so that the engine's thread backs off, while its peers wait for
//! a QP that completes in another CQ. After such work polls serve that QP directly for a while, and one in
//! [`OWN_EVERY`] serves the QPs of its own CQ and all others; else every poll serves its own, and one in
//! [`SERVE_ALL_EVERY`] the others.
//!
//! Owned by the CQ; any thread that polls it. The state is a hint: two threads at once look once more or once
//! less, and a QP that is gone is not found by its id. Peers play no part beyond the work that they make.

use crate::sync::{AtomicU32, Ordering};
use crate::tuning::{EAGER_POLLS, OWN_EVERY, SERVE_ALL_EVERY};

/// Which QPs a poll serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Serve {
    /// Those of the CQ.
    Own,
    /// The QP with this id, of another CQ.
    Other(u32),
    /// The same for the last time for now: the engine's set has to watch it again.
    LastOther(u32),
    /// Those of the CQ, and all others.
    All,
}

/// When the other QPs are served next.
#[derive(Default)]
pub(crate) struct OtherQps {
    /// Polls that found nothing.
    since: AtomicU32,
    /// So many more of them serve `latest`.
    eager: AtomicU32,
    /// The id of the QP that had work last.
    latest: AtomicU32,
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
            let latest = self.latest.load(Ordering::Relaxed);
            return match eager {
                1 => Serve::LastOther(latest),
                _ if since.is_multiple_of(OWN_EVERY) => Serve::All,
                _ => Serve::Other(latest),
            };
        }
        if since.is_multiple_of(SERVE_ALL_EVERY) { Serve::All } else { Serve::Own }
    }

    /// There was work for the QP `id` of another CQ. Returns the QP that is no longer served, if any.
    pub(crate) fn had_work(&self, id: u32) -> Option<u32> {
        let eager = self.eager.swap(EAGER_POLLS, Ordering::Relaxed);
        let before = self.latest.swap(id, Ordering::Relaxed);
        (eager != 0 && before != id).then_some(before)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn is_other(next: &Serve) -> bool {
        matches!(next, Serve::Other(7) | Serve::LastOther(7))
    }

    #[test]
    fn others_are_served_at_each_poll_after_work() {
        let others = OtherQps::default();
        let next = |count| (0..count).map(|_| others.next()).collect::<Vec<_>>();
        let all = |polls: &[Serve]| polls.iter().filter(|next| **next == Serve::All).count() as u32;
        let other = |polls: &[Serve]| polls.iter().filter(|next| is_other(next)).count() as u32;
        let polls = next(SERVE_ALL_EVERY);
        assert_eq!((all(&polls), other(&polls)), (1, 0));
        assert_eq!(others.had_work(7), None);
        let polls = next(EAGER_POLLS);
        assert_eq!(all(&polls) + other(&polls), EAGER_POLLS);
        assert!(all(&polls) >= EAGER_POLLS / OWN_EVERY - 1);
        assert_eq!(polls.last(), Some(&Serve::LastOther(7)));
        let polls = next(SERVE_ALL_EVERY);
        assert_eq!((all(&polls), other(&polls)), (1, 0));
    }

    /// Others that always have work do not keep the CQ's own QPs from being served.
    #[test]
    fn own_are_served_beside_busy_others() {
        let others = OtherQps::default();
        for _ in 0..10 {
            let served = (0..OWN_EVERY).filter(|_| {
                others.had_work(7);
                others.next() == Serve::All
            });
            assert_eq!(served.count(), 1);
        }
    }

    /// One that was served directly must be watched again when another takes its place.
    #[test]
    fn another_takes_the_place() {
        let others = OtherQps::default();
        assert_eq!(others.had_work(7), None);
        assert_eq!(others.had_work(7), None);
        assert_eq!(others.had_work(8), Some(7));
        while others.next() != Serve::LastOther(8) {}
        assert_eq!(others.had_work(7), None);
    }
}
