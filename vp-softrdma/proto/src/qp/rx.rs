//! Receive half of a QP: octets to FPDUs to segments, and their placement.
//!
//! Owner: the QP; touched only by the thread that drives it. If the peer dies in the middle of a
//! message, `in_message` is true, and the host flushes the receive buffer.

use crate::ddp::untagged::Partial;
use crate::error::ProtocolError;
use crate::host::{AccessError, Host, Immediate, Receive};
use crate::mpa::{self, Parsed, RxFpdu};
use crate::qp::effect::{Destination, Input, Want};
use crate::qp::hold::HeldMessages;
use crate::qp::{LastTerminate, Qp, Refers, RefusedHeaders, State};
use crate::rdmap::access;
use crate::types::{Role, Stag};
use crate::wire::ddp::{self, Header, UntaggedRepr};
use crate::wire::mpa::{CRC_LEN, LENGTH_LEN, pad_len};
use crate::wire::rdmap::{self, AtomicRequestRepr, Opcode, ReadRequestRepr, qn};
use crate::wire::terminate::TerminateRepr;

/// A payload with fewer octets is not placed as it streams in: it waits for the whole FPDU.
const DIRECT_MIN: usize = 2048;
/// Longest DDP header and the longest payload that the core itself parses.
const HEAD: usize = ddp::MAX_HEADER + TerminateRepr::MAX_LEN;

/// State of the receive half.
#[derive(Debug)]
pub(crate) struct Reception {
    pub(super) framing: mpa::Rx,
    /// Next MSN by queue number.
    pub(super) msn: [u32; 4],
    /// The Send-type message that has a buffer and is not complete.
    pub(super) partial: Option<Partial>,
    /// Messages that have no receive buffer yet.
    pub(super) hold: HeldMessages,
    /// An RDMA Write whose last segment has not come.
    pub(super) write_open: bool,
    written: Written,
    /// A segment whose payload is placed as it streams in.
    direct: Option<Direct>,
    /// The first FPDU may be a zero-length Send that takes no buffer (AMB-12).
    pub(crate) expect_empty_send: bool,
}

/// The RDMA Write that came last.
#[derive(Default, Debug)]
struct Written {
    octets: u32,
    /// The MSN that a Send after it has.
    msn: u32,
}

/// One DDP segment, checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) header: Header,
    pub(super) opcode: Opcode,
    pub(super) ulpdu_len: u16,
}

impl Segment {
    pub(super) fn payload_len(&self) -> u32 {
        u32::from(self.ulpdu_len) - self.header.buffer_len() as u32
    }
    pub(super) fn last(&self) -> bool {
        self.header.control().last()
    }
    /// Its payload goes to the host, not to the core.
    fn is_bulk(&self) -> bool {
        use Opcode::*;
        matches!(
            self.opcode,
            Write
                | ReadResponse
                | Send
                | SendInvalidate
                | SendSolicited
                | SendSolicitedInvalidate
                | SendImmediate
                | SendImmediateSolicited
        )
    }
}

/// What the last segment of a Send-type message says of its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    solicited: bool,
    word: Word,
}

/// What the header's 32-bit word means.
#[derive(Clone, Copy, Debug)]
enum Word {
    Nothing,
    Invalidate(Stag),
    Immediate(u32),
    /// RFC 7306 Immediate Data, and octets of the Write before it.
    Alone(u64, u32),
}

impl Last {
    #[inline]
    pub(super) fn new(segment: &Segment, header: &UntaggedRepr) -> Self {
        let word = match segment.opcode {
            opcode if opcode.invalidates() => Word::Invalidate(Stag(header.ulp_word)),
            opcode if opcode.experimental() => Word::Immediate(header.ulp_word),
            _ => Word::Nothing,
        };
        Self { solicited: segment.opcode.solicited(), word }
    }
    pub(super) fn alone(segment: &Segment, data: u64, written: u32) -> Self {
        Self { solicited: segment.opcode.solicited(), word: Word::Alone(data, written) }
    }
    /// The message is placed: its receive completes.
    // RFC 5040 5.3 [RDMAP-13, VERBS-27, ERR-25, SEC-06]: payload placed, then invalidate, then complete
    #[inline]
    pub(super) fn complete<H: Host>(self, octets: u32, host: &mut H) -> Result<(), ProtocolError> {
        let (octets, invalidated, immediate) = match self.word {
            Word::Nothing => (octets, None, None),
            Word::Invalidate(stag) => {
                host.invalidate_remote(stag).map_err(|_| ProtocolError::CannotInvalidate)?;
                (octets, Some(stag), None)
            }
            Word::Immediate(data) => (octets, None, Some(Immediate::OfSend(data))),
            Word::Alone(data, written) => (written, None, Some(Immediate::Alone(data))),
        };
        let solicited = self.solicited;
        host.complete_receive(Receive { octets, solicited, invalidated, immediate });
        Ok(())
    }
}

/// Where an admitted segment's payload goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Landing {
    /// Nowhere: there is no payload.
    Empty,
    /// The receive buffer, from this offset.
    Buffer(u32),
    /// The hold buffer: no receive is posted.
    Hold,
    /// Registered memory, checked with the host.
    Tagged,
}

#[derive(Clone, Copy, Debug)]
struct Direct {
    segment: Segment,
    landing: Landing,
    placed: u32,
    left: u32,
    /// Pad and CRC field after the payload.
    trailer: usize,
}

impl Direct {
    fn want(&self) -> Want {
        if self.left == 0 {
            return Want::Octets(self.trailer);
        }
        let (destination, start) = match self.landing {
            Landing::Buffer(start) => (Destination::Receive, start),
            Landing::Hold => return Want::Octets(1),
            Landing::Tagged | Landing::Empty => (Destination::Tagged, 0),
        };
        Want::Direct { destination, offset: start + self.placed, remaining: self.left }
    }
}

impl Reception {
    pub(crate) fn new(framing: mpa::Rx, msn: [u32; 4]) -> Self {
        Self {
            framing,
            msn,
            partial: None,
            hold: HeldMessages::default(),
            write_open: false,
            written: Written::default(),
            direct: None,
            expect_empty_send: false,
        }
    }
    /// A segment of an RDMA Write is placed.
    #[inline]
    pub(super) fn count_write(&mut self, octets: u32, last: bool) {
        let before = if self.write_open { self.written.octets } else { 0 };
        self.wrote(before.wrapping_add(octets));
        self.write_open = !last;
    }
    /// So many octets of an RDMA Write are placed.
    #[inline]
    pub(super) fn wrote(&mut self, octets: u32) {
        self.written = Written { octets, msn: self.msn[qn::SEND as usize] };
    }
    /// Octets of the RDMA Write before the next message of queue 0; 0 if that follows another one of the queue.
    pub(super) fn written_before(&self) -> u32 {
        let is_next = self.written.msn == self.msn[qn::SEND as usize];
        if is_next { self.written.octets } else { 0 }
    }
    /// Octets left of a segment that streams in.
    pub(crate) fn rest(&self) -> usize {
        self.direct.map_or(0, |direct| direct.left as usize + direct.trailer)
    }
    /// Whether the peer has begun a message and not finished it.
    pub(crate) fn in_message(&self) -> bool {
        self.direct.is_some() || self.partial.is_some() || self.write_open || self.hold.is_open()
    }
    /// The incomplete buffered message, with `received` octets so far, got its receive buffer: the rest of
    /// a segment that streams in goes there. Returns the octets of whole segments, and the octets with
    /// that segment.
    pub(super) fn redirect(&mut self, octets: u32) -> (u32, u64) {
        match &mut self.direct {
            Some(Direct { landing: landing @ Landing::Hold, segment, placed, .. }) => {
                let received = octets - *placed;
                *landing = Landing::Buffer(received);
                (received, u64::from(received) + u64::from(segment.payload_len()))
            }
            _ => (octets, octets.into()),
        }
    }
}

impl Qp {
    /// Octets from the stream, in order, `octets` beginning with what was not consumed before.
    pub fn handle_input<H: Host>(&mut self, octets: &[u8], host: &mut H) -> Input {
        let mut consumed = 0;
        loop {
            let rest = &octets[consumed..];
            match self.state {
                // RDMAC 6.2.5 [VERBS-05]: the peer continues a large segment
                State::Closing if self.rx.direct.is_some() && !rest.is_empty() => {
                    self.bad_close(host);
                    continue;
                }
                State::Rts | State::Closing => {}
                // RDMAC 6.2.3 [VERBS-10, MPA-38, DDP-16]: inbound segments are ignored
                State::Idle | State::Terminate | State::Error => {
                    return Input { consumed: octets.len(), want: Want::Nothing };
                }
            }
            if let Some(direct) = self.rx.direct {
                if rest.is_empty() {
                    // Closing has released the receive buffers: nothing is placed there any more.
                    let rts = self.state == State::Rts;
                    let want = if rts { direct.want() } else { Want::Octets(1) };
                    return Input { consumed, want };
                }
                consumed += self.continue_direct(direct, rest, host);
                continue;
            }
            if self.state == State::Rts && self.rx.is_plain() {
                consumed += self.take_fast(rest, host);
                // As the slow path finds: the next FPDU begins with its length.
                if consumed == octets.len() && self.state == State::Rts {
                    return Input { consumed, want: Want::Octets(LENGTH_LEN) };
                }
            }
            let rest = &octets[consumed..];
            match self.rx.framing.parse(rest) {
                Parsed::Fpdu(fpdu) => {
                    consumed += fpdu.wire_len();
                    self.handle_fpdu(&fpdu, host);
                }
                Parsed::Need(octets) => match self.begin_direct(rest, host) {
                    Some(header) => consumed += header,
                    None => return Input { consumed, want: Want::Octets(octets) },
                },
                // RFC 5044 8 [MPA-37, MPA-38, MPA-39]
                Parsed::Bad(error) => self.refuse(error, None, host),
            }
        }
    }

    /// `octets` were placed directly after [`Want::Direct`]. Returns as `handle_input`.
    pub fn handle_direct<H: Host>(&mut self, octets: u32, host: &mut H) -> Input {
        if let Some(direct) = self.rx.direct.as_mut() {
            let octets = octets.min(direct.left);
            direct.left -= octets;
            direct.placed += octets;
        }
        self.handle_input(&[], host)
    }

    fn judge(&self, header: &Header) -> Result<Opcode, ProtocolError> {
        let (extensions, immediates) = (self.config.extensions, self.send_immediates);
        judge(header, |opcode| {
            (extensions || !opcode.extension()) && (immediates || !opcode.experimental())
        })
    }

    fn handle_fpdu<H: Host>(&mut self, fpdu: &RxFpdu<'_>, host: &mut H) {
        let mut scratch = [0; HEAD];
        let head = fpdu.head(&mut scratch);
        // RFC 5041 4.1 [DDP-24]
        let Ok(header) = Header::parse(head) else {
            return self.refuse(ProtocolError::UlpduLength, None, host);
        };
        self.on_valid_fpdu();
        let inline = &head[header.buffer_len()..];
        let ulpdu_len = fpdu.ulpdu_len();
        let segment = match self.judge(&header) {
            Ok(opcode) => Segment { header, opcode, ulpdu_len },
            Err(error) => {
                let refused =
                    RefusedHeaders { header, ulpdu_len, read_request: None, atomic: None };
                return self.refuse(error, Some(refused), host);
            }
        };
        if self.state == State::Closing {
            return self.close_interrupted(&segment, inline, host);
        }
        let result = if segment.is_bulk() {
            self.handle_bulk(&segment, fpdu, host)
        } else {
            self.handle_control(&segment, inline, host)
        };
        self.rx.expect_empty_send = false;
        if let Err(error) = result {
            self.refuse(error, Some(refused_segment(&segment, inline)), host);
        }
    }

    /// A valid FPDU: the peer lives, and a responder may send (RFC 5044 7.1.2(4)) [CONN-11].
    pub(super) fn on_valid_fpdu(&mut self) {
        self.stats.fpdus_received = self.stats.fpdus_received.wrapping_add(1);
        self.tx.allowed = true;
        if self.role == Role::Responder {
            self.establish();
        }
    }

    /// Check, place, deliver: each step only if the one before succeeded [DDP-12, DDP-16].
    fn handle_bulk<H: Host>(
        &mut self,
        segment: &Segment,
        fpdu: &RxFpdu<'_>,
        host: &mut H,
    ) -> Result<(), ProtocolError> {
        let landing = self.admit(segment, host)?;
        let mut placed = 0;
        for piece in fpdu.pieces(segment.header.buffer_len()) {
            self.place(landing, placed, piece, host)?;
            placed += piece.len() as u32;
        }
        self.deliver(segment, host)
    }

    /// RDMAC 6.2.5 [VERBS-05]: data after our FIN makes the close a bad one. Kicks and
    /// probes that were in flight when we closed are ignored.
    fn close_interrupted<H: Host>(&mut self, segment: &Segment, inline: &[u8], host: &mut H) {
        let harmless = match segment.opcode {
            Opcode::Write => segment.payload_len() == 0,
            Opcode::ReadResponse => segment.payload_len() == 0 && self.requester.hidden() > 0,
            Opcode::ReadRequest => ReadRequestRepr::parse(inline).is_ok_and(|r| r.size == 0),
            _ => false,
        };
        if segment.opcode == Opcode::Terminate
            && let Ok(terminate) = TerminateRepr::parse(inline)
        {
            let refers = Refers::Ours(None);
            self.last_terminate = Some(LastTerminate { refers, message: terminate });
        }
        if !harmless {
            self.bad_close(host);
        }
    }

    #[inline]
    fn place<H: Host>(
        &mut self,
        landing: Landing,
        offset: u32,
        octets: &[u8],
        host: &mut H,
    ) -> Result<(), ProtocolError> {
        match landing {
            Landing::Empty => Ok(()),
            Landing::Buffer(start) => host.place_receive(start + offset, octets),
            Landing::Hold => {
                self.rx.hold.append(octets);
                Ok(())
            }
            Landing::Tagged => host.place_tagged(offset, octets),
        }
        .map_err(|error| placement_error(landing, error))
    }

    // ---- payload that streams in ------------------------------------------------------------

    /// Admits a segment whose large payload has only begun to arrive, when no CRC after it has to be
    /// verified. Returns the octets of length field and header.
    fn begin_direct<H: Host>(&mut self, octets: &[u8], host: &mut H) -> Option<usize> {
        if self.state != State::Rts || !self.rx.framing.places_early() {
            return None;
        }
        let peek = self.rx.framing.peek(octets).ok()?;
        let header = Header::parse(peek.ulpdu).ok()?;
        let missing = usize::from(peek.ulpdu_len) - peek.ulpdu.len();
        if missing < DIRECT_MIN {
            return None;
        }
        let opcode = self.judge(&header).ok()?;
        let segment = Segment { header, opcode, ulpdu_len: peek.ulpdu_len };
        if !segment.is_bulk() {
            return None;
        }
        match self.admit(&segment, host) {
            Ok(landing) => {
                let left = segment.payload_len();
                let trailer = pad_len(segment.ulpdu_len) + CRC_LEN;
                self.rx.direct = Some(Direct { segment, landing, placed: 0, left, trailer });
            }
            Err(error) => {
                self.on_valid_fpdu();
                self.refuse(error, Some(refused_segment(&segment, &[])), host);
            }
        }
        Some(LENGTH_LEN + header.buffer_len())
    }

    /// Places or skips the present part of a segment that streams in; returns the octets used.
    fn continue_direct<H: Host>(
        &mut self,
        mut direct: Direct,
        octets: &[u8],
        host: &mut H,
    ) -> usize {
        let payload = octets.len().min(direct.left as usize);
        if payload > 0 {
            let piece = &octets[..payload];
            if let Err(error) = self.place(direct.landing, direct.placed, piece, host) {
                self.refuse(error, Some(refused_segment(&direct.segment, &[])), host);
                return payload;
            }
            direct.placed += payload as u32;
            direct.left -= payload as u32;
        }
        let trailer = (octets.len() - payload).min(direct.trailer);
        direct.trailer -= trailer;
        self.rx.direct = (direct.left > 0 || direct.trailer > 0).then_some(direct);
        if self.rx.direct.is_none() {
            self.on_valid_fpdu();
            self.rx.expect_empty_send = false;
            if let Err(error) = self.deliver(&direct.segment, host) {
                self.refuse(error, Some(refused_segment(&direct.segment, &[])), host);
            }
        }
        payload + trailer
    }
}

/// Versions, opcode, T bit and queue, in this order (RFC 5040 7.2, RFC 5041 7.1) [RDMAP-31]. `takes`: whether
/// this stream knows the opcode.
fn judge(header: &Header, takes: impl Fn(&Opcode) -> bool) -> Result<Opcode, ProtocolError> {
    // RFC 5041 4.1 [DDP-04, ERR-05]; reserved bits are ignored [DDP-03]
    if header.control().version() != ddp::VERSION {
        return Err(match header {
            Header::Tagged(_) => ProtocolError::TaggedVersion,
            Header::Untagged(_) => ProtocolError::UntaggedVersion,
        });
    }
    let control = rdmap::Control(header.ulp());
    // RFC 5040 4.1 [RDMAP-01, ERR-06]
    if control.version() != rdmap::VERSION {
        return Err(ProtocolError::RdmapVersion);
    }
    // RFC 5040 Figure 4, RFC 7306 1.1 [RDMAP-02, ERR-07, EXT-01, EXT-16]
    let Some(opcode) = control.opcode().filter(takes) else {
        return Err(ProtocolError::Opcode);
    };
    match (header, opcode.queue()) {
        (Header::Tagged(_), None) => {}
        // RFC 5041 7.1(1) [DDP-14, ERR-08, EXT-17]
        (Header::Untagged(h), Some(queue)) if h.qn != queue => {
            return Err(ProtocolError::QueueNumber);
        }
        (Header::Untagged(_), Some(_)) => {}
        _ => return Err(ProtocolError::Opcode),
    }
    Ok(opcode)
}

/// The headers of a segment for a Terminate; `inline` is the front of its payload, if available.
pub(super) fn refused_segment(segment: &Segment, inline: &[u8]) -> RefusedHeaders {
    let Segment { header, opcode, ulpdu_len } = *segment;
    let mut refused = RefusedHeaders { header, ulpdu_len, read_request: None, atomic: None };
    match opcode {
        Opcode::ReadRequest => refused.read_request = ReadRequestRepr::parse(inline).ok(),
        Opcode::AtomicRequest => {
            let request = AtomicRequestRepr::parse(inline).ok();
            refused.atomic = request.map(|request| (request.stag, request.to));
        }
        _ => {}
    }
    refused
}

/// A receive buffer that cannot be filled is our own fault, not the peer's [ERR-27].
fn placement_error(landing: Landing, error: AccessError) -> ProtocolError {
    match landing {
        Landing::Tagged => access::tagged(error),
        Landing::Buffer(_) | Landing::Hold | Landing::Empty => ProtocolError::LocalCatastrophic,
    }
}
