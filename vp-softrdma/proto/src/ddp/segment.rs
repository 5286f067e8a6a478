//! An outbound message, cut into segments of at most MULPDU octets (RFC 5041 section 5.2).
//!
//! Owner: the transmit half of a QP; at most one message is cut at a time, which is what keeps
//! messages from interleaving [DDP-11]. It is dropped when the stream ends.

use crate::types::Stag;
use crate::wire::ddp::{Control, Header, TaggedRepr, UntaggedRepr};
use crate::wire::rdmap::{self, Opcode};

/// Destination of a message: tagged or untagged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Tagged { stag: Stag, to: u64 },
    Untagged { ulp_word: u32, qn: u32, msn: u32 },
}

/// An outbound message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segmenter {
    opcode: Opcode,
    target: Target,
    offset: u32,
    len: u32,
}

/// One DDP segment: header and which part of the message it carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) header: Header,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) last: bool,
}

impl Segmenter {
    pub(crate) const fn new(opcode: Opcode, target: Target, len: u32) -> Self {
        Self { opcode, target, offset: 0, len }
    }
    /// The next segment. A message has at least one, also at length 0 [DDP-10]. `mulpdu` leaves room
    /// for payload after the header: it is at least 128.
    pub(crate) fn next(&mut self, mulpdu: u16) -> Segment {
        // RFC 5041 5.2 [DDP-09]
        let header_len = match self.target {
            Target::Tagged { .. } => TaggedRepr::LEN,
            Target::Untagged { .. } => UntaggedRepr::LEN,
        };
        let room = u32::from(mulpdu) - header_len as u32;
        let len = room.min(self.len - self.offset);
        let offset = self.offset;
        self.offset += len;
        // RFC 5041 4.1 [DDP-02]
        let last = self.offset == self.len;
        Segment { header: self.header(offset, last), offset, len, last }
    }
    fn header(&self, offset: u32, last: bool) -> Header {
        let ulp = rdmap::Control::new(self.opcode).0;
        match self.target {
            // RFC 5041 4.2, 5.2 [DDP-05, DDP-08]; TO arithmetic is modulo 2^64
            Target::Tagged { stag, to } => Header::Tagged(TaggedRepr {
                control: Control::new(true, last),
                ulp,
                stag,
                to: to.wrapping_add(u64::from(offset)),
            }),
            // RFC 5041 4.3, 5.2 [DDP-05, DDP-07]
            Target::Untagged { ulp_word, qn, msn } => Header::Untagged(UntaggedRepr {
                control: Control::new(false, last),
                ulp,
                ulp_word,
                qn,
                msn,
                mo: offset,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(target: Target, len: u32, mulpdu: u16) -> alloc::vec::Vec<Segment> {
        let mut segmenter = Segmenter::new(Opcode::Send, target, len);
        let mut segments = alloc::vec::Vec::new();
        loop {
            let segment = segmenter.next(mulpdu);
            segments.push(segment);
            if segment.last {
                return segments;
            }
        }
    }
    fn parts(segments: &[Segment]) -> alloc::vec::Vec<(u64, u32)> {
        let at = |s: &Segment| match s.header {
            Header::Tagged(h) => h.to,
            Header::Untagged(h) => u64::from(h.mo),
        };
        segments.iter().map(|s| (at(s), s.len)).collect()
    }
    const UNTAGGED: Target = Target::Untagged { ulp_word: 0, qn: 0, msn: 7 };

    // [DDP-07]
    #[test]
    fn untagged_offsets_are_those_of_the_rfc_example() {
        assert_eq!(parts(&cut(UNTAGGED, 2048, 1500)), [(0, 1482), (1482, 566)]);
    }

    // [DDP-08]
    #[test]
    fn tagged_offsets_are_those_of_the_rfc_example() {
        let target = Target::Tagged { stag: Stag(5), to: 16384 };
        assert_eq!(parts(&cut(target, 2048, 1500)), [(16384, 1486), (17870, 562)]);
    }

    // [DDP-08] the low word of TO carries into the high word
    #[test]
    fn tagged_offset_carries() {
        let target = Target::Tagged { stag: Stag(5), to: 0xffff_fff0 };
        assert_eq!(parts(&cut(target, 40, 128 - 64)), [(0xffff_fff0, 40)]);
        assert_eq!(parts(&cut(target, 40, 34))[1], (0x1_0000_0004, 20));
    }

    // [DDP-02, DDP-05, DDP-09, DDP-10]
    #[test]
    fn every_length_around_the_segment_size() {
        for mulpdu in [128u16, 129, 1442, 64768] {
            let room = u32::from(mulpdu) - 18;
            for len in [0, 1, room - 1, room, room + 1, 3 * room] {
                let segments = cut(UNTAGGED, len, mulpdu);
                assert_eq!(segments.len() as u32, len.div_ceil(room).max(1));
                assert_eq!(segments.iter().map(|s| s.len).sum::<u32>(), len);
                for (i, segment) in segments.iter().enumerate() {
                    assert!(segment.len + 18 <= u32::from(mulpdu));
                    let last = i + 1 == segments.len();
                    assert_eq!((segment.last, segment.header.control().last()), (last, last));
                    let Header::Untagged(h) = segment.header else { panic!("untagged") };
                    assert_eq!((h.qn, h.msn, h.ulp, h.ulp_word), (0, 7, 0x43, 0));
                }
            }
        }
    }

    // [DDP-09] the longest message
    #[test]
    fn the_longest_message_ends_exactly() {
        let mut segmenter = Segmenter::new(Opcode::Send, UNTAGGED, u32::MAX);
        segmenter.offset = u32::MAX - 10;
        let segment = segmenter.next(64768);
        assert_eq!((segment.offset, segment.len, segment.last), (u32::MAX - 10, 10, true));
    }
}
