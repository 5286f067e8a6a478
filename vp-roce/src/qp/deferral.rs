//! Posts that wait for others, so that all leave in one system call.
//!
//! Belongs to a connection, under the QP's lock. A post waits only while earlier requests are under way, or while the
//! consumer polls all the time and mostly posts several requests between its polls. It waits as long as an
//! acknowledgement may be kept (`engine/kept`): it leaves at the next poll that finds nothing, with enough others, or
//! when the engine's thread wakes up. If that thread had to, the consumer does not poll, and its next posts leave at
//! once. Times are in microseconds of the engine's clock.

use crate::tuning::{BATCH_OCTETS, BATCH_POSTS, EAGER_POSTS, KEEP, LEAST_BATCH};

/// See the module's documentation.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Deferral {
    /// So many posts do not wait for more.
    enough: u32,
    posts: u32,
    octets: u64,
    /// When the first of them was posted.
    since: u64,
    /// So many posts leave at once.
    eager: u32,
    /// Of those that waited last, there were several.
    follow: bool,
}

impl Deferral {
    /// For a connection with so many requests at most.
    pub(super) fn new(send_depth: u32) -> Self {
        Self { enough: (send_depth / 2).clamp(LEAST_BATCH, BATCH_POSTS), ..Self::default() }
    }

    /// Whether so many posts with so many octets wait.
    pub(super) fn add(&mut self, posts: u32, octets: u64, now: u64) -> bool {
        if self.eager != 0 {
            self.eager = self.eager.saturating_sub(posts);
            return false;
        }
        if self.posts == 0 {
            self.since = now;
        }
        (self.posts, self.octets) = (self.posts + posts, self.octets + octets);
        self.posts < self.enough && self.octets < BATCH_OCTETS
    }

    /// Whether any wait.
    pub(super) fn any(&self) -> bool {
        self.posts != 0
    }

    /// Whether a post is mostly followed by others before the next poll.
    pub(super) fn follow(&self) -> bool {
        self.follow
    }

    /// All of them leave.
    pub(super) fn end(&mut self, now: u64) {
        if self.posts != 0 && now.saturating_sub(self.since) >= KEEP.as_micros() as u64 {
            self.eager = EAGER_POSTS;
        }
        if self.posts != 0 {
            self.follow = self.posts > 1;
        }
        (self.posts, self.octets) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_wait_until_they_fill_a_call_or_their_consumer_does_not_poll() {
        let waiting = |deferral: &mut Deferral| {
            let waiting = (0..BATCH_POSTS).take_while(|_| deferral.add(1, 8, 100)).count() as u32;
            deferral.end(101);
            waiting
        };
        assert_eq!(waiting(&mut Deferral::new(1)), LEAST_BATCH - 1);
        assert_eq!(waiting(&mut Deferral::new(100)), 50 - 1);
        let mut deferral = Deferral::new(1_000);
        assert_eq!(waiting(&mut deferral), BATCH_POSTS - 1);
        assert!(!deferral.add(1, BATCH_OCTETS, 102));
        deferral.end(102);
        assert!(deferral.add(1, 8, 103));
        deferral.end(103 + KEEP.as_micros() as u64);
        assert_eq!((0..EAGER_POSTS).filter(|_| deferral.add(1, 8, 200)).count(), 0);
        assert!(deferral.add(1, 8, 200));
    }

    #[test]
    fn posts_follow_each_other_if_several_waited() {
        let mut deferral = Deferral::new(1_000);
        deferral.add(1, 8, 100);
        deferral.add(1, 8, 100);
        assert!(deferral.any());
        deferral.end(101);
        assert!(deferral.follow() && !deferral.any());
        // Nothing waited.
        deferral.end(102);
        assert!(deferral.follow());
        deferral.add(1, 8, 103);
        deferral.end(104);
        assert!(!deferral.follow());
    }
}
