//! Outbound framing: ULPDU to FPDU with markers, pad and CRC (RFC 5044 sections 4.1 to 4.4).
//!
//! Owner of the state: [`Tx`] belongs to its QP and is used under the QP's lock. It does not
//! depend on the peer; the QP drops it when the peer dies. Nothing here allocates.

use super::markers::Layout;
use crate::types::Crc32c;
use crate::wire::mpa::{CRC_LEN, LENGTH_LEN, MARKER_LEN, pad_len};

/// Sending half of the framing layer; 16 octets.
#[derive(Clone, Copy, Debug)]
pub struct Tx {
    crc: Option<Crc32c>,
    markers: bool,
    position: u16,
}

impl Tx {
    /// Framing from the first octet of full operation on, which is the origin of the markers whatever
    /// stood in the stream before [CONN-15]. `crc`: the kernel, if CRC is in force [MPA-07].
    pub const fn new(crc: Option<Crc32c>, markers: bool) -> Self {
        Self::at(crc, markers, 0)
    }
    /// The same, `position` octets later (a multiple of 4).
    pub const fn at(crc: Option<Crc32c>, markers: bool, position: u64) -> Self {
        // RFC 5044 4.3 [MPA-23]: counted from full operation, TCP sequence numbers do not matter.
        Self { crc, markers, position: (position % 512) as u16 }
    }
    /// Whether the FPDUs bear markers.
    pub const fn marks(&self) -> bool {
        self.markers
    }
    /// Makes an FPDU without markers of `ulpdu_len` octets that are in `out` after the length field:
    /// adds length, pad and CRC. Returns its octets; it must be sent, in order.
    ///
    /// # Panics
    /// If `out` is shorter than that, or the ULPDU longer than 65535 octets.
    #[inline]
    pub fn seal(&self, out: &mut [u8], ulpdu_len: usize) -> usize {
        debug_assert!(!self.markers && ulpdu_len <= usize::from(u16::MAX));
        let end = LENGTH_LEN + ulpdu_len;
        out[..LENGTH_LEN].copy_from_slice(&(ulpdu_len as u16).to_be_bytes());
        // RFC 5044 4.1 [MPA-03]: the pad; zeros after it are overwritten by the CRC.
        out[end..end + CRC_LEN].fill(0);
        let (covered, behind) = out.split_at_mut(end + pad_len(ulpdu_len as u16));
        seal_crc(self.crc, covered, &mut behind[..CRC_LEN]);
        covered.len() + CRC_LEN
    }
    /// Lays out the next FPDU of the stream and counts its octets: every plan must be sent, in order.
    pub fn plan(&mut self, ulpdu_len: u16) -> FpduPlan {
        // RFC 5044 4.3 [MPA-28]: markers are generated whenever the peer demands them.
        let layout = Layout::new(self.markers, self.position, ulpdu_len);
        self.position = layout.end_position(self.position);
        FpduPlan { crc: self.crc, layout }
    }
}

// RFC 5044 4.4 [MPA-08, MPA-09, MPA-10, MPA-11]: all octets of this FPDU, its markers too; least
// significant octet first.
fn seal_crc(crc: Option<Crc32c>, covered: &[u8], field: &mut [u8]) {
    let crc = crc.map_or(0, |crc32c| crc32c(0, covered));
    field.copy_from_slice(&crc.to_le_bytes());
}

/// Where the parts of one FPDU go; 16 octets.
#[derive(Clone, Copy, Debug)]
pub struct FpduPlan {
    crc: Option<Crc32c>,
    layout: Layout,
}

impl FpduPlan {
    /// Octets on the wire, markers included.
    pub const fn wire_len(&self) -> usize {
        self.layout.wire_len as usize
    }
    /// Octets of the ULPDU.
    pub const fn ulpdu_len(&self) -> u16 {
        self.layout.ulpdu_len
    }
    /// The length field, big-endian (RFC 5044 section 4.1) [MPA-02].
    pub const fn length_field(&self) -> [u8; LENGTH_LEN] {
        self.layout.ulpdu_len.to_be_bytes()
    }
    /// Neither CRC nor markers: head, payload and [`Self::trailer`] may be gathered without a copy.
    pub const fn gathers(&self) -> bool {
        self.crc.is_none() && self.layout.markers() == 0
    }
    /// Pad and zero CRC field, 4 to 7 octets, for gathering [MPA-06, MPA-14].
    pub const fn trailer(&self) -> &'static [u8] {
        match pad_len(self.layout.ulpdu_len) {
            0 => &[0; CRC_LEN],
            1 => &[0; CRC_LEN + 1],
            2 => &[0; CRC_LEN + 2],
            _ => &[0; CRC_LEN + 3],
        }
    }

    /// Writes the FPDU into `out`. `head`: length field, DDP and RDMAP headers. The rest of the ULPDU
    /// is payload: `copy(offset, dst)` fills `dst` with payload octets from `offset`, once for each
    /// contiguous piece, in order. If it fails, `out` must not be sent.
    ///
    /// # Panics
    /// If `out` is shorter than [`Self::wire_len`] or `head` longer than length field and ULPDU.
    pub fn encode<E>(
        &self,
        head: &[u8],
        out: &mut [u8],
        mut copy: impl FnMut(u32, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.encode_summed(head, out, |offset, dst, crc| {
            copy(offset, dst)?;
            if let (Some(crc), Some(crc32c)) = (crc, self.crc) {
                *crc = crc32c(*crc, dst);
            }
            Ok(())
        })
    }

    /// As [`Self::encode`]; `copy(offset, dst, crc)` continues `crc`, if there is one, over what it
    /// wrote to `dst`: to copy and sum at once is faster than one after the other.
    ///
    /// # Panics
    /// As [`Self::encode`].
    pub fn encode_summed<E>(
        &self,
        head: &[u8],
        out: &mut [u8],
        mut copy: impl FnMut(u32, &mut [u8], Option<&mut u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let out = &mut out[..self.wire_len()];
        if self.layout.markers() == 0 {
            return self.encode_plain(head, out, copy);
        }
        self.encode_marked(head, out, |offset, dst| copy(offset, dst, None))?;
        let (covered, crc_field) = out.split_at_mut(self.wire_len() - CRC_LEN);
        seal_crc(self.crc, covered, crc_field);
        Ok(())
    }

    fn encode_plain<E>(
        &self,
        head: &[u8],
        out: &mut [u8],
        mut copy: impl FnMut(u32, &mut [u8], Option<&mut u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (front, rest) = out.split_at_mut(head.len());
        front.copy_from_slice(head);
        let (payload, behind) = rest.split_at_mut(self.payload_len(head));
        // RFC 5044 4.1 [MPA-03]
        let (pad, crc_field) = behind.split_at_mut(behind.len() - CRC_LEN);
        pad.fill(0);
        // As `seal_crc`, part by part.
        let mut crc = self.crc.map(|crc32c| crc32c(0, head));
        if !payload.is_empty() {
            copy(0, payload, crc.as_mut())?;
        }
        let crc = self.crc.zip(crc).map_or(0, |(crc32c, crc)| crc32c(crc, pad));
        crc_field.copy_from_slice(&crc.to_le_bytes());
        Ok(())
    }

    fn encode_marked<E>(
        &self,
        head: &[u8],
        out: &mut [u8],
        mut copy: impl FnMut(u32, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut cursor = Cursor { layout: self.layout, out, at: 0 };
        let mut left = head;
        while !left.is_empty() {
            let piece = cursor.piece(left.len());
            let (now, later) = left.split_at(piece.len());
            piece.copy_from_slice(now);
            left = later;
        }
        let (mut done, payload) = (0, self.payload_len(head));
        while done < payload {
            let piece = cursor.piece(payload - done);
            copy(done as u32, piece)?;
            done += piece.len();
        }
        // Pad and CRC field; a marker may stand between them [MPA-11].
        let mut zeros = pad_len(self.layout.ulpdu_len) + CRC_LEN;
        while zeros > 0 {
            let piece = cursor.piece(zeros);
            piece.fill(0);
            zeros -= piece.len();
        }
        Ok(())
    }

    fn payload_len(&self, head: &[u8]) -> usize {
        LENGTH_LEN + self.layout.ulpdu_len as usize - head.len()
    }
}

/// Writes content around the markers.
struct Cursor<'a> {
    layout: Layout,
    out: &'a mut [u8],
    at: usize,
}

impl Cursor<'_> {
    /// The next contiguous room for up to `want > 0` octets of content, after a due marker.
    fn piece(&mut self, want: usize) -> &mut [u8] {
        if self.layout.is_marker(self.at) {
            let marker = self.layout.marker(self.at).emit();
            self.out[self.at..self.at + MARKER_LEN].copy_from_slice(&marker);
            self.at += MARKER_LEN;
        }
        let start = self.at;
        self.at += want.min(self.layout.until_marker(start));
        &mut self.out[start..self.at]
    }
}
