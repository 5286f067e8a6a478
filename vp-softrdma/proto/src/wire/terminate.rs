//! The Terminate message (RFC 5040 section 4.8): control word, and the headers of the refused segment.
//!
//! Owner of the state: none, pure functions. Any thread. If the slice is too short:
//! only the control word is needed.

use super::rdmap::ReadRequestRepr;
use super::{ddp, front};
use crate::{TerminateCode, WireError};

/// A Terminate's payload. When sent, M, D and R follow from which fields are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TerminateRepr {
    /// What went wrong.
    pub code: TerminateCode,
    /// ULPDU_Length of the refused segment (M) [RDMAP-22].
    pub segment_length: Option<u16>,
    /// DDP header of the refused segment (D).
    pub ddp: Option<ddp::Header>,
    /// The refused Read Request (R).
    pub read_request: Option<ReadRequestRepr>,
}

impl TerminateRepr {
    /// Longest form in octets: word, length, untagged header, Read Request.
    pub const MAX_LEN: usize = 4 + 2 + ddp::MAX_HEADER + ReadRequestRepr::LEN;

    /// A Terminate that carries no header.
    pub const fn bare(code: TerminateCode) -> Self {
        Self { code, segment_length: None, ddp: None, read_request: None }
    }

    /// Reads what is there. The length decides which headers are there, not the flags alone: some peers set R and send no Read
    /// header [RDMAP-32, ERR-26]. Only a missing control word is an error.
    pub fn parse(octets: &[u8]) -> Result<Self, WireError> {
        let word = front::<4>(octets)?;
        let mut repr =
            Self::bare(TerminateCode { layer: word[0] >> 4, etype: word[0] & 0x0f, code: word[1] });
        let (m, d, r) = (word[2] & 0x80 != 0, word[2] & 0x40 != 0, word[2] & 0x20 != 0);
        // RFC 5040 4.8 [RDMAP-20]
        if !(m || d) {
            return Ok(repr);
        }
        let Ok(length) = front::<2>(&octets[4..]) else { return Ok(repr) };
        if m {
            repr.segment_length = Some(u16::from_be_bytes(*length));
        }
        if d {
            repr.ddp = ddp::Header::parse(&octets[6..]).ok();
        }
        if let (true, Some(header)) = (r, repr.ddp) {
            repr.read_request = ReadRequestRepr::parse(&octets[6 + header.buffer_len()..]).ok();
        }
        Ok(repr)
    }

    /// Octets on the wire.
    pub fn buffer_len(&self) -> usize {
        let length = if self.segment_length.is_some() || self.ddp.is_some() { 2 } else { 0 };
        let read = if self.read_request.is_some() { ReadRequestRepr::LEN } else { 0 };
        4 + length + self.ddp.map_or(0, |h| h.buffer_len()) + read
    }

    /// Writes the payload to the front of `out` and returns its length, or what `out` lacks.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let (need, have) = (self.buffer_len(), out.len());
        let out = out.get_mut(..need).ok_or(WireError::Truncated { need, have })?;
        out[..4].copy_from_slice(&self.emit_word());
        let mut at = 4;
        if self.segment_length.is_some() || self.ddp.is_some() {
            out[4..6].copy_from_slice(&self.segment_length.unwrap_or(0).to_be_bytes());
            at = 6;
        }
        if let Some(header) = self.ddp {
            at += header.emit(&mut out[at..])?;
        }
        if let Some(request) = self.read_request {
            out[at..].copy_from_slice(&request.emit());
        }
        Ok(need)
    }

    /// The control word alone, as in a Terminate that carries no header.
    pub const fn emit_word(&self) -> [u8; 4] {
        let [layer_and_type, code] = self.code.word().to_be_bytes();
        let flags = (self.segment_length.is_some() as u8) << 7
            | (self.ddp.is_some() as u8) << 6
            | (self.read_request.is_some() as u8) << 5;
        [layer_and_type, code, flags, 0]
    }

    /// The code that a peer with swapped nibbles meant (Linux siw on little-endian hosts): the
    /// triple is unassigned as it stands, and assigned when layer and type change places.
    /// For diagnostics only.
    pub fn swapped_code(&self) -> Option<TerminateCode> {
        let TerminateCode { layer, etype, code } = self.code;
        let swapped = TerminateCode { layer: etype, etype: layer, code };
        (!self.code.is_assigned() && swapped.is_assigned()).then_some(swapped)
    }
}
