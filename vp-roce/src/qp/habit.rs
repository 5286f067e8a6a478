//! Whether the consumer posts a request soon after a message arrived, so that the acknowledgement can leave with it.
//!
//! Belongs to a connection, under the QP's lock. Times in microseconds of the engine's clock.

use crate::tuning::FOLLOWS_US;

/// See the module's documentation.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Habit {
    follows: bool,
    /// An acknowledgement is kept.
    keeps: bool,
    /// When the last one left alone.
    alone: Option<u64>,
}

impl Habit {
    /// Whether the next acknowledgement is worth keeping.
    pub(super) fn may_keep(&self) -> bool {
        self.follows
    }

    pub(super) fn keep(&mut self) {
        self.keeps = true;
    }

    /// An acknowledgement leaves alone.
    pub(super) fn leaves_alone(&mut self, now: u64) {
        // What was kept was kept in vain.
        self.follows &= !self.keeps;
        (self.keeps, self.alone) = (false, Some(now));
    }

    /// A request is posted; what is kept leaves with it.
    pub(super) fn posted(&mut self, now: u64) {
        if self.keeps {
            self.keeps = false;
        } else if let Some(alone) = self.alone.take() {
            self.follows = now.saturating_sub(alone) <= FOLLOWS_US;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_are_kept_while_requests_follow_them() {
        let mut habit = Habit::default();
        habit.leaves_alone(100);
        habit.posted(101 + FOLLOWS_US);
        assert!(!habit.may_keep());
        habit.leaves_alone(100);
        habit.posted(100 + FOLLOWS_US);
        assert!(habit.may_keep());
        habit.keep();
        habit.posted(5_000);
        assert!(habit.may_keep());
        habit.keep();
        habit.leaves_alone(6_000);
        assert!(!habit.may_keep());
    }
}
