//! TCP connections of a capture: finds those that begin with an MPA start-up, learns CRC and markers
//! from it, and explains both directions. Owns all reassembly state; other
//! connections are dropped at their first octets.

use std::collections::HashMap;
use std::net::SocketAddr;

use iwarp_proto::decode::{DecodeOptions, Start, explain};

use super::packet::Segment;
use super::render::Renderer;
use super::stream::Stream;
use crate::error::CliResult;

/// Keys of start-up frames (RFC 5044 section 7.1.1).
const REQUEST: &[u8; 16] = b"MPA ID Req Frame";
const REPLY: &[u8; 16] = b"MPA ID Rep Frame";

/// Octets of a start-up frame before its private data.
const STARTUP_LEN: usize = 20;

/// Flags of a start-up frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Flags {
    /// Markers are wanted by its sender, in what it receives.
    pub(super) markers: bool,
    /// CRC.
    pub(super) crc: bool,
}

/// Flags of the start-up frame that `octets` begin with.
pub(super) fn startup_flags(octets: &[u8]) -> Option<Flags> {
    let (key, rest) = octets.split_first_chunk::<16>()?;
    let flags = *rest.first()?;
    (key == REQUEST || key == REPLY)
        .then_some(Flags { markers: flags & 0x80 != 0, crc: flags & 0x40 != 0 })
}

/// Identifies one direction by source and destination.
type Key = (SocketAddr, SocketAddr);

/// All connections.
#[derive(Default)]
pub(super) struct Connections {
    directions: HashMap<Key, Direction>,
}

#[derive(Default)]
struct Direction {
    stream: Stream,
    /// Octets in order, not explained yet.
    pending: Vec<u8>,
    /// Position in the stream of the first octet of `pending`.
    base: u64,
    /// The flags of its start-up frame, once seen.
    flags: Option<Flags>,
    /// Octets of full operation explained.
    operated: u64,
    /// Set when the rest cannot be explained.
    over: bool,
}

impl Direction {
    /// Not MPA.
    fn is_foreign(&self) -> bool {
        let known = self.pending.len().min(REQUEST.len());
        self.flags.is_none()
            && self.base == 0
            && self.pending[..known] != REQUEST[..known]
            && self.pending[..known] != REPLY[..known]
    }

    /// Octets of a whole start-up frame at the front of `pending`.
    fn startup_len(&self) -> Option<usize> {
        let length = self.pending.get(18..STARTUP_LEN)?;
        let whole = STARTUP_LEN + usize::from(u16::from_be_bytes([length[0], length[1]]));
        (self.pending.len() >= whole).then_some(whole)
    }
}

impl Connections {
    /// Takes a segment and explains the frames that it completes.
    pub(super) fn push(
        &mut self,
        segment: &Segment<'_>,
        renderer: &mut Renderer<'_>,
    ) -> CliResult<()> {
        let (key, reverse) = ((segment.from, segment.to), (segment.to, segment.from));
        let direction = self.directions.entry(key).or_default();
        if segment.syn {
            *direction = Direction::default();
            direction.stream.syn(segment.seq);
        }
        if direction.over || segment.wire_len == 0 || segment.syn {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut direction.pending);
        let pushed =
            direction.stream.push(segment.seq, segment.payload, segment.wire_len, &mut pending);
        direction.pending = pending;
        if direction.is_foreign() {
            *direction = Direction { over: true, ..Direction::default() };
            return Ok(());
        }
        self.explain(key, renderer)?;
        // A reply also determines how to read the other direction.
        self.explain(reverse, renderer)?;
        if let Err(hole) = pushed {
            renderer.note(
                key,
                &format!(
                    "octets are missing in the capture from stream position {} on",
                    hole.position
                ),
            )?;
            self.end(key);
        }
        Ok(())
    }

    fn end(&mut self, key: Key) {
        if let Some(direction) = self.directions.get_mut(&key) {
            direction.over = true;
            direction.pending = Vec::new();
        }
    }

    fn explain(&mut self, key: Key, renderer: &mut Renderer<'_>) -> CliResult<()> {
        let peer = self.directions.get(&(key.1, key.0)).and_then(|d| d.flags);
        let Some(direction) = self.directions.get_mut(&key) else { return Ok(()) };
        if direction.flags.is_none() && !startup(key, direction, renderer)? {
            return Ok(());
        }
        let (Some(own), Some(peer)) = (direction.flags, peer) else { return Ok(()) };
        if direction.pending.is_empty() {
            return Ok(());
        }
        let crc = own.crc || peer.crc;
        let options = DecodeOptions {
            crc: crc.then_some(super::crc32c as fn(u32, &[u8]) -> u32),
            markers: peer.markers,
            start: Start::Fpdu { position: direction.operated },
        };
        let mut used = 0;
        for frame in explain(&direction.pending, options) {
            if frame.length < frame.full_length {
                break;
            }
            used = frame.offset + frame.length;
            renderer.frame(Some(key), direction.base, &frame.into())?;
        }
        direction.operated += used as u64;
        consume(direction, used);
        Ok(())
    }

    /// Reports incomplete frames at the end of the capture.
    pub(super) fn finish(&mut self, renderer: &mut Renderer<'_>) -> CliResult<()> {
        let mut rest: Vec<_> =
            self.directions.iter().filter(|(_, d)| !d.over && d.flags.is_some()).collect();
        rest.sort_by_key(|(key, _)| **key);
        for (key, direction) in rest {
            if direction.stream.has_hole() {
                let at = direction.stream.position();
                renderer.note(
                    *key,
                    &format!("octets are missing in the capture from stream position {at} on"),
                )?;
            } else if !direction.pending.is_empty() {
                let left = direction.pending.len();
                renderer.note(*key, &format!("the capture ends {left} octets into a frame"))?;
            }
        }
        Ok(())
    }
}

/// Explains the start-up frame once it is complete; true if it was.
fn startup(key: Key, direction: &mut Direction, renderer: &mut Renderer<'_>) -> CliResult<bool> {
    let Some(whole) = direction.startup_len() else { return Ok(false) };
    let Some(flags) = startup_flags(&direction.pending) else { return Ok(false) };
    let options = DecodeOptions { crc: None, markers: false, start: Start::Startup };
    for frame in explain(&direction.pending[..whole], options) {
        renderer.frame(Some(key), direction.base, &frame.into())?;
    }
    direction.flags = Some(flags);
    consume(direction, whole);
    Ok(true)
}

fn consume(direction: &mut Direction, octets: usize) {
    direction.pending.drain(..octets);
    direction.base += octets as u64;
}

#[cfg(test)]
mod tests {
    use super::super::packet::tests::{ipv4_packet, segment};
    use super::*;

    fn startup_frame(key: &[u8; 16], flags: u8) -> Vec<u8> {
        let mut frame = key.to_vec();
        frame.extend([flags, 1, 0, 0]);
        frame
    }

    /// A Send Last of 4 octets without CRC.
    const FPDU: [u8; 28] =
        [0, 22, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0];

    fn decode(packets: &[Vec<u8>]) -> String {
        let mut out = Vec::new();
        let mut renderer = Renderer::new(&mut out, false, true);
        let mut connections = Connections::default();
        for packet in packets {
            connections.push(&segment(101, packet).unwrap(), &mut renderer).unwrap();
        }
        connections.finish(&mut renderer).unwrap();
        renderer.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_connection_is_recognised_and_read_whatever_the_segments() {
        let (a, b) = ((1, 2), (2, 1));
        let request = startup_frame(REQUEST, 0);
        let mut stream = FPDU.repeat(2);
        stream.extend(&FPDU[..5]);
        let packets = [
            ipv4_packet(a, 9, 2, b""),
            ipv4_packet(b, 99, 0x12, b""),
            ipv4_packet(a, 10, 0x10, &request[..7]),
            ipv4_packet(a, 17, 0x10, &request[7..]),
            ipv4_packet(a, 60, 0x10, &stream[30..]),
            ipv4_packet(b, 100, 0x10, &startup_frame(REPLY, 0)),
            ipv4_packet(a, 30, 0x10, &stream[..30]),
        ];
        let text = decode(&packets);
        assert!(text.contains("MPA Request") && text.contains("MPA Reply"), "{text}");
        assert_eq!(text.matches("Send").count(), 2, "{text}");
        assert!(text.contains("the capture ends 5 octets into a frame"), "{text}");
    }

    #[test]
    fn connections_without_mpa_are_ignored() {
        let text =
            decode(&[ipv4_packet((1, 2), 9, 2, b""), ipv4_packet((1, 2), 10, 0x10, b"GET /")]);
        assert_eq!(text, "0 frames, 0 broken requirements\n");
    }
}
