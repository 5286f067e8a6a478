//! Completions of one CQ on their way to the consumer. Owned by the CQ, under a lock; any thread.

use std::collections::VecDeque;

use vp_api::{QpId, WorkCompletion};

use super::spec::Fate;

struct Kept {
    completion: WorkCompletion,
    /// Number of the poll that may give it.
    due: u64,
}

/// Completions that were taken from the provider and not yet given to the consumer.
#[derive(Default)]
pub(crate) struct Shelf {
    kept: VecDeque<Kept>,
    /// Polls so far.
    polls: u64,
}

impl Shelf {
    /// One more poll: moves what is due to `out`; how many.
    pub(super) fn poll(&mut self, out: &mut [WorkCompletion]) -> usize {
        self.polls += 1;
        self.take(out)
    }

    /// Moves what is due to `out`, and of each QP in order; how many.
    pub(super) fn take(&mut self, out: &mut [WorkCompletion]) -> usize {
        let (mut filled, mut blocked) = (0, Vec::new());
        let now = self.polls;
        self.kept.retain(|kept| {
            let goes = kept.due <= now && !blocked.contains(&kept.completion.qp);
            match out.get_mut(filled) {
                Some(room) if goes => {
                    *room = kept.completion;
                    filled += 1;
                    false
                }
                _ => {
                    blocked.push(kept.completion.qp);
                    true
                }
            }
        });
        filled
    }

    /// Puts a completion behind the others, as often and as long as its fate says.
    pub(super) fn put(&mut self, completion: &WorkCompletion, fate: Fate) {
        let (copies, polls) = match fate {
            Fate::Pass => (1, 0),
            Fate::Drop => (0, 0),
            Fate::Twice => (2, 0),
            Fate::Later(polls) => (1, polls),
        };
        for _ in 0..copies {
            let due = self.polls.saturating_add(u64::from(polls));
            self.kept.push_back(Kept { completion: *completion, due });
        }
    }

    /// Everything is due.
    pub(super) fn release(&mut self) {
        self.kept.iter_mut().for_each(|kept| kept.due = 0);
    }

    /// Forgets what belongs to a QP.
    pub(super) fn clear(&mut self, qp: QpId) {
        self.kept.retain(|kept| kept.completion.qp != qp);
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(qp: u32, wr_id: u64) -> WorkCompletion {
        WorkCompletion { qp: QpId(qp), wr_id, ..WorkCompletion::BLANK }
    }

    fn poll(shelf: &mut Shelf, room: usize) -> Vec<u64> {
        let mut out = vec![WorkCompletion::BLANK; room];
        let filled = shelf.poll(&mut out);
        out[..filled].iter().map(|completion| completion.wr_id).collect()
    }

    #[test]
    fn a_delay_holds_up_its_own_qp_only() {
        let mut shelf = Shelf::default();
        shelf.put(&of(1, 1), Fate::Later(2));
        shelf.put(&of(1, 2), Fate::Pass);
        shelf.put(&of(2, 3), Fate::Pass);
        assert_eq!(poll(&mut shelf, 8), [3]);
        assert_eq!(poll(&mut shelf, 8), [1, 2]);
        assert!(shelf.is_empty());
    }

    #[test]
    fn what_finds_no_room_comes_next_time() {
        let mut shelf = Shelf::default();
        shelf.put(&of(1, 1), Fate::Twice);
        shelf.put(&of(2, 2), Fate::Drop);
        shelf.put(&of(2, 3), Fate::Pass);
        assert_eq!(poll(&mut shelf, 1), [1]);
        assert_eq!(poll(&mut shelf, 2), [1, 3]);
    }

    #[test]
    fn arming_releases_and_destroying_forgets() {
        let mut shelf = Shelf::default();
        shelf.put(&of(1, 1), Fate::Later(9));
        shelf.put(&of(2, 2), Fate::Later(9));
        shelf.release();
        shelf.clear(QpId(1));
        assert_eq!(poll(&mut shelf, 8), [2]);
    }
}
