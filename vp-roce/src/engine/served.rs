//! What the engine and completion queues need of a queue pair, connected or for datagrams.

use std::sync::Arc;

use roce_proto::wire::packet::Packet;

use super::socket::{Arrived, Socket};

/// A queue pair as the engine sees it.
pub(crate) trait Served: Send + Sync {
    /// Handles a packet for its number. Replies wait for [`Served::settle`], so that one is enough for packets that arrive
    /// together. Returns our id of the exchange that the packet confirms, if any.
    fn receive(
        &self,
        now: u64,
        socket: &Arc<Socket>,
        arrived: &Arrived<'_>,
        packet: &Packet<'_>,
    ) -> Option<u32>;

    /// The timer that was set for `at` is due.
    fn on_timer(&self, _at: u64, _now: u64) {}

    /// Sends replies, and does the work that was deferred until no lock is held. `may_keep`: an acknowledgement may be
    /// kept for the consumer's next request. Returns whether one is.
    fn settle(&self, may_keep: bool) -> bool;

    /// Ends it from this end, with everything that is posted.
    fn end(&self);
}
