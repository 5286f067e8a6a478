//! Changes of a connection between two snapshots, per second. Plain numbers.

use std::collections::HashMap;

use state_page::read::QueuePair;

use super::id::Id;
use super::pages::{Seen, Snapshot};

/// Per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rate {
    pub(crate) octets_sent: f64,
    pub(crate) octets_received: f64,
    pub(crate) messages: f64,
    pub(crate) stalls: f64,
}

impl std::ops::AddAssign for Rate {
    fn add_assign(&mut self, other: Self) {
        self.octets_sent += other.octets_sent;
        self.octets_received += other.octets_received;
        self.messages += other.messages;
        self.stalls += other.stalls;
    }
}

/// The earlier snapshot, to compare with.
pub(crate) struct Earlier<'a> {
    queue_pairs: HashMap<Id, &'a QueuePair>,
    seconds: f64,
}

impl<'a> Earlier<'a> {
    pub(crate) fn new(before: &'a Snapshot, snapshot: &Snapshot) -> Self {
        let all = |seen: &'a Seen| {
            seen.page.queue_pairs.iter().map(move |qp| (Id::queue_pair(seen, qp), qp))
        };
        let queue_pairs = before.processes.iter().flat_map(all).collect();
        Self { queue_pairs, seconds: super::between(before, snapshot).as_secs_f64() }
    }

    /// The rates of a connection; zeros if it is new.
    pub(crate) fn rate(&self, seen: &Seen, now: &QueuePair) -> Rate {
        let Some(before) = self.queue_pairs.get(&Id::queue_pair(seen, now)) else {
            return Rate::default();
        };
        let per_second = |now: u64, before: u64| now.wrapping_sub(before) as f64 / self.seconds;
        let messages = |qp: &QueuePair| qp.messages_sent.wrapping_add(qp.messages_received);
        let stalls = |qp: &QueuePair| qp.send_stalls.wrapping_add(qp.ord_stalls);
        Rate {
            octets_sent: per_second(now.octets_sent, before.octets_sent),
            octets_received: per_second(now.octets_received, before.octets_received),
            messages: per_second(messages(now), messages(before)),
            stalls: per_second(stalls(now), stalls(before)),
        }
    }
}
