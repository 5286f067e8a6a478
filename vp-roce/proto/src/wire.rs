//! Encoding and decoding of InfiniBand's transport headers as RoCE v2 carries them in UDP
//! (InfiniBand volume 1, chapter 9; annex A17 for RoCE v2).
//!
//! `Foo::parse` reads from the front of a slice, `emit` returns octets, and `parse(emit(x)) == x`. Values are
//! checked only against length and opcode; all other checks are the caller's.
//!
//! Owner of the state: none, pure functions. Any thread.

pub mod aeth;
pub mod bth;
pub mod extended;
pub mod packet;

use core::fmt;

/// The UDP port of RoCE v2 (InfiniBand annex A17).
pub const UDP_PORT: u16 = 4791;

/// Octets of the invariant CRC after every packet.
pub const ICRC_LEN: usize = 4;

/// Malformed octets. A receiver drops such a packet and sends nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WireError {
    /// Fewer octets than the headers need.
    Truncated {
        /// Octets needed.
        need: usize,
        /// Octets present.
        have: usize,
    },
    /// An unknown opcode, or one of an unsupported transport service.
    Opcode(u8),
    /// A version of the transport headers other than 0.
    Version(u8),
    /// More octets of pad than follow the headers.
    Pad {
        /// Octets of pad.
        pad: usize,
        /// Octets of payload and pad.
        have: usize,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { need, have } => write!(f, "{have} octets where {need} are needed"),
            Self::Opcode(opcode) => write!(f, "opcode {opcode:#04x} is not one of RC, UC or UD"),
            Self::Version(version) => write!(f, "transport header version {version}, not 0"),
            Self::Pad { pad, have } => {
                write!(f, "{pad} octets of pad where {have} octets follow the headers")
            }
        }
    }
}

impl core::error::Error for WireError {}

/// The first `N` octets, or how many are missing.
pub(crate) fn front<const N: usize>(octets: &[u8]) -> Result<&[u8; N], WireError> {
    octets.first_chunk().ok_or(WireError::Truncated { need: N, have: octets.len() })
}

/// The fixed sub-array `AT..AT + N`.
pub(crate) fn part<const N: usize, const L: usize>(octets: &[u8; L], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&octets[at..at + N]);
    part
}

pub(crate) fn u16_at<const L: usize>(octets: &[u8; L], at: usize) -> u16 {
    u16::from_be_bytes(part(octets, at))
}

/// 24 bits.
pub(crate) fn u24_at<const L: usize>(octets: &[u8; L], at: usize) -> u32 {
    u32::from_be_bytes([0, octets[at], octets[at + 1], octets[at + 2]])
}

pub(crate) fn u32_at<const L: usize>(octets: &[u8; L], at: usize) -> u32 {
    u32::from_be_bytes(part(octets, at))
}

pub(crate) fn u64_at<const L: usize>(octets: &[u8; L], at: usize) -> u64 {
    u64::from_be_bytes(part(octets, at))
}

/// The lower 24 bits of `value`, most significant octet first.
pub(crate) fn u24_octets(value: u32) -> [u8; 3] {
    let [_, high, middle, low] = value.to_be_bytes();
    [high, middle, low]
}
