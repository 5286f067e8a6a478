//! MPA start-up (RFC 5044 section 7.1, RFC 6581) as two state machines.
//!
//! [`Initiator`]: send `request()`, feed octets to `handle` until it answers.
//! [`Responder`]: feed octets to `handle` until a request is complete, then `accept` or `reject`.
use alloc::vec::Vec;

use crate::types::{Role, RtrKind};

/// Set of RTR kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct RtrSet {
    pub send: bool,
    pub write: bool,
    pub read: bool,
}

/// What this end wants; the same for both roles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartupConfig {
    /// Initiator: revision to ask with (1 or 2). Responder: highest revision accepted.
    pub revision: u8,
    /// Ask for CRC (default on, RFC 5044 section 4.4).
    pub crc: bool,
    /// With `crc`: as initiator refuse a reply... (CRC is in force if either side asks).
    /// Without: refuse a peer that insists on CRC.
    pub crc_strict: bool,
    /// We need markers in what we receive.
    pub markers: bool,
    /// Refuse to insert markers for the peer.
    pub refuse_markers: bool,
    /// Inbound reads we can take, 0..=0x3FFE; 0x3FFF: do not negotiate.
    pub ird: u16,
    /// Outbound reads we want.
    pub ord: u16,
    /// IRD may be raised up to this by negotiation.
    pub max_ird: u16,
    /// Send the enhanced (RFC 6581) form; needs revision 2.
    pub enhanced: bool,
    /// Peer-to-peer: kinds we can do; all false means client-server.
    pub rtr: RtrSet,
}

/// What both ends agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Negotiated {
    pub role: Role,
    pub revision: u8,
    pub crc: bool,
    /// We insert markers.
    pub markers_tx: bool,
    /// The peer inserts markers.
    pub markers_rx: bool,
    pub ird: u16,
    pub ord: u16,
    /// The peer's IRD and ORD as it sent them, if it sent any (RFC 6581 9.1: for the ULP).
    pub peer_ird_ord: Option<(u16, u16)>,
    pub rtr: Option<RtrKind>,
}

/// Why start-up ended without a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum StartupError {
    /// Key is neither a request's nor a reply's; or the one of our own role.
    BadKey { at: usize },
    WrongRole,
    Revision { got: u8 },
    PrivateDataTooLong { got: u16 },
    EnhancedTooShort { got: u16 },
    /// Reply form does not match the request's (RFC 6581 section 10).
    FormMismatch,
    /// The peer demands markers and we refuse, or CRC policy conflicts.
    Markers,
    CrcPolicy,
    /// Responder's ORD above what our IRD can be: Terminate 2/0/6.
    InsufficientIrd { need: u16, have: u16 },
    /// No common RTR: Terminate 2/0/7.
    NoCommonRtr,
    /// Private data of ours longer than 512 (508 with the enhanced block).
    OurPrivateDataTooLong { len: usize, max: usize },
    /// Octets behind the request, or behind the reply of a responder that may not send first,
    /// are allowed; a stream that ends early is not.
    Eof { have: usize },
}

/// Progress of a start-up machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step<T> {
    /// Feed more octets.
    NeedMore,
    /// Done; `consumed` octets of the last argument belonged to the frame, the rest is the
    /// first octets of full operation.
    Done {
        /// Octets used.
        consumed: usize,
        /// The result.
        value: T,
    },
}

/// How the responder answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Accepted.
    Accepted {
        /// What was agreed.
        negotiated: Negotiated,
        /// The ULP's private data, without the enhanced block.
        private_data: Vec<u8>,
    },
    /// R bit set.
    Rejected {
        /// The ULP's private data, without the enhanced block.
        private_data: Vec<u8>,
        /// IRD and ORD that the peer put into the reject.
        peer_ird_ord: Option<(u16, u16)>,
        /// Markers bit, revision: tell a marker refusal (siw) from a ULP's reject.
        revision: u8,
    },
}

/// A complete, valid request.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Request {
    pub revision: u8,
    pub crc: bool,
    pub markers: bool,
    pub enhanced: bool,
    pub peer_to_peer: bool,
    pub rtr: RtrSet,
    pub ird_ord: Option<(u16, u16)>,
    pub private_data: Vec<u8>,
}

/// The side that connects.
pub struct Initiator;
#[allow(unused_variables)]
impl Initiator {
    /// Builds the request.
    pub fn new(config: StartupConfig, private_data: &[u8]) -> Result<Self, StartupError> { todo!() }
    /// The request's octets: one write, nothing behind it until the answer is there.
    pub fn request(&self) -> &[u8] { todo!() }
    /// Octets from the peer, each octet once.
    pub fn handle(&mut self, octets: &[u8]) -> Result<Step<Answer>, StartupError> { todo!() }
    /// The Terminate FPDU to send for an error, if RFC 6581 wants one.
    pub fn terminate_for(&self, error: StartupError, crc32c: crate::Crc32c) -> Option<Vec<u8>> { todo!() }
}

/// The side that listens.
pub struct Responder;
#[allow(unused_variables)]
impl Responder {
    /// Waits for a request.
    pub fn new(config: StartupConfig) -> Self { todo!() }
    /// Octets from the peer, each octet once.
    pub fn handle(&mut self, octets: &[u8]) -> Result<Step<Request>, StartupError> { todo!() }
    /// The accepting reply and what was agreed. `ird`/`ord` override the configuration's.
    pub fn accept(&self, ird: u16, ord: u16, private_data: &[u8]) -> Result<(Vec<u8>, Negotiated), StartupError> { todo!() }
    /// A rejecting reply.
    pub fn reject(&self, private_data: &[u8]) -> Result<Vec<u8>, StartupError> { todo!() }
    /// What to send before closing after an error of `handle` (RFC 5044: mostly nothing).
    pub fn reply_for(&self, error: StartupError) -> Option<Vec<u8>> { todo!() }
}
