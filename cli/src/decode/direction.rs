//! One direction of a TCP connection of a capture: finds where MPA begins, explains its frames, and finds the next
//! frame behind a gap. Owns the octets that are not explained yet, less than a frame's.

use std::collections::VecDeque;
use std::net::SocketAddr;

use iwarp_proto::decode::{DecodeOptions, Frame, Start, explain};
use iwarp_proto::wire::ddp::{self, TaggedRepr, UntaggedRepr};
use iwarp_proto::wire::rdmap::Control;

use super::render::{Origin, Renderer, Stamp};
use super::stream::{Piece, Stream};
use crate::error::CliResult;

/// Keys of start-up frames (RFC 5044 section 7.1.1).
const REQUEST: &[u8; 16] = b"MPA ID Req Frame";
const REPLY: &[u8; 16] = b"MPA ID Rep Frame";

/// Octets of a start-up frame before its private data.
const STARTUP_LEN: usize = 20;

/// The shortest FPDU.
const SHORTEST: usize = 8;

/// Octets that contain the headers of an FPDU and the markers in them.
const FRONT: usize = 64;

/// Octets kept while the peer's start-up frame is not known.
const MAX_QUEUED: usize = 1 << 20;

/// Source and destination.
pub(super) type Key = (SocketAddr, SocketAddr);

/// Flags of a start-up frame.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
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

/// How the FPDUs of a direction are read.
#[derive(Clone, Copy, Debug)]
struct Fpdus {
    crc: bool,
    markers: bool,
}

#[derive(Clone, Copy, Default, Debug)]
enum Phase {
    /// No frame was found yet; what is pending begins where a segment does.
    #[default]
    Search,
    /// The peer's start-up frame decides how the FPDUs are read.
    Startup,
    /// What is pending begins with an FPDU, or is the rest of one that ends at `frame_end`.
    Operation(Fpdus),
    /// Where the next FPDU begins is not known.
    Lost(Fpdus),
}

/// Where octets of a segment begin in the stream.
struct Mark {
    position: u64,
    /// They are the segment's first.
    front: bool,
    stamp: Stamp,
}

/// Whether an FPDU begins somewhere.
#[derive(PartialEq, Eq)]
enum Begins {
    Yes,
    No,
    /// More octets will tell.
    Later,
}

#[derive(Default)]
pub(super) struct Direction {
    pub(super) stream: Stream,
    /// In order, and not looked at yet.
    queue: VecDeque<Piece>,
    queued: usize,
    /// Octets without a gap; the first `read` are explained.
    octets: Vec<u8>,
    read: usize,
    /// Position in the stream of the first octet that is not explained.
    base: u64,
    marks: VecDeque<Mark>,
    /// Position in the stream of the first octet of full operation.
    operation: u64,
    /// End of a frame that was shown although octets of it are missing.
    frame_end: u64,
    flags: Option<Flags>,
    phase: Phase,
}

impl Direction {
    /// What its start-up frame says; what its FPDUs show if that was not captured.
    pub(super) const fn flags(&self) -> Option<Flags> {
        self.flags
    }

    /// Takes octets that are in order.
    pub(super) fn queue(&mut self, pieces: Vec<Piece>) {
        self.queued += pieces.iter().map(|piece| piece.data.len()).sum::<usize>();
        self.queue.extend(pieces);
    }

    /// Explains what is there. `peer`: the flags of the other direction.
    pub(super) fn advance(
        &mut self,
        key: Key,
        peer: Option<Flags>,
        renderer: &mut Renderer<'_>,
    ) -> CliResult<()> {
        loop {
            if matches!(self.phase, Phase::Startup) {
                match peer {
                    None if self.queued <= MAX_QUEUED => return Ok(()),
                    peer => self.operate(peer.unwrap_or_default()),
                }
            }
            while self.step(key, false, renderer)? {}
            if matches!(self.phase, Phase::Startup) {
                continue;
            }
            let Some(piece) = self.queue.pop_front() else { return Ok(()) };
            if piece.data.is_empty() {
                self.gap(key, &piece, renderer)?;
                continue;
            }
            self.queued -= piece.data.len();
            self.marks.push_back(Mark {
                position: self.base + self.pending().len() as u64,
                front: piece.front,
                stamp: piece.stamp,
            });
            self.octets.extend_from_slice(&piece.data);
            if piece.missing > 0 {
                self.queue.push_front(Piece { data: Vec::new(), ..piece });
            }
        }
    }

    /// Passes all gaps.
    pub(super) fn release(
        &mut self,
        key: Key,
        peer: Option<Flags>,
        renderer: &mut Renderer<'_>,
    ) -> CliResult<()> {
        self.advance(key, peer, renderer)?;
        let mut found = Vec::new();
        while self.stream.pass_gap(&mut found) {
            self.queue(std::mem::take(&mut found));
            self.advance(key, peer, renderer)?;
        }
        Ok(())
    }

    /// Explains the rest at the end of the capture or of the connection.
    pub(super) fn finish(
        &mut self,
        key: Key,
        peer: Option<Flags>,
        renderer: &mut Renderer<'_>,
    ) -> CliResult<()> {
        self.release(key, Some(peer.unwrap_or_default()), renderer)?;
        while self.step(key, true, renderer)? {}
        let left = self.pending().len();
        if left > 0 && !matches!(self.phase, Phase::Search) {
            renderer.skipped(left as u64);
            renderer.note(key, &format!("the capture ends {left} octets into a frame"))?;
        }
        Ok(())
    }

    fn pending(&self) -> &[u8] {
        &self.octets[self.read..]
    }

    fn consume(&mut self, octets: usize) {
        self.read += octets;
        self.base += octets as u64;
        if self.read == self.octets.len() || self.read > MAX_QUEUED {
            self.octets.drain(..self.read);
            self.read = 0;
        }
        while self.marks.get(1).is_some_and(|mark| mark.position <= self.base) {
            self.marks.pop_front();
        }
    }

    /// Passes octets over that belong to no frame that is explained.
    fn skip(&mut self, octets: usize, renderer: &mut Renderer<'_>) {
        self.consume(octets);
        renderer.skipped(octets as u64);
    }

    /// Full operation begins.
    fn operate(&mut self, peer: Flags) {
        let own = self.flags.unwrap_or_default();
        // RFC 5044 7.1.1 [MPA-13, CONN-02]
        let fpdus = Fpdus { crc: own.crc || peer.crc, markers: peer.markers };
        self.phase = match self.base > self.operation {
            true => Phase::Lost(fpdus),
            false => Phase::Operation(fpdus),
        };
    }

    /// The octets of what is pending up to position `end` as one frame, or the front of one.
    fn explained(
        &self,
        at: usize,
        len: usize,
        start: Start,
        crc: bool,
        markers: bool,
    ) -> Option<Frame> {
        let crc = crc.then_some(super::crc32c as fn(u32, &[u8]) -> u32);
        let octets = self.pending().get(at..at + len)?;
        explain(octets, DecodeOptions { crc, markers, start }).into_iter().next()
    }

    /// An FPDU that begins at `at` of what is pending.
    fn fpdu(&self, fpdus: Fpdus, at: usize, len: usize) -> Option<Frame> {
        let position = self.base + at as u64 - self.operation;
        self.explained(at, len, Start::Fpdu { position }, fpdus.crc, fpdus.markers)
    }

    /// Octets of the FPDU that begins at `at`, if its length is there.
    fn fpdu_len(&self, fpdus: Fpdus, at: usize) -> Option<usize> {
        let len = self.pending().len().checked_sub(at)?.min(SHORTEST);
        let full = self.fpdu(fpdus, at, len)?.full_length;
        (full >= SHORTEST).then_some(full)
    }

    /// Writes a frame that ends `len` octets further, as far as it was captured.
    fn show(
        &self,
        key: Key,
        frame: Option<Frame>,
        len: usize,
        renderer: &mut Renderer<'_>,
    ) -> CliResult<()> {
        let last = self.base + len.saturating_sub(1) as u64;
        let mark = self.marks.iter().rev().find(|mark| mark.position <= last);
        match (frame, mark) {
            (Some(frame), Some(mark)) => {
                let origin = Origin { from: key.0, to: key.1, packet: mark.stamp };
                renderer.frame(Some(origin), self.base, &frame.into())
            }
            _ => Ok(()),
        }
    }

    /// One step forward; false if more octets are needed. `last`: none come before a gap or the end.
    fn step(&mut self, key: Key, last: bool, renderer: &mut Renderer<'_>) -> CliResult<bool> {
        match self.phase {
            Phase::Search => self.search(key, renderer),
            Phase::Startup => Ok(false),
            Phase::Operation(_) if self.base < self.frame_end => {
                let rest = usize::try_from(self.frame_end - self.base).unwrap_or(usize::MAX);
                let rest = rest.min(self.pending().len());
                self.skip(rest, renderer);
                Ok(rest > 0)
            }
            Phase::Operation(fpdus) => {
                let Some(len) = self.fpdu_len(fpdus, 0) else { return Ok(false) };
                let whole = len <= self.pending().len();
                if whole {
                    self.show(key, self.fpdu(fpdus, 0, len), len, renderer)?;
                    self.consume(len);
                }
                Ok(whole)
            }
            Phase::Lost(fpdus) => Ok(self.find(fpdus, last, renderer)),
        }
    }

    /// Looks for a start-up frame, or an FPDU with a correct CRC, where a segment begins.
    fn search(&mut self, key: Key, renderer: &mut Renderer<'_>) -> CliResult<bool> {
        const FPDUS: Fpdus = Fpdus { crc: true, markers: false };
        let pending = self.pending();
        let known = pending.len().min(REQUEST.len());
        if known == 0 {
            return Ok(false);
        }
        if pending[..known] == REQUEST[..known] || pending[..known] == REPLY[..known] {
            let Some(len) = startup_len(pending).filter(|len| *len <= pending.len()) else {
                return Ok(false);
            };
            self.startup(key, len, len, renderer)?;
            self.consume(len);
            return Ok(true);
        }
        self.operation = self.base;
        match self.begins(FPDUS, 0, false) {
            Begins::Later => return Ok(false),
            Begins::Yes => {
                self.phase = Phase::Operation(FPDUS);
                self.flags = Some(Flags { crc: true, markers: false });
                renderer.note(key, "found by its CRC: the start-up was not captured")?;
            }
            Begins::No => {
                let next = self.marks.iter().find(|mark| mark.front && mark.position > self.base);
                let skip = next.map(|mark| (mark.position - self.base) as usize);
                self.consume(skip.unwrap_or(self.pending().len()));
            }
        }
        Ok(true)
    }

    /// Explains `captured` octets of a start-up frame of `len`.
    fn startup(
        &mut self,
        key: Key,
        captured: usize,
        len: usize,
        renderer: &mut Renderer<'_>,
    ) -> CliResult<()> {
        self.flags = startup_flags(self.pending());
        let frame = self.explained(0, captured, Start::Startup, false, false);
        self.show(key, frame, captured, renderer)?;
        self.operation = self.base + len as u64;
        self.phase = Phase::Startup;
        Ok(())
    }

    /// Looks for the next FPDU in what is pending. True if it was found.
    fn find(&mut self, fpdus: Fpdus, last: bool, renderer: &mut Renderer<'_>) -> bool {
        // FPDUs are multiples of 4 octets (RFC 5044 4.1) [MPA-03].
        let mut at = ((self.operation.wrapping_sub(self.base)) % 4) as usize;
        let found = loop {
            match self.begins(fpdus, at, last) {
                Begins::No => at += 4,
                other => break other,
            }
        };
        self.skip(at.min(self.pending().len()), renderer);
        if found == Begins::Yes {
            self.phase = Phase::Operation(fpdus);
        }
        found == Begins::Yes
    }

    /// Whether an FPDU begins at `at` of what is pending: its CRC, the next header, or its segment shows it.
    fn begins(&self, fpdus: Fpdus, at: usize, last: bool) -> Begins {
        let pending = self.pending();
        let yes = |holds| if holds { Begins::Yes } else { Begins::No };
        let Some(len) = self.fpdu_len(fpdus, at) else { return Begins::Later };
        if !self.plausible(fpdus, at) {
            return Begins::No;
        }
        let position = self.base + at as u64;
        let front = self.marks.iter().any(|mark| mark.front && mark.position == position);
        match pending.len().checked_sub(at + len) {
            None if last => yes(front),
            None => Begins::Later,
            Some(_) if fpdus.crc => {
                let frame = self.fpdu(fpdus, at, len);
                yes(frame.is_some_and(|f| f.violations().all(|v| v.requirement != "MPA-09")))
            }
            Some(behind) if behind >= SHORTEST => yes(self.plausible(fpdus, at + len)),
            Some(_) => yes(front),
        }
    }

    /// Whether the octets at `at` look like the front of an FPDU.
    fn plausible(&self, fpdus: Fpdus, at: usize) -> bool {
        let octets = &self.pending()[at..];
        if fpdus.markers {
            let frame = self.fpdu(Fpdus { crc: false, ..fpdus }, at, octets.len().min(FRONT));
            return frame.is_some_and(|frame| frame.violations().next().is_none());
        }
        let &[high, low, ddp, ulp, ..] = octets else { return false };
        let (ddp, ulp) = (ddp::Control(ddp), Control(ulp));
        let header = if ddp.tagged() { TaggedRepr::LEN } else { UntaggedRepr::LEN };
        let opcode = ulp.opcode();
        usize::from(u16::from_be_bytes([high, low])) >= header
            && ddp.0 & 0x3f == 1
            && ulp.0 & 0xf0 == 0x40
            && opcode.is_some_and(|opcode| opcode.queue().is_none() == ddp.tagged())
    }

    /// Octets are missing behind what is pending, which is less than a frame.
    fn gap(&mut self, key: Key, gap: &Piece, renderer: &mut Renderer<'_>) -> CliResult<()> {
        let missing = gap.missing;
        while self.step(key, true, renderer)? {}
        let have = self.pending().len();
        let end = self.base + have as u64 + missing;
        match self.phase {
            Phase::Search => {
                let Some(len) = startup_len(self.pending()) else {
                    self.consume(have);
                    self.base = end;
                    return Ok(());
                };
                self.startup(key, have, len, renderer)?;
                self.frame_end = self.operation;
            }
            Phase::Operation(fpdus) => {
                let len = self.fpdu_len(fpdus, 0).filter(|_| self.base >= self.frame_end);
                if let Some(len) = len {
                    self.show(key, self.fpdu(fpdus, 0, have), have, renderer)?;
                    self.frame_end = self.base + len as u64;
                }
                if end > self.frame_end {
                    self.phase = Phase::Lost(fpdus);
                }
                if end > self.frame_end && !gap.cut {
                    let at = self.base + have as u64;
                    let text =
                        format!("octets are missing in the capture from stream position {at} on");
                    renderer.note(key, &text)?;
                }
                if len.is_none() {
                    renderer.skipped(have as u64);
                }
            }
            Phase::Lost(_) | Phase::Startup => renderer.skipped(have as u64),
        }
        renderer.missing(missing);
        self.consume(have);
        self.base = end;
        Ok(())
    }
}

/// Octets of the start-up frame that `octets` begin with, if its length is there.
fn startup_len(octets: &[u8]) -> Option<usize> {
    startup_flags(octets)?;
    let length = octets.get(STARTUP_LEN - 2..STARTUP_LEN)?;
    Some(STARTUP_LEN + usize::from(u16::from_be_bytes([length[0], length[1]])))
}
