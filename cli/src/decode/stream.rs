//! Puts the segments of one direction of a TCP connection in order. Owns the out-of-order segments, bounded in
//! size. Octets that the capture lacks are passed on as a gap.

use std::collections::BTreeMap;

use super::render::Stamp;

/// Octets kept behind a gap before it counts as lost.
const MAX_WAITING: usize = 16 << 20;

/// What a waiting segment takes beside its octets.
const OVERHEAD: usize = 128;

/// One direction of a connection, in order.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Sequence number of the SYN, if it was captured.
    first: Option<u32>,
    /// Sequence number of the next octet, once known.
    next: Option<u32>,
    /// Out-of-order segments by position in the stream.
    waiting: BTreeMap<u64, Segment>,
    waiting_octets: usize,
    /// Position of `next` in the stream.
    position: u64,
}

#[derive(Debug)]
struct Segment {
    data: Vec<u8>,
    /// Octets on the wire; the last ones are not in `data` if the packet was cut.
    wire_len: usize,
    stamp: Stamp,
}

/// A part of the stream that is in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) data: Vec<u8>,
    /// Octets behind `data` that the capture lacks.
    pub(super) missing: u64,
    /// `data` begins where its segment does.
    pub(super) front: bool,
    /// The packet with the missing octets was captured, and cut.
    pub(super) cut: bool,
    pub(super) stamp: Stamp,
}

impl Stream {
    /// False if the connection began with another SYN.
    pub(super) fn began_at(&self, seq: u32) -> bool {
        self.first.is_none_or(|first| first == seq)
    }

    /// The connection's SYN: data starts at the next sequence number. A repeated one changes nothing.
    pub(super) fn syn(&mut self, seq: u32) {
        if self.first != Some(seq) {
            self.first = Some(seq);
            self.next.get_or_insert(seq.wrapping_add(1));
        }
    }

    /// Takes a segment, of `wire_len` octets on the wire; appends what is now in order to `out`.
    pub(super) fn push(
        &mut self,
        seq: u32,
        payload: &[u8],
        wire_len: usize,
        stamp: Stamp,
        out: &mut Vec<Piece>,
    ) {
        let next = *self.next.get_or_insert(seq);
        // RFC 9293 3.4: sequence numbers compare modulo 2^32.
        let ahead = seq.wrapping_sub(next) as i32;
        let segment = Segment { data: payload.to_vec(), wire_len, stamp };
        if ahead <= 0 {
            self.deliver(segment, ahead.unsigned_abs() as usize, out);
            return self.drain(out);
        }
        let start = self.position + ahead as u64;
        let other = self.waiting.get(&start);
        if other.is_none_or(|other| other.data.len() < payload.len()) {
            self.waiting_octets += payload.len() + OVERHEAD;
            let replaced = self.waiting.insert(start, segment);
            self.waiting_octets -= replaced.map_or(0, |other| other.data.len() + OVERHEAD);
        }
        if self.waiting_octets > MAX_WAITING {
            self.pass_gap(out);
        }
    }

    /// Goes on behind the gap; false if there is none.
    pub(super) fn pass_gap(&mut self, out: &mut Vec<Piece>) -> bool {
        let Some((&start, segment)) = self.waiting.first_key_value() else { return false };
        let (missing, stamp) = (start - self.position, segment.stamp);
        out.push(Piece { data: Vec::new(), missing, front: false, cut: false, stamp });
        self.pass(missing);
        self.drain(out);
        true
    }

    fn drain(&mut self, out: &mut Vec<Piece>) {
        while let Some(entry) = self.waiting.first_entry() {
            if *entry.key() > self.position {
                return;
            }
            let skip = (self.position - *entry.key()) as usize;
            let segment = entry.remove();
            self.waiting_octets -= segment.data.len() + OVERHEAD;
            self.deliver(segment, skip, out);
        }
    }

    /// Passes on a segment whose first `skip` octets were passed on before.
    fn deliver(&mut self, segment: Segment, skip: usize, out: &mut Vec<Piece>) {
        let Segment { mut data, wire_len, stamp } = segment;
        if skip >= wire_len {
            return;
        }
        let missing = (wire_len - data.len().max(skip)) as u64;
        data.drain(..skip.min(data.len()));
        self.pass(data.len() as u64 + missing);
        out.push(Piece { data, missing, front: skip == 0, cut: missing > 0, stamp });
    }

    fn pass(&mut self, octets: u64) {
        self.position += octets;
        self.next = self.next.map(|next| next.wrapping_add(octets as u32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { number: 1, time: None };

    fn text(pieces: &[Piece]) -> String {
        pieces
            .iter()
            .map(|piece| {
                String::from_utf8_lossy(&piece.data).into_owned()
                    + &"_".repeat(piece.missing as usize)
            })
            .collect()
    }

    fn run(segments: &[(u32, &[u8], usize)]) -> (Stream, Vec<Piece>) {
        let (mut stream, mut out) = (Stream::default(), Vec::new());
        stream.syn(u32::MAX - 3);
        for (seq, payload, wire_len) in segments {
            stream.push(*seq, payload, *wire_len, STAMP, &mut out);
        }
        (stream, out)
    }

    #[test]
    fn reordered_repeated_and_overlapping_segments_across_the_wrap() {
        let s = u32::MAX - 2;
        let (mut stream, mut out) = run(&[
            (s.wrapping_add(4), b"efg", 3),
            (s, b"abc", 3),
            (s, b"abc", 3),
            (s.wrapping_add(2), b"cde", 3),
            (s.wrapping_add(5), b"fgh", 3),
            (s.wrapping_sub(2), b"??a", 3),
        ]);
        assert_eq!(text(&out), "abcdefgh");
        assert!(!stream.pass_gap(&mut out));
        let fronts: Vec<_> = out.iter().map(|piece| piece.front).collect();
        assert_eq!(fronts, [true, false, false, false]);
    }

    #[test]
    fn what_was_not_captured_is_a_gap() {
        let s = u32::MAX - 2;
        let (mut stream, mut out) = run(&[
            (s, b"ab", 4),
            (s.wrapping_add(4), b"ef", 2),
            (s.wrapping_add(3), b"def", 3),
            (s.wrapping_add(9), b"jk", 2),
        ]);
        assert_eq!(text(&out), "ab__ef");
        assert!(stream.pass_gap(&mut out));
        assert_eq!(text(&out), "ab__ef___jk");
    }

    #[test]
    fn a_repeated_syn_changes_nothing() {
        let (mut stream, mut out) = (Stream::default(), Vec::new());
        stream.syn(7);
        stream.push(8, b"abc", 3, STAMP, &mut out);
        stream.syn(7);
        stream.push(11, b"d", 1, STAMP, &mut out);
        assert_eq!(text(&out), "abcd");
        assert!(stream.began_at(7) && !stream.began_at(8));
    }

    #[test]
    fn what_waits_behind_a_gap_is_bounded() {
        let (mut stream, mut out) = (Stream::default(), Vec::new());
        stream.syn(0);
        let big = vec![0; 1 << 20];
        let mut seq = 2u32;
        while out.is_empty() {
            stream.push(seq, &big, big.len(), STAMP, &mut out);
            assert!(stream.waiting_octets <= MAX_WAITING + big.len() + OVERHEAD);
            seq = seq.wrapping_add(big.len() as u32);
        }
        assert_eq!((out[0].missing, out.len()), (1, 17));
    }
}
