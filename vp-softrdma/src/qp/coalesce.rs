//! Coalescing of posts: when a post transmits, and when it waits for more to share a system call with.
//!
//! Belongs to one QP, under its lock. A post on an idle connection goes out at once. One that follows
//! another closely is deferred until the consumer polls and finds nothing, waits, or arms a CQ, a batch is
//! full, or the bound has passed: the next post notices, or a timer of the engine, for a consumer that
//! posts and never polls; the timer is set again for a millisecond later if a thread is inside the QP then.
//! When the peer dies the core flushes what is deferred like everything else.
//!
//! What is deferred is in the core's send queue like any posted work; only its transmission is put off.

use crate::tuning::{BOUND_NS, FULL_OCTETS, LAZY_NS};
use vp_api::{Data, SendFlags, SendOp, SendWr};

/// What was posted and not transmitted, and what is known of the consumer's habits.
#[derive(Debug)]
pub(crate) struct Coalesce {
    posts: u32,
    octets: u64,
    /// Something among it must not be deferred.
    urgent: bool,
    signalled: bool,
    /// The consumer says that more follows.
    more: bool,
    /// When the first of it was posted, or else when the last transmission was.
    since: u64,
    /// The consumer polled, waited or armed, and nothing was deferred.
    attended: bool,
    /// The last transmission was a single post, of which the consumer hears.
    single: bool,
    /// The engine is going to look, after so many nanoseconds.
    timed: bool,
    look_ns: u64,
}

/// What to do after a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// Transmit.
    Transmit,
    /// Leave it. `look_at`: and have the engine look then.
    Defer {
        /// On the engine's clock.
        look_at: Option<u64>,
    },
}

/// What the engine finds when it looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// Nothing is deferred.
    Idle,
    /// What is deferred is to go out.
    Overdue,
    /// Not yet: look again at this time.
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
            look_ns: BOUND_NS,
        }
    }
}

impl Coalesce {
    /// Posts that are deferred.
    pub(crate) fn deferred(&self) -> u32 {
        self.posts
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

    /// After a post on a connection where `before` posts were deferred. `depth`: that of the queue;
    /// `reaped`: the CQ has no completion that was not polled; `now` reads the engine's clock.
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
        // Idle, or deferred long enough.
        let over = now.saturating_sub(self.since) >= BOUND_NS;
        if over && !(first && self.more) {
            return Then::Transmit;
        }
        if first {
            self.since = now;
        }
        let look_at = (!self.timed).then(|| now + self.look_ns);
        self.timed = true;
        Then::Defer { look_at }
    }

    /// All of it is with the core's transmitter now; false if there was nothing.
    pub(crate) fn release(&mut self) -> bool {
        if self.posts == 0 {
            return false;
        }
        self.single = self.posts == 1 && self.signalled;
        (self.posts, self.octets) = (0, 0);
        (self.urgent, self.more, self.attended) = (false, false, false);
        true
    }

    /// A transmission is over: only from now on the connection is idle.
    pub(crate) fn transmitted(&mut self, now: u64) {
        self.since = now;
    }

    /// The consumer polled in vain, waits, or arms: nothing it posts now has anything to wait for.
    pub(crate) fn attend(&mut self) {
        self.attended |= self.posts == 0;
    }

    /// The engine looks. The more often a consumer polls in time, the more seldom it does so.
    pub(crate) fn look(&mut self, now: u64) -> Look {
        let overdue = self.posts != 0 && now.saturating_sub(self.since) >= BOUND_NS;
        self.look_ns = if overdue { BOUND_NS } else { (2 * self.look_ns).min(LAZY_NS) };
        self.timed = self.posts != 0 && !overdue;
        match (overdue, self.timed) {
            (true, _) => Look::Overdue,
            (false, true) => Look::Again(now + self.look_ns),
            (false, false) => Look::Idle,
        }
    }
}

/// Payload octets that the request sends.
fn octets_out(wr: &SendWr<'_>) -> u64 {
    match (&wr.op, wr.data) {
        (SendOp::Read { .. } | SendOp::Atomic { .. }, _) => 0,
        (_, Data::Inline(octets)) => octets.len() as u64,
        (_, Data::Sgl(sgl)) => sgl.iter().map(|sge| u64::from(sge.len)).sum(),
    }
}

/// Operations within the RNIC send nothing; their effect is waited for.
fn is_local(op: &SendOp) -> bool {
    matches!(op, SendOp::BindMw(_) | SendOp::FastRegister(_) | SendOp::InvalidateLocal { .. })
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "coalesce_tests.rs"]
mod tests;
