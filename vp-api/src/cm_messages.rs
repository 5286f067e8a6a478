//! What InfiniBand's connection messages say beyond the events of a native connection manager, and exchanges of
//! messages between ends that bring up their queue pairs themselves.

use crate::{QpId, VpResult};

/// The messages of a native connection manager: [`crate::Rnic::cm_messages`].
pub trait CmMessages: Send + Sync {
    /// Before connect or accept of a queue pair that takes no part: its messages name `number`, which is only carried
    /// to the peer. The queue pair stands for the exchange, and stays Idle. Then the event Established at the end that
    /// connects means that the peer has accepted, and [`CmMessages::establish`] completes the exchange.
    fn carry(&self, qp: QpId, number: u32) -> VpResult<()>;
    /// Sends the last message of such an exchange, with which the end that accepted is established.
    /// [`crate::VpStatus::InvalidState`]: the peer has not accepted, or it was sent already.
    fn establish(&self, qp: QpId) -> VpResult<()>;
    /// What both ends of a connection, or of an attempt, have said; `None`: nothing yet.
    fn terms(&self, qp: QpId) -> Option<PathTerms>;
    /// The same of a request that the application has not decided.
    fn offered(&self, request: u64) -> Option<PathTerms>;
    /// Why the peer rejected the last attempt of a queue pair, as the code of its message (InfiniBand volume 1,
    /// 12.6.7.2); `None`: there was no such message.
    fn refusal(&self, qp: QpId) -> Option<u16>;
}

/// The path between two queue pairs, as the messages of both ends define it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathTerms {
    /// Number that the peer named.
    pub qpn: u32,
    /// PSN of the first request of this end.
    pub send_psn: u32,
    /// PSN of the first request of the peer.
    pub receive_psn: u32,
    /// Largest packet, in InfiniBand's code (1: 256 octets, 5: 4096).
    pub mtu_code: u8,
    /// Code of the time after which unacknowledged packets are repeated.
    pub ack_timeout: u8,
    /// How often they are repeated, 0 to 7.
    pub retry_count: u8,
    /// How often a Send that found no receive is repeated, 0 to 7.
    pub rnr_retry: u8,
    /// Code of the time after which a Send that found no receive is repeated.
    pub min_rnr_timer: u8,
    /// Outstanding inbound reads and atomics.
    pub ird: u16,
    /// Outstanding outbound reads and atomics.
    pub ord: u16,
    /// The peer's queue pair has a shared receive queue.
    pub srq: bool,
}
