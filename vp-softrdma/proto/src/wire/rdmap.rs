//! RDMAP control octet, opcodes, queues and message headers (RFC 5040 section 4, RFC 7306).
//!
//! Owner of the state: none, pure functions. Any thread. If the slice is too short:
//! [`WireError::Truncated`].

use super::{front, u32_at, u64_at};
use crate::{Stag, WireError};

/// RDMAP version of the IETF (RFC 5040 section 4.1) [RDMAP-01].
pub const VERSION: u8 = 1;

/// Queue numbers (RFC 5040 section 4.2, RFC 7306 section 10.2) [EXT-17].
pub mod qn {
    /// Send-type messages and Immediate Data.
    pub const SEND: u32 = 0;
    /// Read Requests and Atomic Requests.
    pub const REQUEST: u32 = 1;
    /// Terminate.
    pub const TERMINATE: u32 = 2;
    /// Atomic Responses.
    pub const ATOMIC_RESPONSE: u32 = 3;
}

/// Message kinds (RFC 5040 Figure 4, RFC 7306 section 10.1) [EXT-01].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Opcode {
    Write = 0,
    ReadRequest = 1,
    ReadResponse = 2,
    Send = 3,
    SendInvalidate = 4,
    SendSolicited = 5,
    SendSolicitedInvalidate = 6,
    Terminate = 7,
    Immediate = 8,
    ImmediateSolicited = 9,
    AtomicRequest = 10,
    AtomicResponse = 11,
    /// Of this implementation, between ends that agreed on it: a Send with 32 bits of immediate data in the
    /// place of the Invalidate STag. RFC 6580 leaves the opcode 0xF to experiments.
    SendImmediate = 0x0f,
    /// The same with Solicited Event: the lower reserved bit of the control octet, next to the opcode.
    SendImmediateSolicited = 0x1f,
}

impl Opcode {
    /// All assigned opcodes, in order.
    pub const ALL: [Self; 12] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendInvalidate,
        Self::SendSolicited,
        Self::SendSolicitedInvalidate,
        Self::Terminate,
        Self::Immediate,
        Self::ImmediateSolicited,
        Self::AtomicRequest,
        Self::AtomicResponse,
    ];

    /// The assigned opcode of a nibble; `None` for 12 to 15.
    pub const fn from_nibble(nibble: u8) -> Option<Self> {
        if (nibble as usize) < Self::ALL.len() { Some(Self::ALL[nibble as usize]) } else { None }
    }
    /// The queue it must use; `None`: tagged (RFC 5040 Figure 4) [RDMAP-02].
    pub const fn queue(self) -> Option<u32> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::ReadRequest | Self::AtomicRequest => Some(qn::REQUEST),
            Self::Terminate => Some(qn::TERMINATE),
            Self::AtomicResponse => Some(qn::ATOMIC_RESPONSE),
            _ => Some(qn::SEND),
        }
    }
    /// Uses a tagged header.
    pub const fn tagged(self) -> bool {
        self.queue().is_none()
    }
    /// Carries an Invalidate STag [RDMAP-03].
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }
    /// Asks for a solicited event [RDMAP-14].
    pub const fn solicited(self) -> bool {
        matches!(
            self,
            Self::SendSolicited
                | Self::SendSolicitedInvalidate
                | Self::ImmediateSolicited
                | Self::SendImmediateSolicited
        )
    }
    /// One of RFC 7306's.
    pub const fn extension(self) -> bool {
        self as u8 >= 8 && !self.experimental()
    }
    /// Not assigned: it means something only to ends that agreed on it.
    pub const fn experimental(self) -> bool {
        matches!(self, Self::SendImmediate | Self::SendImmediateSolicited)
    }
    /// The RFC's name of the message.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "RDMA Write",
            Self::ReadRequest => "RDMA Read Request",
            Self::ReadResponse => "RDMA Read Response",
            Self::Send => "Send",
            Self::SendInvalidate => "Send with Invalidate",
            Self::SendSolicited => "Send with Solicited Event",
            Self::SendSolicitedInvalidate => "Send with Solicited Event and Invalidate",
            Self::Terminate => "Terminate",
            Self::Immediate => "Immediate Data",
            Self::ImmediateSolicited => "Immediate Data with Solicited Event",
            Self::AtomicRequest => "Atomic Request",
            Self::AtomicResponse => "Atomic Response",
            Self::SendImmediate => "Send with Immediate",
            Self::SendImmediateSolicited => "Send with Immediate and Solicited Event",
        }
    }
}

/// RDMAP's control octet: `RV(2) Rsv(2) Opcode(4)` (RFC 5040 section 4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control(pub u8);

impl Control {
    /// Control octet of our own messages: version 1, reserved bits zero [RDMAP-01].
    pub const fn new(opcode: Opcode) -> Self {
        Self(VERSION << 6 | opcode as u8)
    }
    /// RV.
    pub const fn version(self) -> u8 {
        self.0 >> 6
    }
    /// The two reserved bits, to be ignored.
    pub const fn reserved(self) -> u8 {
        self.0 >> 4 & 0x03
    }
    /// The opcode's four bits.
    pub const fn nibble(self) -> u8 {
        self.0 & 0x0f
    }
    /// The opcode, if assigned or experimental.
    pub const fn opcode(self) -> Option<Opcode> {
        match (self.nibble(), self.reserved() & 1) {
            (0x0f, 0) => Some(Opcode::SendImmediate),
            (0x0f, _) => Some(Opcode::SendImmediateSolicited),
            (nibble, _) => Opcode::from_nibble(nibble),
        }
    }
}

/// RDMA Read Request header (RFC 5040 section 4.4) [RDMAP-04].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRequestRepr {
    /// Where the requester wants the data.
    pub sink_stag: Stag,
    /// Offset there.
    pub sink_to: u64,
    /// Octets to read.
    pub size: u32,
    /// What to read.
    pub source_stag: Stag,
    /// Offset there.
    pub source_to: u64,
}

impl ReadRequestRepr {
    /// Octets on the wire.
    pub const LEN: usize = 28;

    /// Reads the header from the front of a message's payload.
    pub fn parse(octets: &[u8]) -> Result<Self, WireError> {
        let o = front::<{ Self::LEN }>(octets)?;
        Ok(Self {
            sink_stag: Stag(u32_at(o, 0)),
            sink_to: u64_at(o, 4),
            size: u32_at(o, 12),
            source_stag: Stag(u32_at(o, 16)),
            source_to: u64_at(o, 20),
        })
    }
    /// The header's octets.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut o = [0; Self::LEN];
        o[..4].copy_from_slice(&self.sink_stag.0.to_be_bytes());
        o[4..12].copy_from_slice(&self.sink_to.to_be_bytes());
        o[12..16].copy_from_slice(&self.size.to_be_bytes());
        o[16..20].copy_from_slice(&self.source_stag.0.to_be_bytes());
        o[20..].copy_from_slice(&self.source_to.to_be_bytes());
        o
    }
}

/// Operation codes of an Atomic Request (RFC 7306 section 5.2.1, Figure 5) [EXT-05].
pub mod atomic {
    /// FetchAdd.
    pub const FETCH_ADD: u8 = 0;
    /// CmpSwap.
    pub const CMP_SWAP: u8 = 2;
}

/// Atomic Request header (RFC 7306 section 5.2.1) [EXT-04].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicRequestRepr {
    /// AOpCode, four bits, see [`atomic`].
    pub operation: u8,
    /// Echoed in the response.
    pub request_id: u32,
    /// The target.
    pub stag: Stag,
    /// Offset of the target.
    pub to: u64,
    /// Add Data or Swap Data.
    pub data: u64,
    /// Add Mask or Swap Mask.
    pub mask: u64,
    /// Compare Data; 0 for FetchAdd.
    pub compare: u64,
    /// Compare Mask; all ones for FetchAdd [EXT-06].
    pub compare_mask: u64,
}

impl AtomicRequestRepr {
    /// Octets on the wire.
    pub const LEN: usize = 52;

    /// Reads the header from the front of a message's payload; reserved bits are dropped.
    pub fn parse(octets: &[u8]) -> Result<Self, WireError> {
        let o = front::<{ Self::LEN }>(octets)?;
        Ok(Self {
            operation: o[3] & 0x0f,
            request_id: u32_at(o, 4),
            stag: Stag(u32_at(o, 8)),
            to: u64_at(o, 12),
            data: u64_at(o, 20),
            mask: u64_at(o, 28),
            compare: u64_at(o, 36),
            compare_mask: u64_at(o, 44),
        })
    }
    /// The header's octets.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut o = [0; Self::LEN];
        o[3] = self.operation & 0x0f;
        o[4..8].copy_from_slice(&self.request_id.to_be_bytes());
        o[8..12].copy_from_slice(&self.stag.0.to_be_bytes());
        o[12..20].copy_from_slice(&self.to.to_be_bytes());
        o[20..28].copy_from_slice(&self.data.to_be_bytes());
        o[28..36].copy_from_slice(&self.mask.to_be_bytes());
        o[36..44].copy_from_slice(&self.compare.to_be_bytes());
        o[44..].copy_from_slice(&self.compare_mask.to_be_bytes());
        o
    }
}

/// Atomic Response header (RFC 7306 section 5.2.2) [EXT-10].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicResponseRepr {
    /// The request's.
    pub request_id: u32,
    /// The target's value before the operation.
    pub original: u64,
}

impl AtomicResponseRepr {
    /// Octets on the wire.
    pub const LEN: usize = 12;

    /// Reads the header from the front of a message's payload.
    pub fn parse(octets: &[u8]) -> Result<Self, WireError> {
        let o = front::<{ Self::LEN }>(octets)?;
        Ok(Self { request_id: u32_at(o, 0), original: u64_at(o, 4) })
    }
    /// The header's octets.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut o = [0; Self::LEN];
        o[..4].copy_from_slice(&self.request_id.to_be_bytes());
        o[4..].copy_from_slice(&self.original.to_be_bytes());
        o
    }
}

/// Immediate Data: 8 octets, no more and no fewer (RFC 7306 section 6.2) [EXT-02].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImmediateRepr(pub u64);

impl ImmediateRepr {
    /// Octets on the wire.
    pub const LEN: usize = 8;

    /// Reads the data from the front of a message's payload.
    pub fn parse(octets: &[u8]) -> Result<Self, WireError> {
        front(octets).map(|o| Self(u64::from_be_bytes(*o)))
    }
    /// The data's octets.
    pub const fn emit(&self) -> [u8; Self::LEN] {
        self.0.to_be_bytes()
    }
}
