//! When unacknowledged packets are repeated: after the time that was asked for where the peer is near, so that losses
//! are repaired soon, and counted no more often than [`RcConfig::count_after`] says: a slow peer is not given up.
//!
//! Owner of the state: the requester.

use super::RcConfig;
use crate::psn::Psn;

/// So many of the longest round trips of late pass before packets are repeated.
const ROUND_TRIPS: u64 = 4;

#[derive(Default, Debug)]
pub(super) struct RoundTrip {
    /// A packet that asked for an acknowledgement, and when it was sent.
    timed: Option<(Psn, u64)>,
    /// The longest of late; `None`: none was measured.
    longest: Option<u64>,
    /// Microseconds without progress since a time-out was counted, and the time-outs in them.
    waited: u64,
    early: u32,
}

impl RoundTrip {
    /// A packet leaves that asks for an acknowledgement.
    pub(super) fn begin(&mut self, psn: Psn, now: u64) {
        self.timed.get_or_insert((psn, now));
    }

    /// All before `end` is acknowledged.
    pub(super) fn progress(&mut self, end: Psn, now: u64) {
        (self.waited, self.early) = (0, 0);
        let Some((_, sent)) = self.timed.take_if(|(psn, _)| end.ahead_of(*psn) > 0) else { return };
        let (last, before) = (now.saturating_sub(sent), self.longest.unwrap_or(0));
        self.longest = Some(last.max(before - before / 8));
    }

    /// Packets are repeated: of these it is not known which one is acknowledged.
    pub(super) fn repeat(&mut self) {
        self.timed = None;
    }

    /// Microseconds until packets count as lost.
    pub(super) fn time_out(&self, config: &RcConfig) -> Option<u64> {
        let asked = config.ack_timeout?;
        let most = asked.max(config.count_after);
        let near = match self.longest {
            Some(longest) if config.retry_count > 0 => longest.saturating_mul(ROUND_TRIPS),
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
