//! MPA start-up (RFC 5044 section 7.1, RFC 6581) as two state machines.
//!
//! [`Initiator`]: send `request()`, feed octets to `handle` until it returns a result.
//! [`Responder`]: feed octets to `handle` until a request is complete, then `accept` or `reject`.
//!
//! Owner of the state: the connection manager, one thread at a time. Each machine is at most 128
//! octets plus the frames it holds (at most 532 octets each). No clock: the owner bounds the exchange
//! [CONN-13]. When the peer dies, `handle_eof` names the error; a silent peer is the owner's time-out.

mod frame;
mod initiator;
mod negotiate;
mod responder;

use alloc::vec::Vec;
use core::fmt;

pub use initiator::Initiator;
pub use responder::Responder;

use crate::types::{Role, RtrKind};
use crate::wire::mpa::{EnhancedRepr, MAX_PRIVATE_DATA, NO_NEGOTIATION};

/// Set of RTR kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct RtrSet {
    pub send: bool,
    pub write: bool,
    pub read: bool,
}

impl RtrSet {
    /// The empty set.
    pub const fn is_empty(self) -> bool {
        !(self.send || self.write || self.read)
    }
    /// Kinds in both sets.
    pub const fn common(self, other: Self) -> Self {
        Self {
            send: self.send && other.send,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }
    /// The kind to use: Write costs nothing at the peer, Send takes a receive buffer and is the last
    /// resort [CONN-30].
    pub const fn preferred(self) -> Option<RtrKind> {
        match self {
            Self { write: true, .. } => Some(RtrKind::Write),
            Self { read: true, .. } => Some(RtrKind::Read),
            Self { send: true, .. } => Some(RtrKind::Send),
            _ => None,
        }
    }
    const fn only(kind: RtrKind) -> Self {
        Self {
            send: matches!(kind, RtrKind::Send),
            write: matches!(kind, RtrKind::Write),
            read: matches!(kind, RtrKind::Read),
        }
    }
    const fn of(block: EnhancedRepr) -> Self {
        Self { send: block.rtr_send, write: block.rtr_write, read: block.rtr_read }
    }
}

/// Parameters of this end; the same for both roles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartupConfig {
    /// Initiator: revision to ask with (1 or 2). Responder: highest revision accepted.
    pub revision: u8,
    /// Ask for CRC (default on, RFC 5044 section 4.4) [MPA-12]. In force if either side asks.
    pub crc: bool,
    /// Refuse a peer that asks for CRC.
    pub refuse_crc: bool,
    /// We need markers in what we receive [CONN-02].
    pub markers: bool,
    /// Refuse to insert markers for the peer.
    pub refuse_markers: bool,
    /// Inbound reads we can take, 0..=0x3FFE; 0x3FFF: do not negotiate; more counts as 0x3FFE.
    pub ird: u16,
    /// Outbound reads we want, as `ird`.
    pub ord: u16,
    /// IRD may be raised up to this by negotiation.
    pub max_ird: u16,
    /// As initiator ask in the enhanced form (RFC 6581); needs revision 2. Only for those who want
    /// one of its features: limits, "do not negotiate", or an RTR [CONN-19].
    pub enhanced: bool,
    /// Peer-to-peer: kinds we can do. Empty: an initiator asks for client-server; a responder that
    /// is asked for peer-to-peer takes Write or Read [CONN-28].
    pub rtr: RtrSet,
}

impl Default for StartupConfig {
    /// Revision 2, CRC on, no markers of ours, markers for the peer if it demands them, 16 reads each
    /// way, client-server.
    fn default() -> Self {
        Self {
            revision: 2,
            crc: true,
            refuse_crc: false,
            markers: false,
            refuse_markers: false,
            ird: 16,
            ord: 16,
            max_ird: 16,
            enhanced: true,
            rtr: RtrSet::default(),
        }
    }
}

impl StartupConfig {
    /// IRD and ORD as 14-bit fields (RFC 6581 section 9) [CONN-20].
    const fn clamped(mut self) -> Self {
        self.ird = clamp(self.ird);
        self.ord = clamp(self.ord);
        self.max_ird = clamp(self.max_ird);
        self
    }
    /// RFC 6581 6, 10 [CONN-16, CONN-19]
    const fn asks_enhanced(&self) -> bool {
        self.enhanced && self.revision >= 2
    }
}

const fn clamp(value: u16) -> u16 {
    if value > NO_NEGOTIATION { NO_NEGOTIATION - 1 } else { value }
}

/// What both ends agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Negotiated {
    pub role: Role,
    /// 1 or 2, the IETF's: DDP and RDMAP use version 1 on this stream [MPA-36].
    pub revision: u8,
    /// CRC in force in both directions [MPA-13].
    pub crc: bool,
    /// We insert markers.
    pub markers_tx: bool,
    /// The peer inserts markers.
    pub markers_rx: bool,
    /// Inbound limit; 0x3FFF: not negotiated, the owner's own limit holds.
    pub ird: u16,
    /// Outbound limit; 0x3FFF: not negotiated, the owner's own limit holds.
    pub ord: u16,
    /// The peer's IRD and ORD as it sent them, if it sent any [CONN-25].
    pub peer_ird_ord: Option<(u16, u16)>,
    /// Initiator: the RTR to send first. Responder: the one kind that was offered in the reply.
    pub rtr: Option<RtrKind>,
}

/// Why start-up ended without a connection. Unless said otherwise: close TCP, send nothing [ERR-01].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StartupError {
    /// Key is neither a request's nor a reply's.
    BadKey {
        /// Offset of the first octet that does not fit.
        at: usize,
    },
    /// The key of our own role: both ends are initiators, or a reply reached a responder [CONN-12].
    WrongRole,
    /// A revision that we cannot work with [CONN-06]. Responder: see `reply_for`.
    Revision {
        /// Rev of the frame.
        got: u8,
    },
    /// PD_Length above 512 [CONN-07].
    PrivateDataTooLong {
        /// PD_Length of the frame.
        got: u16,
    },
    /// S=1 but PD_Length below 4.
    EnhancedTooShort {
        /// PD_Length of the frame.
        got: u16,
    },
    /// Reply form does not match the request's (RFC 6581 section 10) [CONN-17].
    FormMismatch,
    /// The peer demands markers and we refuse. Responder: see `reply_for`.
    Markers,
    /// CRC policies conflict. Responder: see `reply_for`.
    CrcPolicy,
    /// Responder's ORD above what our IRD can be: Terminate 2/0/6 [CONN-24].
    InsufficientIrd {
        /// The responder's ORD.
        need: u16,
        /// Our highest IRD.
        have: u16,
    },
    /// No common RTR: Terminate 2/0/7 [CONN-29].
    NoCommonRtr,
    /// Another local failure after the reply: Terminate 2/0/5 [CONN-32]. Never returned here;
    /// the owner passes it to `terminate_for`.
    Local,
    /// Private data of ours longer than 512 (508 with the enhanced block).
    OurPrivateDataTooLong {
        /// Octets given.
        len: usize,
        /// Octets possible.
        max: usize,
    },
    /// `accept` or `reject` before a request is complete [CONN-08].
    NoRequest,
    /// The stream ended within a frame.
    Eof {
        /// Octets of the frame that had arrived.
        have: usize,
    },
}

impl fmt::Display for StartupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadKey { at } => {
                write!(f, "peer does not speak mpa: octet {at} of its first frame fits no key")
            }
            Self::WrongRole => f.write_str(
                "peer sent the frame of our own role: both ends connect, or both ends listen",
            ),
            Self::Revision { got } => {
                write!(f, "peer's mpa revision {got} is not supported: use revision 1 or 2")
            }
            Self::PrivateDataTooLong { got } => {
                write!(f, "peer announces {got} octets of private data, 512 are allowed")
            }
            Self::EnhancedTooShort { got } => {
                write!(f, "enhanced frame with {got} octets of private data, it needs 4")
            }
            Self::FormMismatch => {
                f.write_str("reply's form is not the request's (rfc 6581): try the other form")
            }
            Self::Markers => f.write_str("peer demands markers and local policy refuses them"),
            Self::CrcPolicy => f.write_str("peer's crc setting conflicts with local policy"),
            Self::InsufficientIrd { need, have } => {
                write!(f, "peer wants {need} outstanding reads, at most {have} can be taken")
            }
            Self::NoCommonRtr => f.write_str("no ready-to-receive kind in common with the peer"),
            Self::Local => f.write_str("local failure during mpa start-up"),
            Self::OurPrivateDataTooLong { len, max } => {
                write!(f, "{len} octets of private data, at most {max} fit")
            }
            Self::NoRequest => f.write_str("no complete request to reply to yet"),
            Self::Eof { have } => {
                write!(f, "peer closed the connection after {have} octets of its mpa frame")
            }
        }
    }
}

impl core::error::Error for StartupError {}

/// Progress of a start-up machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step<T> {
    /// Feed more octets.
    NeedMore,
    /// Done; `consumed` octets of the last argument belonged to the frame, the rest is the first
    /// octets of full operation [MPA-42].
    Done {
        /// Octets used.
        consumed: usize,
        /// The result.
        value: T,
    },
}

/// The responder's reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Accepted.
    Accepted {
        /// What was agreed.
        negotiated: Negotiated,
        /// The ULP's private data, without the enhanced block.
        private_data: Vec<u8>,
    },
    /// R bit set. No FPDU may follow; close unless the ULP wants the TCP stream (AMB-01) [CONN-10].
    Rejected {
        /// The ULP's private data, without the enhanced block.
        private_data: Vec<u8>,
        /// IRD and ORD that the peer put into the reject [CONN-25].
        peer_ird_ord: Option<(u16, u16)>,
        /// Revision of the reply: a lower one than asked for hints at a retry with it.
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
    /// Kinds that the initiator can send; empty unless `peer_to_peer`.
    pub rtr: RtrSet,
    /// IRD and ORD as sent, if sent [CONN-25].
    pub ird_ord: Option<(u16, u16)>,
    /// The ULP's, without the enhanced block.
    pub private_data: Vec<u8>,
}

/// Most private data of the ULP in a frame [CONN-07].
pub const fn max_private_data(enhanced: bool) -> usize {
    if enhanced { MAX_PRIVATE_DATA - EnhancedRepr::LEN } else { MAX_PRIVATE_DATA }
}
