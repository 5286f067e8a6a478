//! Inbound framing: octet stream to validated ULPDU (RFC 5044 sections 4 and 6).
//!
//! Owner of the state: [`Rx`] belongs to its QP and is used under the QP's lock. It keeps no octet:
//! the caller presents the unconsumed stream again, longer. When the peer dies, the last result was
//! [`Parsed::Need`]. Nothing here allocates or copies payload.

use super::markers::{Layout, first_marker};
use crate::ProtocolError;
use crate::types::Crc32c;
use crate::wire::mpa::{CRC_LEN, LENGTH_LEN, MARKER_LEN, MAX_ULPDU, MarkerRepr};

/// Receiving half of the framing layer; 16 octets.
#[derive(Clone, Copy, Debug)]
pub struct Rx {
    crc: Option<Crc32c>,
    markers: bool,
    position: u16,
}

/// What is at the front of the unconsumed stream.
#[derive(Clone, Copy, Debug)]
pub enum Parsed<'a> {
    /// This many contiguous octets are needed to continue.
    Need(usize),
    /// The stream is broken; nothing after this may be delivered [MPA-38].
    Bad(ProtocolError),
    /// A complete, valid FPDU. It is counted: consume its `wire_len` octets.
    Fpdu(RxFpdu<'a>),
}

impl Rx {
    /// Framing from the first octet of full operation on, which is the origin of the markers whatever
    /// the stream carried before [CONN-15]. `crc`: the kernel, if CRC is in force [MPA-07]. Any FPDU
    /// is taken, up to 64768 octets of ULPDU [MPA-33].
    pub const fn new(crc: Option<Crc32c>, markers: bool) -> Self {
        Self::at(crc, markers, 0)
    }
    /// The same, `position` octets later (a multiple of 4).
    pub const fn at(crc: Option<Crc32c>, markers: bool, position: u64) -> Self {
        Self { crc, markers, position: (position % 512) as u16 }
    }
    /// Neither CRC nor markers: payload may be placed as it streams in, see [`Self::peek`].
    pub const fn places_early(&self) -> bool {
        self.crc.is_none() && !self.markers
    }

    /// Whether the FPDUs bear markers.
    pub const fn marks(&self) -> bool {
        self.markers
    }
    /// Whether a whole FPDU without markers is as it was sent [MPA-04, MPA-08].
    #[inline]
    pub fn is_intact(&self, fpdu: &[u8]) -> bool {
        let Some(crc32c) = self.crc else { return true };
        let Some((covered, field)) = fpdu.split_last_chunk::<CRC_LEN>() else { return false };
        crc32c(0, covered).to_le_bytes() == *field
    }

    /// Checks the front of the unconsumed stream [MPA-15, MPA-30, MPA-31].
    #[inline]
    pub fn parse<'a>(&mut self, octets: &'a [u8]) -> Parsed<'a> {
        let layout = match self.layout(octets) {
            Ok(layout) => layout,
            Err(other) => return other,
        };
        let Some(wire) = octets.get(..layout.wire_len as usize) else {
            return Parsed::Need(layout.wire_len as usize);
        };
        let fpdu = RxFpdu { wire, layout };
        if let Err(error) = self.validate(&fpdu) {
            return Parsed::Bad(error);
        }
        self.position = layout.end_position(self.position);
        Parsed::Fpdu(fpdu)
    }

    /// Sizes of the FPDU at the front, before it is complete. Its octets are valid as they are only
    /// if [`Self::places_early`].
    pub fn peek<'a>(&self, octets: &'a [u8]) -> Result<Peek<'a>, Parsed<'a>> {
        let layout = self.layout(octets)?;
        let ulpdu = octets.get(layout.header() + LENGTH_LEN..).unwrap_or_default();
        Ok(Peek {
            ulpdu_len: layout.ulpdu_len,
            wire_len: layout.wire_len as usize,
            ulpdu: &ulpdu[..ulpdu.len().min(layout.ulpdu_len as usize)],
        })
    }

    #[inline]
    fn layout<'a>(&self, octets: &[u8]) -> Result<Layout, Parsed<'a>> {
        // RFC 5044 4.3 [MPA-10, MPA-24]: a marker between FPDUs comes in front of the length field.
        let leading = self.markers && first_marker(self.position) == 0;
        let at = if leading { MARKER_LEN } else { 0 };
        let Some(&[hi, lo]) = octets.get(at..).and_then(|o| o.first_chunk()) else {
            return Err(Parsed::Need(at + LENGTH_LEN));
        };
        let layout = Layout::new(self.markers, self.position, u16::from_be_bytes([hi, lo]));
        // RFC 5044 4.4: where there is a CRC, the length is not checked before it. The longest FPDU
        // that 16 bits can announce has 66,064 octets, markers included, and may be waited for.
        // Without a CRC nothing that comes later could show that the length is not what was sent:
        // waiting would not change the judgement, and the peer may never send so many octets.
        if self.crc.is_none() {
            if leading && octets.first_chunk().is_some_and(|front| !is_marker(*front, 0)) {
                return Err(Parsed::Bad(ProtocolError::Marker));
            }
            check_length(&layout).map_err(Parsed::Bad)?;
        }
        Ok(layout)
    }

    #[inline]
    fn validate(&self, fpdu: &RxFpdu<'_>) -> Result<(), ProtocolError> {
        if let Some(crc32c) = self.crc {
            let (covered, field) = fpdu.wire.split_at(fpdu.wire.len() - CRC_LEN);
            // RFC 5044 4.4 [MPA-04, MPA-08, MPA-09, MPA-10, MPA-11]
            if crc32c(0, covered).to_le_bytes() != *field {
                return Err(ProtocolError::Crc);
            }
        }
        // A length is where it is read only if the markers are where they should be.
        if fpdu.layout.has_markers() {
            check_markers(fpdu)?;
        }
        check_length(&fpdu.layout)
    }
}

/// RFC 5044 3 [MPA-16, ERR-04]
#[inline]
const fn check_length(layout: &Layout) -> Result<(), ProtocolError> {
    match layout.ulpdu_len {
        1..=MAX_ULPDU => Ok(()),
        _ => Err(ProtocolError::UlpduLength),
    }
}

/// RFC 5044 6 [MPA-26, MPA-30]: checking is optional; we check every one.
fn check_markers(fpdu: &RxFpdu<'_>) -> Result<(), ProtocolError> {
    let right = |at: usize| {
        let octets = fpdu.wire.get(at..).and_then(|rest| rest.first_chunk());
        octets.is_some_and(|octets| is_marker(*octets, fpdu.layout.marker(at).fpduptr))
    };
    if fpdu.layout.marker_offsets().all(right) { Ok(()) } else { Err(ProtocolError::Marker) }
}

/// A marker that points back by `due` octets; its low two bits count as 0 [MPA-26].
fn is_marker(octets: [u8; MARKER_LEN], due: u16) -> bool {
    MarkerRepr::parse(&octets).is_ok_and(|marker| marker.fpduptr & !3 == due)
}

/// The front of an FPDU that may still be incomplete.
#[derive(Clone, Copy, Debug)]
pub struct Peek<'a> {
    /// ULPDU_Length.
    pub ulpdu_len: u16,
    /// Octets of the whole FPDU on the wire.
    pub wire_len: usize,
    /// The part of the ULPDU that is there, when no markers are in use.
    pub ulpdu: &'a [u8],
}

/// A valid FPDU in the receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct RxFpdu<'a> {
    wire: &'a [u8],
    layout: Layout,
}

impl<'a> RxFpdu<'a> {
    /// Octets on the wire, markers included: consume so many.
    pub const fn wire_len(&self) -> usize {
        self.wire.len()
    }
    /// ULPDU_Length [MPA-02, MPA-34].
    pub const fn ulpdu_len(&self) -> u16 {
        self.layout.ulpdu_len
    }
    /// The ULPDU's octets from `skip` on, in order, without markers: one slice when there are none
    /// [MPA-05, MPA-34].
    #[inline]
    pub fn pieces(&self, skip: usize) -> Pieces<'a> {
        if !self.layout.has_markers() {
            let (at, left) = (LENGTH_LEN + skip, self.layout.ulpdu_len as usize);
            return Pieces {
                wire: self.wire,
                layout: self.layout,
                at,
                left: left.saturating_sub(skip),
            };
        }
        self.pieces_around_markers(skip)
    }
    fn pieces_around_markers(&self, skip: usize) -> Pieces<'a> {
        let start = self.layout.header();
        let mut pieces = Pieces {
            wire: self.wire,
            layout: self.layout,
            at: start,
            left: LENGTH_LEN + self.layout.ulpdu_len as usize,
        };
        pieces.skip_octets(LENGTH_LEN + skip);
        pieces
    }
    /// The first octets of the ULPDU, contiguous: as many as there are, up to `N`. Copied to
    /// `scratch` only if a marker stands between them.
    #[inline]
    pub fn head<'b, const N: usize>(&self, scratch: &'b mut [u8; N]) -> &'b [u8]
    where
        'a: 'b,
    {
        let want = N.min(self.layout.ulpdu_len as usize);
        if !self.layout.has_markers() {
            return self.wire.get(LENGTH_LEN..LENGTH_LEN + want).unwrap_or_default();
        }
        self.head_around_markers(want, scratch)
    }
    fn head_around_markers<'b, const N: usize>(
        &self,
        want: usize,
        scratch: &'b mut [u8; N],
    ) -> &'b [u8]
    where
        'a: 'b,
    {
        let mut pieces = self.pieces(0);
        let first = pieces.next().unwrap_or_default();
        if let Some(head) = first.get(..want) {
            return head;
        }
        let mut done = 0;
        for piece in core::iter::once(first).chain(pieces) {
            let n = piece.len().min(want - done);
            scratch[done..done + n].copy_from_slice(&piece[..n]);
            done += n;
        }
        &scratch[..done]
    }
}

/// Slices of a ULPDU around its markers.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    wire: &'a [u8],
    layout: Layout,
    at: usize,
    left: usize,
}

impl<'a> Pieces<'a> {
    /// Octets still to come.
    pub const fn remaining(&self) -> usize {
        self.left
    }
    fn skip_octets(&mut self, mut count: usize) {
        while count > 0 && self.left > 0 {
            let before = self.left;
            self.take(count);
            count -= before - self.left;
        }
    }
    fn take(&mut self, want: usize) -> &'a [u8] {
        if self.layout.is_marker(self.at) {
            self.at += MARKER_LEN;
        }
        let len = want.min(self.left).min(self.layout.until_marker(self.at));
        let piece = self.wire.get(self.at..self.at + len).unwrap_or_default();
        self.at += len;
        self.left -= len;
        piece
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        (self.left > 0).then(|| self.take(usize::MAX))
    }
}
