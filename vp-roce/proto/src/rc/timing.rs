//! Round trips: the time from a packet that asks for a reply to that reply, one at a time. They are shown to observers,
//! and decide when unacknowledged packets are repeated: after the time that was asked for where the peer is near, so
//! that losses are repaired soon, and counted no more often than [`RcConfig::count_after`] says: a slow peer is not
//! given up.
//!
//! Owner of the state: the requester. A packet that is sent again is not timed, as its reply may be that to the first.

use super::RcConfig;
use crate::psn::Psn;

/// A new round trip has this part of the smoothed one: an eighth (RFC 6298 section 2).
const PART: u64 = 8;
/// So many of the longest round trips of late pass before packets are repeated.
const ROUND_TRIPS: u64 = 4;

/// Round trips of a connection, in microseconds; they include the time that the peer takes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RoundTrip {
    /// Smoothed.
    pub recent: u64,
    /// The shortest.
    pub shortest: u64,
}

#[derive(Debug, Default)]
pub(super) struct Timing {
    /// The packet that is timed, and when it was sent.
    timed: Option<(Psn, u64)>,
    known: Option<RoundTrip>,
    /// The longest of late, if one is known.
    longest: u64,
    /// Microseconds without progress since a time-out was counted, and the time-outs in them.
    waited: u64,
    early: u32,
}

impl Timing {
    pub(super) const fn known(&self) -> Option<RoundTrip> {
        self.known
    }

    /// A packet that asks for a reply is sent for the first time.
    pub(super) fn sent(&mut self, psn: Psn, now: u64) {
        self.timed = self.timed.or(Some((psn, now)));
    }

    /// A reply to this packet arrived, and thereby to all before it.
    pub(super) fn replied(&mut self, psn: Psn, now: u64) {
        let Some((_, sent)) = self.timed.take_if(|(timed, _)| psn.ahead_of(*timed) >= 0) else {
            return;
        };
        // It includes less than the clock shows, so none is zero.
        let took = now.saturating_sub(sent).max(1);
        self.longest = took.max(self.longest - self.longest / PART);
        self.known = Some(match self.known {
            None => RoundTrip { recent: took, shortest: took },
            Some(RoundTrip { recent, shortest }) => RoundTrip {
                recent: recent - recent / PART + took / PART,
                shortest: shortest.min(took),
            },
        });
    }

    /// More is acknowledged.
    pub(super) fn progress(&mut self) {
        (self.waited, self.early) = (0, 0);
    }

    /// Packets are sent again.
    pub(super) fn repeats(&mut self) {
        self.timed = None;
    }

    /// Microseconds until packets count as lost.
    pub(super) fn time_out(&self, config: &RcConfig) -> Option<u64> {
        let asked = config.ack_timeout?;
        let most = asked.max(config.count_after);
        let near = match self.known {
            Some(_) if config.retry_count > 0 => self.longest.saturating_mul(ROUND_TRIPS),
            _ => most,
        };
        let backed_off = asked.max(near).saturating_mul(1 << self.early.min(8));
        Some(backed_off.min(most.saturating_sub(self.waited)))
    }

    /// That time is over: whether it counts.
    pub(super) fn expire(&mut self, config: &RcConfig) -> bool {
        let Some(after) = self.time_out(config) else { return false };
        self.waited += after;
        self.early += 1;
        let counts = self.waited >= config.count_after;
        if counts {
            (self.waited, self.early) = (0, 0);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_packet_at_a_time_is_timed_and_none_that_is_sent_again() {
        let (mut timing, psn) = (Timing::default(), Psn::new);
        timing.sent(psn(1), 100);
        timing.sent(psn(2), 150);
        timing.replied(psn(0), 160);
        assert_eq!(timing.known(), None);
        timing.replied(psn(2), 180);
        let first = RoundTrip { recent: 80, shortest: 80 };
        assert_eq!(timing.known(), Some(first));
        timing.replied(psn(2), 900);
        timing.sent(psn(3), 200);
        timing.repeats();
        timing.replied(psn(3), 5000);
        assert_eq!(timing.known(), Some(first));
        timing.sent(psn(4), 6000);
        timing.replied(psn(4), 6720);
        assert_eq!(timing.known(), Some(RoundTrip { recent: 160, shortest: 80 }));
    }
}
