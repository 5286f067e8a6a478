//! Counts of a connection, for observers. Plain numbers; each half of a queue pair has its own.

/// What a queue pair has counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Our requests that completed with success.
    pub requests: u64,
    /// The peer's messages that arrived completely, Reads and atomics included.
    pub messages: u64,
    /// Reads and atomics of the peer that were executed.
    pub reads_served: u64,
    /// How often requests were sent again from the first packet that was not acknowledged: after a time-out or a
    /// report of loss.
    pub repeats: u64,
    /// RNR NAKs of the peer: it had no receive.
    pub not_ready: u64,
    /// Messages of the peer for which there was no receive when they first arrived.
    pub waited: u64,
    /// How often a Read or an atomic waited because as many as the peer serves at once were outstanding.
    pub read_stalls: u64,
}

impl Stats {
    /// The sums.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.wrapping_add(other.requests),
            messages: self.messages.wrapping_add(other.messages),
            reads_served: self.reads_served.wrapping_add(other.reads_served),
            repeats: self.repeats.wrapping_add(other.repeats),
            not_ready: self.not_ready.wrapping_add(other.not_ready),
            waited: self.waited.wrapping_add(other.waited),
            read_stalls: self.read_stalls.wrapping_add(other.read_stalls),
        }
    }
}
