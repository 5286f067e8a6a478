//! One TCP connection with the peer under test: start-up frames, FPDUs, and how it ended. Belongs to its case.
//! Every wait has a time-out; a peer that died or stopped sending is a result.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use iwarp_proto::mpa::{Parsed, Rx, Tx};
use iwarp_proto::wire::mpa::{EnhancedRepr, FrameKind, MAX_PRIVATE_DATA, StartupRepr};
use iwarp_proto::wire::rdmap::{Opcode, ReadRequestRepr};

use super::fpdu_check::FpduCheck;
use super::frames::{Tagged, crc32c};
use super::record::{Record, Way};
use crate::signals;

/// How often a wait checks for a signal.
const GLANCE: Duration = Duration::from_millis(100);

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Fin,
    Reset,
}

impl End {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Fin => "FIN",
            Self::Reset => "reset",
        }
    }
}

/// What was received next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// A ULPDU.
    Ulpdu(Vec<u8>),
    /// Octets that are not a valid FPDU.
    Bad(String),
    End(End),
    /// Nothing in time.
    Nothing,
}

impl Seen {
    /// For messages.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Ulpdu(ulpdu) => super::answer::describe(ulpdu),
            Self::Bad(text) => format!("octets that are not an FPDU: {text}"),
            Self::End(end) => format!("a {}", end.text()),
            Self::Nothing => "nothing".into(),
        }
    }
}

/// A start-up frame of the peer's.
#[derive(Clone, Debug)]
pub(super) struct Startup {
    pub(super) fixed: StartupRepr,
    pub(super) block: Option<EnhancedRepr>,
    /// Private data after the block.
    pub(super) data: Vec<u8>,
}

pub(super) struct Link {
    stream: TcpStream,
    record: Rc<Record>,
    patience: Duration,
    pending: Vec<u8>,
    end: Option<End>,
    tx: Tx,
    rx: Rx,
    fpdu_check: FpduCheck,
    /// The tester's next MSN on queue 0.
    pub(super) send_msn: u32,
    /// The tester's next MSN on queue 1.
    pub(super) read_msn: u32,
    /// The peer's first message, sent on its own (peers that connect).
    pub(super) first: Option<Vec<u8>>,
    /// The peer's start-up frame.
    pub(super) startup: Option<Startup>,
}

/// The name of a start-up frame in reports.
const fn due(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Request => "an MPA Request",
        FrameKind::Reply => "an MPA Reply",
    }
}

impl Link {
    pub(super) fn new(stream: TcpStream, record: Rc<Record>, patience: Duration) -> Self {
        // Without it small frames wait for acknowledgements, which does no harm.
        let _ = stream.set_nodelay(true);
        // A peer that reads nothing must not block us.
        let _ = stream.set_write_timeout(Some(patience));
        Self {
            stream,
            fpdu_check: FpduCheck::new(record.clone(), true, false),
            record,
            patience,
            pending: Vec::new(),
            end: None,
            tx: Tx::new(Some(crc32c), false),
            rx: Rx::new(Some(crc32c), false),
            send_msn: 1,
            read_msn: 1,
            first: None,
            startup: None,
        }
    }

    /// Full operation begins. `out`: we insert markers; `inward`: the peer does.
    pub(super) fn operate(&mut self, crc: bool, out: bool, inward: bool) {
        let kernel = crc.then_some(crc32c as fn(u32, &[u8]) -> u32);
        self.tx = Tx::new(kernel, out);
        self.rx = Rx::new(kernel, inward);
        self.fpdu_check = FpduCheck::new(self.record.clone(), crc, inward);
    }

    /// Writes octets as they are. Whether the peer is gone shows when its response is read.
    pub(super) fn write(&mut self, octets: &[u8]) {
        self.record.octets(Way::Sent, octets);
        let _ = self.stream.write_all(octets);
    }

    /// The FPDU of a ULPDU, which must be the next one that is written.
    pub(super) fn frame(&mut self, ulpdu: &[u8]) -> Vec<u8> {
        let plan = self.tx.plan(ulpdu.len() as u16);
        let head = [&plan.length_field()[..], ulpdu].concat();
        let mut out = vec![0; plan.wire_len()];
        let framed: Result<(), std::convert::Infallible> =
            plan.encode(&head, &mut out, |_, _| Ok(()));
        match framed {
            Ok(()) => out,
            Err(never) => match never {},
        }
    }

    /// Sends a ULPDU.
    pub(super) fn send(&mut self, ulpdu: &[u8]) {
        let frame = self.frame(ulpdu);
        self.write(&frame);
    }

    /// Sends a FIN.
    pub(super) fn fin(&mut self) {
        self.record.event("FIN sent");
        // The peer may have closed first.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Ends with a reset.
    pub(super) fn reset(self) {
        self.record.event("reset sent");
        // If it cannot be set, the connection ends with a FIN; the peer must survive both.
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
    }

    /// How long a response may take.
    pub(super) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Reads more until `until`; false: nothing was received, or the stream has ended, or a signal ends this run.
    fn fill(&mut self, until: Instant) -> bool {
        if self.end.is_some() {
            return false;
        }
        if signals::caught() {
            // The case counts for nothing.
            self.end = Some(End::Reset);
            return false;
        }
        let left = until.saturating_duration_since(Instant::now()).min(GLANCE);
        // Zero means no time-out.
        let _ = self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))));
        let mut octets = [0; 16 * 1024];
        match self.stream.read(&mut octets) {
            Ok(0) => {
                self.record.event("FIN received");
                self.end = Some(End::Fin);
                false
            }
            Ok(n) => {
                self.record.octets(Way::Received, &octets[..n]);
                self.pending.extend_from_slice(&octets[..n]);
                true
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => false,
            Err(e) if e.kind() == ErrorKind::Interrupted => true,
            Err(_) => {
                self.record.event("reset received");
                self.end = Some(End::Reset);
                false
            }
        }
    }

    /// Waits until `count` octets are there.
    fn wait_for_octets(&mut self, count: usize, until: Instant) -> Result<(), Seen> {
        while self.pending.len() < count {
            if !self.fill(until) && self.end.is_some() || Instant::now() >= until {
                return Err(self.end.map_or(Seen::Nothing, Seen::End));
            }
        }
        Ok(())
    }

    /// Whether octets or the end of the stream arrive within `time`.
    pub(super) fn receives_within(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while self.pending.is_empty() && self.end.is_none() && Instant::now() < until {
            self.fill(until);
        }
        !self.pending.is_empty() || self.end.is_some()
    }

    /// How the connection ended, if it ends within `time`; octets before are skipped.
    pub(super) fn ends(&mut self, time: Duration) -> Option<End> {
        let until = Instant::now() + time;
        while self.end.is_none() && Instant::now() < until {
            self.fill(until);
        }
        self.end
    }

    /// Octets that arrived and were not consumed yet.
    pub(super) const fn unread(&self) -> usize {
        self.pending.len()
    }

    /// The peer's start-up frame, or what was received instead.
    pub(super) fn startup_frame(&mut self, kind: FrameKind) -> Result<Startup, Seen> {
        let until = Instant::now() + self.patience;
        self.wait_for_octets(StartupRepr::LEN, until)?;
        let fixed = StartupRepr::parse(&self.pending).map_err(|error| {
            self.record
                .broken(&["CONN-01"], format!("instead of the key of {}: {error}", due(kind)));
            Seen::Bad(error.to_string())
        })?;
        let length = usize::from(fixed.private_data_len);
        if fixed.kind != kind {
            let text = format!("the key is that of {}, expected {}", due(fixed.kind), due(kind));
            self.record.broken(&["CONN-01"], text.as_str());
            return Err(Seen::Bad(text));
        }
        if length > MAX_PRIVATE_DATA {
            let text = format!("PD_Length is {length}, above {MAX_PRIVATE_DATA}");
            self.record.broken(&["CONN-07"], text.as_str());
            return Err(Seen::Bad(text));
        }
        self.wait_for_octets(StartupRepr::LEN + length, until)?;
        let frame: Vec<u8> = self.pending.drain(..StartupRepr::LEN + length).collect();
        let mut data = frame[StartupRepr::LEN..].to_vec();
        let mut block = None;
        if fixed.enhanced && fixed.revision >= 2 {
            block = EnhancedRepr::parse(&data).ok();
            if block.is_some() {
                data.drain(..EnhancedRepr::LEN);
            }
        }
        Ok(Startup { fixed, block, data })
    }

    /// The next FPDU within `time`.
    pub(super) fn next_within(&mut self, time: Duration) -> Seen {
        self.next_until(Instant::now() + time)
    }

    fn next_until(&mut self, until: Instant) -> Seen {
        loop {
            match self.rx.parse(&self.pending) {
                Parsed::Fpdu(fpdu) => {
                    let length = fpdu.wire_len();
                    let ulpdu: Vec<u8> = fpdu.pieces(0).flatten().copied().collect();
                    let wire: Vec<u8> = self.pending.drain(..length).collect();
                    self.fpdu_check.fpdu(&wire, &ulpdu);
                    return Seen::Ulpdu(ulpdu);
                }
                Parsed::Bad(error) => {
                    self.fpdu_check.bad(error);
                    return Seen::Bad(error.to_string());
                }
                Parsed::Need(count) => {
                    if let Err(other) = self.wait_for_octets(count, until) {
                        return other;
                    }
                }
            }
        }
    }

    /// The next message within the response time-out. Skips zero-length RDMA Writes and responds to zero-length
    /// Reads, which peers use as keep-alive.
    pub(super) fn next(&mut self) -> Seen {
        let until = Instant::now() + self.patience;
        loop {
            let seen = self.next_until(until);
            let Seen::Ulpdu(ulpdu) = &seen else { return seen };
            match super::answer::kind(ulpdu) {
                Some(Opcode::Write) if ulpdu.len() == 14 => {}
                Some(Opcode::ReadRequest) => match super::answer::read_request(ulpdu) {
                    Some(request) if request.size == 0 => self.answer_read(&request, &[]),
                    _ => return seen,
                },
                _ => return seen,
            }
        }
    }

    /// Sends a Read Response in one segment.
    pub(super) fn answer_read(&mut self, request: &ReadRequestRepr, data: &[u8]) {
        let (stag, to) = (request.sink_stag.0, request.sink_to);
        self.send(&Tagged::new(Opcode::ReadResponse, stag, to, data).octets());
    }

    pub(super) fn next_send_msn(&mut self) -> u32 {
        let msn = self.send_msn;
        self.send_msn += 1;
        msn
    }

    pub(super) fn next_read_msn(&mut self) -> u32 {
        let msn = self.read_msn;
        self.read_msn += 1;
        msn
    }

    pub(super) fn record(&self) -> &Record {
        &self.record
    }
}
