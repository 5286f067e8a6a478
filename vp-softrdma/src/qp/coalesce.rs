//! Coalescing of posts: when a post transmits, and when it is deferred to share a system call with
//! others.
//!
//! Belongs to one QP, under its lock. A post on an idle connection transmits at once. One that follows
//! another closely is deferred until the consumer polls and finds nothing, waits, or arms a CQ, until a
//! batch is full, or until the bound has passed. The next post notices that; for a consumer that posts
//! and never polls a timer of the engine does, which is set again a millisecond later if a thread is
//! inside the QP then. When the peer dies the core flushes deferred posts like all others.
//!
//! A deferred post is in the core's send queue like any other; only its transmission is postponed.

use crate::tuning::{BOUND_NS, FULL_OCTETS, LAZY_NS};
use vp_api::{Data, SendFlags, SendOp, SendWr};

/// Posts that were not transmitted, and what is known of how the consumer polls.
#[derive(Debug)]
pub(crate) struct Coalesce {
    posts: u32,
    octets: u64,
    /// One of them must not be deferred.
    urgent: bool,
    signalled: bool,
    /// The consumer announced that more follows.
    more: bool,
    /// The time of the first deferred post, or else of the last transmission.
    since: u64,
    /// The consumer polled, waited or armed, and no post was deferred.
    attended: bool,
    /// The last transmission was a single post whose completion the consumer will see.
    single: bool,
    /// The engine's timer is set, for this many nanoseconds.
    timed: bool,
    check_ns: u64,
}

/// What to do after a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// Transmit.
    Transmit,
    /// Defer it. `check_at`: and set the engine's timer.
    Defer {
        /// Time on the engine's clock.
        check_at: Option<u64>,
    },
}

/// The result when the engine's timer expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimerResult {
    /// No post is deferred.
    Idle,
    /// The deferred posts are to be transmitted.
    Overdue,
    /// Not yet: set the timer again for this time.
    Again(u64),
}

impl Default for Coalesce {
    fn default() -> Self {
        Self {
            posts: 0,
            octets: 0,
            urgent: false,
            signalled: false,
            more: false,
            since: 0,
            attended: true,
            single: false,
            timed: false,
            check_ns: BOUND_NS,
        }
    }
}

impl Coalesce {
    /// The number of deferred posts.
    pub(crate) fn deferred(&self) -> u32 {
        self.posts
    }

    /// Whether a request that is posted now is transmitted at once, whatever time it is. `reaped` as for
    /// [`Self::decide`].
    #[inline]
    pub(crate) fn sends_at_once(&self, wr: &SendWr<'_>, reaped: impl FnOnce() -> bool) -> bool {
        let alone = self.posts == 0 && !wr.flags.contains(SendFlags::COALESCE);
        alone && (self.attended || self.single) && reaped()
    }

    /// A request was transmitted without being queued.
    #[inline]
    pub(crate) fn sent_at_once(&mut self, wr: &SendWr<'_>) {
        self.single = wr.flags.contains(SendFlags::SIGNALED);
        self.attended = false;
    }

    /// A work request was queued.
    #[inline]
    pub(crate) fn add(&mut self, wr: &SendWr<'_>) {
        self.posts += 1;
        self.octets += octets_out(wr);
        self.signalled = wr.flags.contains(SendFlags::SIGNALED);
        self.more = wr.flags.contains(SendFlags::COALESCE);
        self.urgent |= is_local(&wr.op);
    }

    /// Called after a post on a connection where `before` posts were deferred. `depth`: that of the
    /// queue; `reaped`: all completions in the CQ were polled; `now` reads the engine's clock.
    pub(crate) fn decide(
        &mut self,
        before: u32,
        depth: u32,
        reaped: bool,
        now: impl FnOnce() -> u64,
    ) -> Then {
        if self.urgent || self.posts >= depth || self.octets >= FULL_OCTETS {
            return Then::Transmit;
        }
        let first = before == 0;
        if first && !self.more && reaped && (self.attended || self.single) {
            return Then::Transmit;
        }
        let now = now();
        // The connection was idle, or the posts were deferred long enough.
        let over = now.saturating_sub(self.since) >= BOUND_NS;
        if over && !(first && self.more) {
            return Then::Transmit;
        }
        if first {
            self.since = now;
        }
        let check_at = (!self.timed).then(|| now + self.check_ns);
        self.timed = true;
        Then::Defer { check_at }
    }

    /// Passes all deferred posts to the core's transmitter; false if there was none.
    pub(crate) fn release(&mut self) -> bool {
        if self.posts == 0 {
            return false;
        }
        self.single = self.posts == 1 && self.signalled;
        (self.posts, self.octets) = (0, 0);
        (self.urgent, self.more, self.attended) = (false, false, false);
        true
    }

    /// A transmission is over: the connection is idle only from now on.
    pub(crate) fn transmitted(&mut self, now: u64) {
        self.since = now;
    }

    /// The consumer's poll was empty, or it waits or arms: its next post has no other to wait for.
    pub(crate) fn attend(&mut self) {
        self.attended |= self.posts == 0;
    }

    /// The engine's timer expired. The more often a consumer polls in time, the longer its interval.
    pub(crate) fn on_timer(&mut self, now: u64) -> TimerResult {
        let overdue = self.posts != 0 && now.saturating_sub(self.since) >= BOUND_NS;
        self.check_ns = if overdue { BOUND_NS } else { (2 * self.check_ns).min(LAZY_NS) };
        self.timed = self.posts != 0 && !overdue;
        match (overdue, self.timed) {
            (true, _) => TimerResult::Overdue,
            (false, true) => TimerResult::Again(now + self.check_ns),
            (false, false) => TimerResult::Idle,
        }
    }
}

/// Payload octets that the request sends.
fn octets_out(wr: &SendWr<'_>) -> u64 {
    match (&wr.op, wr.data) {
        (SendOp::Read { .. } | SendOp::Atomic { .. }, _) => 0,
        (_, Data::Inline(octets)) => octets.len() as u64,
        // Most have one element, which is no loop then.
        (_, Data::Sgl([one])) => u64::from(one.len),
        (_, Data::Sgl(sgl)) => sgl.iter().map(|sge| u64::from(sge.len)).sum(),
    }
}

/// Operations within the RNIC send nothing, and the consumer waits for their effect.
fn is_local(op: &SendOp) -> bool {
    matches!(op, SendOp::BindMw(_) | SendOp::FastRegister(_) | SendOp::InvalidateLocal { .. })
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "coalesce_tests.rs"]
mod tests;
