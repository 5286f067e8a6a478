//! DDP headers (RFC 5041 section 4): control octet, tagged (14 octets), untagged (18 octets).
//!
//! Owner of the state: none, pure functions. Any thread. If the slice is too short:
//! [`WireError::Truncated`].

use super::{front, u32_at, u64_at};
use crate::{Stag, WireError};

/// DDP version of the IETF (RFC 5041 section 4.1) [DDP-04].
pub const VERSION: u8 = 1;
/// Longest DDP header in octets.
pub const MAX_HEADER: usize = UntaggedRepr::LEN;

/// First octet of a DDP segment: `T L Rsvd(4) DV(2)` (RFC 5041 section 4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control(pub u8);

impl Control {
    /// Control octet of our own segments: version 1, reserved bits zero.
    pub const fn new(tagged: bool, last: bool) -> Self {
        // RFC 5041 4.1 [DDP-03, DDP-04]
        Self((tagged as u8) << 7 | (last as u8) << 6 | VERSION)
    }
    /// T: tagged placement [DDP-01].
    pub const fn tagged(self) -> bool {
        self.0 & 0x80 != 0
    }
    /// L: last segment of its message [DDP-02].
    pub const fn last(self) -> bool {
        self.0 & 0x40 != 0
    }
    /// DV.
    pub const fn version(self) -> u8 {
        self.0 & 0x03
    }
    /// The four reserved bits, to be ignored [DDP-03].
    pub const fn reserved(self) -> u8 {
        self.0 >> 2 & 0x0f
    }
    /// Octets of the header that this octet begins.
    pub const fn header_len(self) -> usize {
        if self.tagged() { TaggedRepr::LEN } else { UntaggedRepr::LEN }
    }
}

/// Tagged header (RFC 5041 section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaggedRepr {
    /// First octet.
    pub control: Control,
    /// RsvdULP: RDMAP's control octet.
    pub ulp: u8,
    /// Steering tag of the sink.
    pub stag: Stag,
    /// Tagged offset of the segment's first payload octet.
    pub to: u64,
}

impl TaggedRepr {
    /// Octets on the wire.
    pub const LEN: usize = 14;

    /// Reads a header, whatever its T bit says.
    pub fn parse(octets: &[u8]) -> Result<Self, WireError> {
        let o = front::<{ Self::LEN }>(octets)?;
        Ok(Self { control: Control(o[0]), ulp: o[1], stag: Stag(u32_at(o, 2)), to: u64_at(o, 6) })
    }
    /// The header's octets.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut o = [0; Self::LEN];
        o[0] = self.control.0;
        o[1] = self.ulp;
        o[2..6].copy_from_slice(&self.stag.0.to_be_bytes());
        o[6..14].copy_from_slice(&self.to.to_be_bytes());
        o
    }
}

/// Untagged header (RFC 5041 section 4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UntaggedRepr {
    /// First octet.
    pub control: Control,
    /// RsvdULP\[0:7\]: RDMAP's control octet.
    pub ulp: u8,
    /// RsvdULP\[8:39\]: the Invalidate STag of opcodes 4 and 6, else 0 (RFC 5040 section 4.1).
    pub ulp_word: u32,
    /// Queue number.
    pub qn: u32,
    /// Message sequence number, from 1 for each queue and direction [DDP-06].
    pub msn: u32,
    /// Offset of the segment's first payload octet in its message [DDP-07].
    pub mo: u32,
}

impl UntaggedRepr {
    /// Octets on the wire.
    pub const LEN: usize = 18;

    /// Reads a header, whatever its T bit says.
    pub fn parse(octets: &[u8]) -> Result<Self, WireError> {
        let o = front::<{ Self::LEN }>(octets)?;
        Ok(Self {
            control: Control(o[0]),
            ulp: o[1],
            ulp_word: u32_at(o, 2),
            qn: u32_at(o, 6),
            msn: u32_at(o, 10),
            mo: u32_at(o, 14),
        })
    }
    /// The header's octets.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut o = [0; Self::LEN];
        o[0] = self.control.0;
        o[1] = self.ulp;
        o[2..6].copy_from_slice(&self.ulp_word.to_be_bytes());
        o[6..10].copy_from_slice(&self.qn.to_be_bytes());
        o[10..14].copy_from_slice(&self.msn.to_be_bytes());
        o[14..18].copy_from_slice(&self.mo.to_be_bytes());
        o
    }
}

/// Either header, as the T bit says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Header {
    Tagged(TaggedRepr),
    Untagged(UntaggedRepr),
}

impl Header {
    /// Reads the header in front of a ULPDU. A ULPDU shorter than its header is Truncated [DDP-24].
    pub fn parse(octets: &[u8]) -> Result<Self, WireError> {
        let [first] = *front::<1>(octets)?;
        // RFC 5041 4.1 [DDP-01]
        if Control(first).tagged() {
            TaggedRepr::parse(octets).map(Self::Tagged)
        } else {
            UntaggedRepr::parse(octets).map(Self::Untagged)
        }
    }
    /// Octets on the wire.
    pub const fn buffer_len(&self) -> usize {
        match self {
            Self::Tagged(_) => TaggedRepr::LEN,
            Self::Untagged(_) => UntaggedRepr::LEN,
        }
    }
    /// First octet.
    pub const fn control(&self) -> Control {
        match self {
            Self::Tagged(h) => h.control,
            Self::Untagged(h) => h.control,
        }
    }
    /// Second octet: RDMAP's control octet.
    pub const fn ulp(&self) -> u8 {
        match self {
            Self::Tagged(h) => h.ulp,
            Self::Untagged(h) => h.ulp,
        }
    }
    /// Writes the header to the front of `out` and returns its length, or what `out` lacks.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        match self {
            Self::Tagged(h) => put(out, &h.emit()),
            Self::Untagged(h) => put(out, &h.emit()),
        }
    }
}

fn put(out: &mut [u8], octets: &[u8]) -> Result<usize, WireError> {
    let have = out.len();
    out.get_mut(..octets.len())
        .ok_or(WireError::Truncated { need: octets.len(), have })?
        .copy_from_slice(octets);
    Ok(octets.len())
}
