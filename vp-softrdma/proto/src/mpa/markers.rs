//! Positions of MPA markers in an FPDU (RFC 5044 sections 4.2 and 4.3); shared by both directions.
//!
//! Owner of the state: none, a value of 8 octets per FPDU. Any thread. No dependence on the peer.

use crate::wire::mpa::{MARKER_INTERVAL, MARKER_LEN, MarkerRepr, fpdu_len};

const NO_MARKER: u16 = u16::MAX;
/// Octets of content between two markers.
const CONTENT: usize = MARKER_INTERVAL - MARKER_LEN;

/// Layout of one FPDU; offsets count from its first octet on the wire, a leading marker included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// Octets on the wire, markers included.
    pub(crate) wire_len: u32,
    /// ULPDU_Length.
    pub(crate) ulpdu_len: u16,
    /// Offset of the first marker, or `NO_MARKER`.
    first: u16,
}

impl Layout {
    /// Layout of an FPDU that begins at `position` (mod 512) of the stream.
    pub(crate) const fn new(markers: bool, position: u16, ulpdu_len: u16) -> Self {
        let content = fpdu_len(ulpdu_len);
        let first = first_marker(position);
        // RFC 5044 4.3 [MPA-10, MPA-29]: a marker due at the first octet is ours, one due right
        // after our CRC is the next FPDU's.
        if !markers || content <= first as usize {
            return Self { wire_len: content as u32, ulpdu_len, first: NO_MARKER };
        }
        let count = (content - first as usize).div_ceil(CONTENT);
        Self { wire_len: (content + count * MARKER_LEN) as u32, ulpdu_len, first }
    }
    /// Stream position (mod 512) after the FPDU.
    pub(crate) const fn end_position(&self, position: u16) -> u16 {
        ((position as u32 + self.wire_len) % MARKER_INTERVAL as u32) as u16
    }
    /// Offset of the length field: after a leading marker.
    pub(crate) const fn header(&self) -> usize {
        if self.first == 0 { MARKER_LEN } else { 0 }
    }
    /// Whether there is a marker.
    pub(crate) const fn has_markers(&self) -> bool {
        self.first != NO_MARKER
    }
    /// Number of markers.
    pub(crate) const fn markers(&self) -> usize {
        if self.first == NO_MARKER {
            return 0;
        }
        (self.wire_len as usize - self.first as usize).div_ceil(MARKER_INTERVAL)
    }
    /// Whether a marker begins at `at`.
    pub(crate) const fn is_marker(&self, at: usize) -> bool {
        self.first != NO_MARKER
            && at >= self.first as usize
            && (at - self.first as usize).is_multiple_of(MARKER_INTERVAL)
    }
    /// Octets of content from `at` (not within a marker) to the next marker; huge if none follows.
    pub(crate) const fn until_marker(&self, at: usize) -> usize {
        let first = self.first as usize;
        if self.first == NO_MARKER {
            usize::MAX
        } else if at < first {
            first - at
        } else {
            MARKER_INTERVAL - (at - first) % MARKER_INTERVAL
        }
    }
    /// The marker due at `at`.
    pub(crate) const fn marker(&self, at: usize) -> MarkerRepr {
        // RFC 5044 4.2, 4.3 [MPA-22, MPA-24, MPA-25, MPA-27]: back to the length field, earlier
        // markers counted; 0 between FPDUs. Low two bits are 0: everything is a multiple of 4
        // [MPA-26]. An FPDU has less than 2^16 + 2^10 octets, its last marker sits below 2^16.
        MarkerRepr { reserved: 0, fpduptr: (at.saturating_sub(self.header())) as u16 }
    }
    /// Offsets of all markers.
    pub(crate) fn marker_offsets(&self) -> impl Iterator<Item = usize> + use<> {
        let first = self.first as usize;
        (0..self.markers()).map(move |n| first + n * MARKER_INTERVAL)
    }
}

/// Octets from `position` (mod 512) to the next marker, 0 if it is due at once.
pub(crate) const fn first_marker(position: u16) -> u16 {
    (MARKER_INTERVAL as u16 - position) % MARKER_INTERVAL as u16
}
