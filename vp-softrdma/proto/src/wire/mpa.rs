//! MPA: start-up frames and their enhanced block, FPDU sizes, markers (RFC 5044, RFC 6581).
//!
//! Owner of the state: none, pure functions. Any thread. If the slice is too short:
//! [`WireError::Truncated`].

use super::{front, part, u16_at};
use crate::WireError;

/// Octets of the ULPDU_Length field.
pub const LENGTH_LEN: usize = 2;
/// Octets of the CRC field, always there [MPA-06].
pub const CRC_LEN: usize = 4;
/// Most pad octets [MPA-03].
pub const MAX_PAD: usize = 3;
/// Octets of a marker.
pub const MARKER_LEN: usize = 4;
/// Distance between the first octets of two markers (RFC 5044 section 4.3).
pub const MARKER_INTERVAL: usize = 512;
/// Largest ULPDU that DDP may post (RFC 5044 section 3) [MPA-16].
pub const MAX_ULPDU: u16 = 64768;
/// Most private data in a start-up frame, the enhanced block included [CONN-07].
pub const MAX_PRIVATE_DATA: usize = 512;
/// IRD or ORD value for "no automatic negotiation" (RFC 6581 section 9.1) [CONN-26].
pub const NO_NEGOTIATION: u16 = 0x3fff;

/// Pad octets after a ULPDU, 0 to 3 (RFC 5044 section 4.1) [MPA-03].
pub const fn pad_len(ulpdu_len: u16) -> usize {
    (LENGTH_LEN + ulpdu_len as usize).wrapping_neg() & 3
}

/// Octets of an FPDU without its markers: length, ULPDU, pad, CRC [MPA-01].
pub const fn fpdu_len(ulpdu_len: u16) -> usize {
    LENGTH_LEN + ulpdu_len as usize + pad_len(ulpdu_len) + CRC_LEN
}

/// A marker (RFC 5044 section 4.2) [MPA-22].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkerRepr {
    /// Sent as zero, ignored on receipt.
    pub reserved: u16,
    /// Octets from the FPDU's length field to the marker; 0 between FPDUs [MPA-25].
    pub fpduptr: u16,
}

impl MarkerRepr {
    /// Octets on the wire.
    pub const LEN: usize = MARKER_LEN;

    /// Reads a marker.
    pub fn parse(octets: &[u8]) -> Result<Self, WireError> {
        let o = front::<{ Self::LEN }>(octets)?;
        Ok(Self { reserved: u16_at(o, 0), fpduptr: u16_at(o, 2) })
    }
    /// The marker's octets.
    pub const fn emit(&self) -> [u8; Self::LEN] {
        let ([a, b], [c, d]) = (self.reserved.to_be_bytes(), self.fpduptr.to_be_bytes());
        [a, b, c, d]
    }
}

/// Sender of a start-up frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum FrameKind {
    Request,
    Reply,
}

impl FrameKind {
    /// The 16 octets that begin the frame (RFC 5044 section 7.1.1) [CONN-01].
    pub const fn key(self) -> &'static [u8; 16] {
        match self {
            Self::Request => b"MPA ID Req Frame",
            Self::Reply => b"MPA ID Rep Frame",
        }
    }
}

/// The fixed part of a start-up frame (RFC 5044 section 7.1.1, RFC 6581 section 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartupRepr {
    /// From the key.
    pub kind: FrameKind,
    /// M: the sender needs markers in what it receives [CONN-02].
    pub markers: bool,
    /// C: the sender wants CRC [CONN-03].
    pub crc: bool,
    /// R: rejected; replies only [CONN-04].
    pub rejected: bool,
    /// S: private data begins with the enhanced block [CONN-16].
    pub enhanced: bool,
    /// The low four flag bits, to be ignored [CONN-05].
    pub reserved: u8,
    /// Rev [CONN-06].
    pub revision: u8,
    /// PD_Length: octets after this part [CONN-07].
    pub private_data_len: u16,
}

impl StartupRepr {
    /// Octets on the wire.
    pub const LEN: usize = 20;

    /// Reads the fixed part; fails if the key is neither a request's nor a reply's.
    pub fn parse(octets: &[u8]) -> Result<Self, WireError> {
        let o = front::<{ Self::LEN }>(octets)?;
        let key = part::<16, { Self::LEN }>(o, 0);
        let kind = match &key {
            k if k == FrameKind::Request.key() => FrameKind::Request,
            k if k == FrameKind::Reply.key() => FrameKind::Reply,
            k => return Err(WireError::Key { at: key_mismatch(k) }),
        };
        Ok(Self {
            kind,
            markers: o[16] & 0x80 != 0,
            crc: o[16] & 0x40 != 0,
            rejected: o[16] & 0x20 != 0,
            enhanced: o[16] & 0x10 != 0,
            reserved: o[16] & 0x0f,
            revision: o[17],
            private_data_len: u16_at(o, 18),
        })
    }
    /// The fixed part's octets.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut o = [0; Self::LEN];
        o[..16].copy_from_slice(self.kind.key());
        o[16] = u8::from(self.markers) << 7
            | u8::from(self.crc) << 6
            | u8::from(self.rejected) << 5
            | u8::from(self.enhanced) << 4
            | self.reserved & 0x0f;
        o[17] = self.revision;
        o[18..].copy_from_slice(&self.private_data_len.to_be_bytes());
        o
    }
}

/// Offset of the first octet that fits neither key; `octets.len()` if there is none so far.
pub fn key_mismatch(octets: &[u8]) -> usize {
    let common =
        |kind: FrameKind| kind.key().iter().zip(octets).take_while(|(k, o)| k == o).count();
    common(FrameKind::Request).max(common(FrameKind::Reply))
}

/// The enhanced block: `A B IRD(14) C D ORD(14)` (RFC 6581 section 9) [CONN-20].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EnhancedRepr {
    /// A: peer-to-peer model [CONN-27].
    pub peer_to_peer: bool,
    /// B: zero-length Send as RTR [CONN-28].
    pub rtr_send: bool,
    /// C: zero-length RDMA Write as RTR.
    pub rtr_write: bool,
    /// D: zero-length RDMA Read as RTR.
    pub rtr_read: bool,
    /// The sender's inbound limit, 14 bits.
    pub ird: u16,
    /// The sender's outbound limit, 14 bits.
    pub ord: u16,
}

impl EnhancedRepr {
    /// Octets on the wire.
    pub const LEN: usize = 4;

    /// Reads the block from the front of the private data.
    pub fn parse(octets: &[u8]) -> Result<Self, WireError> {
        let o = front::<{ Self::LEN }>(octets)?;
        Ok(Self {
            peer_to_peer: o[0] & 0x80 != 0,
            rtr_send: o[0] & 0x40 != 0,
            rtr_write: o[2] & 0x80 != 0,
            rtr_read: o[2] & 0x40 != 0,
            ird: u16_at(o, 0) & 0x3fff,
            ord: u16_at(o, 2) & 0x3fff,
        })
    }
    /// The block's octets.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let flags = |a: bool, b: bool| u16::from(a) << 15 | u16::from(b) << 14;
        let first = flags(self.peer_to_peer, self.rtr_send) | self.ird & 0x3fff;
        let second = flags(self.rtr_write, self.rtr_read) | self.ord & 0x3fff;
        let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
        [a, b, c, d]
    }
}
