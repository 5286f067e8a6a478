//! Encoding and decoding of every header on the wire (RFC 5040, 5041, 5044, 6581, 7306).
//!
//! `FooRepr` is a value: `parse` reads it from the front of a slice, `emit` returns its octets, and
//! `parse(emit(x)) == x`. Control octets keep the reserved bits they came with, so that a received
//! header can be echoed octet for octet. No value is checked here: that is the caller's part.
//!
//! Owner of the state: none, pure functions. Any thread. If the slice is too short:
//! [`crate::WireError::Truncated`].

pub mod ddp;
pub mod mpa;
pub mod rdmap;
pub mod terminate;

use crate::WireError;

/// The first `N` octets, or how many are missing.
pub(crate) fn front<const N: usize>(octets: &[u8]) -> Result<&[u8; N], WireError> {
    octets.first_chunk().ok_or(WireError::Truncated { need: N, have: octets.len() })
}

/// The fixed sub-array `AT..AT + N`; bounds are checked when compiled into an array access.
pub(crate) fn part<const N: usize, const L: usize>(octets: &[u8; L], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&octets[at..at + N]);
    part
}

pub(crate) fn u16_at<const L: usize>(octets: &[u8; L], at: usize) -> u16 {
    u16::from_be_bytes(part(octets, at))
}

pub(crate) fn u32_at<const L: usize>(octets: &[u8; L], at: usize) -> u32 {
    u32::from_be_bytes(part(octets, at))
}

pub(crate) fn u64_at<const L: usize>(octets: &[u8; L], at: usize) -> u64 {
    u64::from_be_bytes(part(octets, at))
}
