//! Reassembles one direction of a TCP connection. Owns the out-of-order segments, bounded in size; a gap
//! that is never filled ends the direction.

use std::collections::BTreeMap;

/// Octets kept after a gap before it counts as lost.
const MAX_WAITING: usize = 16 << 20;

/// One direction of a connection, in order.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Sequence number of the next octet, once known.
    next: Option<u32>,
    /// Out-of-order segments by position in the stream.
    waiting: BTreeMap<u64, Vec<u8>>,
    waiting_octets: usize,
    /// Position of `next` in the stream.
    position: u64,
}

/// A gap in the capture: the stream cannot be read beyond it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hole {
    /// Position in the stream of the first octet that is missing.
    pub(super) position: u64,
}

impl Stream {
    /// The connection's SYN: data starts at the next sequence number.
    pub(super) fn syn(&mut self, seq: u32) {
        *self = Self { next: Some(seq.wrapping_add(1)), ..Self::default() };
    }

    /// Takes a segment; appends what is now in order to `out`. `wire_len` beyond the payload was
    /// not captured and is a gap.
    pub(super) fn push(
        &mut self,
        seq: u32,
        payload: &[u8],
        wire_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Hole> {
        let next = *self.next.get_or_insert(seq);
        // RFC 9293 3.4: sequence numbers compare modulo 2^32.
        let ahead = seq.wrapping_sub(next) as i32;
        let (skip, start) = match ahead {
            ..0 => (ahead.unsigned_abs() as usize, self.position),
            _ => (0, self.position + ahead as u64),
        };
        self.accept(start, payload.get(skip..).unwrap_or_default(), out);
        // A truncated old segment leaves no gap.
        let cut = payload.len() < wire_len && wire_len > skip;
        if cut || self.waiting_octets > MAX_WAITING {
            return Err(Hole { position: self.position });
        }
        Ok(())
    }

    fn accept(&mut self, start: u64, fresh: &[u8], out: &mut Vec<u8>) {
        if fresh.is_empty() {
            return;
        }
        if start > self.position {
            let kept = self.waiting.entry(start).or_default();
            if kept.len() < fresh.len() {
                self.waiting_octets += fresh.len() - kept.len();
                *kept = fresh.to_vec();
            }
            return;
        }
        self.deliver(fresh, out);
        while let Some(entry) = self.waiting.first_entry() {
            if *entry.key() > self.position {
                break;
            }
            let skip = (self.position - *entry.key()) as usize;
            let segment = entry.remove();
            self.waiting_octets -= segment.len();
            if let Some(fresh) = segment.get(skip..) {
                self.deliver(fresh, out);
            }
        }
    }

    fn deliver(&mut self, octets: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(octets);
        self.position += octets.len() as u64;
        self.next = self.next.map(|n| n.wrapping_add(octets.len() as u32));
    }

    /// True if segments wait after a gap.
    pub(super) fn has_hole(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Octets delivered so far.
    pub(super) fn position(&self) -> u64 {
        self.position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(segments: &[(u32, &[u8])]) -> (Stream, Vec<u8>) {
        let (mut stream, mut out) = (Stream::default(), Vec::new());
        stream.syn(u32::MAX - 3);
        for (seq, payload) in segments {
            stream.push(*seq, payload, payload.len(), &mut out).unwrap();
        }
        (stream, out)
    }

    #[test]
    fn reordered_repeated_and_overlapping_segments_across_the_wrap() {
        let s = u32::MAX - 2;
        let (stream, out) = run(&[
            (s.wrapping_add(4), b"efg"),
            (s, b"abc"),
            (s, b"abc"),
            (s.wrapping_add(2), b"cde"),
            (s.wrapping_add(5), b"fgh"),
            (s.wrapping_sub(2), b"??a"),
        ]);
        assert_eq!(out, b"abcdefgh");
        assert!(!stream.has_hole());
        assert_eq!(stream.position(), 8);
    }

    #[test]
    fn a_truncated_packet_is_a_gap() {
        let (mut stream, mut out) = (Stream::default(), Vec::new());
        assert_eq!(stream.push(9, b"abc", 10, &mut out), Err(Hole { position: 3 }));
        assert_eq!(out, b"abc");
    }

    #[test]
    fn a_gap_is_reported_and_bounded() {
        let (mut stream, mut out) = (Stream::default(), Vec::new());
        stream.syn(0);
        let big = vec![0; 1 << 20];
        let mut seq = 2u32;
        let hole = loop {
            if let Err(hole) = stream.push(seq, &big, big.len(), &mut out) {
                break hole;
            }
            assert!(stream.has_hole());
            seq = seq.wrapping_add(big.len() as u32);
        };
        assert_eq!(hole, Hole { position: 0 });
        assert!(out.is_empty());
    }
}
