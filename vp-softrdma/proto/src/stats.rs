//! Plain counters of one QP, for diagnostics.
//!
//! Owner: the QP; written by the thread that drives it. They outlive the stream: `reset` keeps them.

/// Counters since the QP was created. All wrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// FPDUs yielded for sending.
    pub fpdus_sent: u64,
    /// FPDUs received that passed MPA's checks.
    pub fpdus_received: u64,
    /// Payload octets in the FPDUs yielded.
    pub octets_sent: u64,
    /// Payload octets placed or delivered.
    pub octets_received: u64,
    /// Messages of the send queue whose last segment was yielded.
    pub messages_sent: u64,
    /// Messages received up to their last segment.
    pub messages_received: u64,
    /// RDMA Reads and Atomics of the peer that got their response.
    pub responses_sent: u64,
    /// Times the send queue waited because ORD was used up (RDMAC 6.5).
    pub ord_stalls: u64,
    /// Times the send queue waited for a fence.
    pub fence_stalls: u64,
}
