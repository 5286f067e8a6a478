//! Parameters of a QP at its creation and when it gets its stream.
//!
//! Plain values; the QP keeps a copy.

use crate::types::{Crc32c, Role, RtrKind};

/// Parameters that are fixed when a QP is created.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Send-queue WQEs.
    pub sq_depth: u32,
    /// Inbound Read/Atomic requests that may wait: allocated once, the negotiated IRD may be lower.
    pub max_ird: u16,
    /// Outstanding Reads/Atomics: allocated once, the negotiated ORD may be lower.
    pub max_ord: u16,
    /// Octets that one Read Request asks for, at least 1: a longer RDMA Read goes out as several, so
    /// that whatever else the peer has to send waits for one of them only [IOP-13].
    pub max_read_request: u32,
    /// RFC 7306 (atomics, immediate data) accepted and offered [EXT-16].
    pub extensions: bool,
    /// A Send-type message for which no receive is posted is buffered until one is: this many octets of
    /// the stream may be read meanwhile, see [`crate::Qp::hold_room`]; 0: the message ends the stream.
    pub hold: u32,
    /// The CRC kernel.
    pub crc32c: Crc32c,
}

/// What MPA start-up negotiated; needed to enter RTS.
#[derive(Clone, Copy, Debug)]
pub struct StreamConfig {
    /// Our role in the start-up.
    pub role: Role,
    /// CRC in force, both directions (RFC 5044 section 7.1.1).
    pub crc: bool,
    /// The peer demanded markers: we insert them.
    pub markers_tx: bool,
    /// We demanded markers: the peer inserts them.
    pub markers_rx: bool,
    /// Largest ULPDU to build, see [`crate::mpa::mulpdu`].
    pub mulpdu: u16,
    /// Inbound Read/Atomic limit of this connection.
    pub ird: u16,
    /// Outbound Read/Atomic limit of this connection.
    pub ord: u16,
    /// Peer-to-peer RTR agreed upon (RFC 6581 section 9.2): sent by the initiator, expected and
    /// swallowed by the responder.
    pub rtr: Option<RtrKind>,
    /// Both ends agreed, outside of MPA, on Sends with Immediate: other peers do not understand them.
    pub send_immediates: bool,
}

/// Where a stream stands, for [`crate::Qp::start_at`]: a test that begins in the middle, or just
/// before a number wraps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamPosition {
    /// Octets received since full operation began (only the marker grid depends on it).
    pub octets_received: u32,
    /// Octets sent since full operation began.
    pub octets_sent: u32,
    /// Next MSN that the peer must use, by queue number.
    pub receive_msn: [u32; 4],
    /// Next MSN that we use, by queue number.
    pub send_msn: [u32; 4],
    /// Identifier of our next Atomic Request.
    pub request_id: u32,
}

impl StreamPosition {
    /// The beginning: every MSN is 1 (RFC 5041 section 4.3) [DDP-06].
    pub const START: Self = Self {
        octets_received: 0,
        octets_sent: 0,
        receive_msn: [1; 4],
        send_msn: [1; 4],
        request_id: 1,
    };
}
