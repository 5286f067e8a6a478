//! Captures: copies of the FPDUs of all streams of this process, passed to an observer through shared memory
//! ([`vp_api::capture`]).
//!
//! There is one capture of the process at a time, under a lock that is held to write the records of one visit
//! ([`observer`]); its number is in an atomic, 0 without a capture, which each visit of a stream reads once. Each
//! direction of a stream has a [`Tap`], used under its QP's lock. It begins at the first FPDU after the capture began,
//! and its number tells it from those of earlier captures. Records for which there is no room are dropped, and their
//! FPDUs are counted. After the observer's death, the capture ends once its memory is full. In a child made by fork(2)
//! there is none.
//!
//! Of an FPDU the headers are copied, and as much of the payload as was asked for. While payload is captured,
//! received payloads are not read straight to their places.

mod observer;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iwarp_proto::mpa;
use kal_os::fork::PerProcess;
use vp_api::capture::{CONTENT_MAX, CRC, INITIATOR, Kind, LOCAL_STREAM, MARKERS, Record};
use vp_api::{Role, StreamParams, VpError, VpResult, VpStatus};

use crate::fork::SoftRdmaFds;
use crate::stream::socket::Stream;
use observer::{Observer, Written};

/// Octets that hold the headers of any FPDU: length, DDP, RDMAP.
pub(crate) const HEAD: usize = 20;
/// Octets of records after which they are written.
const FULL: usize = 24 << 10;

/// Number of the present capture; 0: none.
static PRESENT: AtomicU32 = AtomicU32::new(0);
/// Numbers of streams.
static STREAMS: AtomicU64 = AtomicU64::new(0);
static CAPTURE: PerProcess<Mutex<Capture>> = PerProcess::new();

/// The capture of this process.
#[derive(Default)]
struct Capture {
    to: Option<Observer>,
    payload: u32,
    /// FPDUs for which there was no room.
    dropped: u64,
    /// How many of them the observer knows.
    reported: u64,
    /// How many there were.
    number: u32,
}

fn capture() -> MutexGuard<'static, Capture> {
    // Nothing panics while the lock is held.
    CAPTURE.get::<SoftRdmaFds>().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins a capture to the memory in this socket, with so many octets of each payload; returns its number.
pub(crate) fn begin(to: BorrowedFd<'_>, payload: u32) -> VpResult<u32> {
    let mut capture = capture();
    if capture.to.as_ref().is_some_and(Observer::is_alive) {
        let why = "this process is being captured already; wait until that ends, or end it";
        return Err(VpError::new(VpStatus::InUse, why));
    }
    let to = Some(Observer::adopt(to)?);
    // Octets of a payload beyond the longest are none.
    let payload = payload.min(u32::from(u16::MAX));
    *capture = Capture { to, payload, dropped: 0, reported: 0, number: capture.number + 1 };
    PRESENT.store(capture.number, Relaxed);
    Ok(capture.number)
}

/// Ends the capture of this number; returns how many FPDUs were dropped.
pub(crate) fn end(number: u32) -> VpResult<u64> {
    let mut capture = capture();
    if capture.number != number || capture.to.take().is_none() {
        let why = format!("there is no capture {number}");
        return Err(VpError::new(VpStatus::InvalidModifier, why));
    }
    PRESENT.store(0, Relaxed);
    Ok(capture.dropped)
}

/// What a capture says of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    number: u64,
    flags: u8,
}

impl Facts {
    pub(crate) fn new(params: &StreamParams, local: bool) -> Self {
        let flags = [
            (params.role == Role::Initiator, INITIATOR),
            (params.crc, CRC),
            (local, LOCAL_STREAM),
            (params.markers_tx || params.markers_rx, MARKERS),
        ];
        let flags = flags.iter().filter(|(has, _)| *has).fold(0, |all, (_, flag)| all | flag);
        Self { number: STREAMS.fetch_add(1, Relaxed), flags }
    }
}

/// Where a direction of a stream is when a capture begins.
pub(crate) struct Place<'a> {
    /// Octets of the direction before `rest`.
    pub(crate) position: u64,
    /// Octets of an FPDU that has begun, and that is not captured.
    pub(crate) skip: usize,
    /// Octets of the first FPDU to capture.
    pub(crate) begun: &'a [u8],
}

/// A direction of a stream.
#[derive(Debug)]
pub(crate) struct Tap {
    kind: Kind,
    /// The capture that it knows.
    seen: u32,
    open: Option<Box<Open>>,
}

/// A direction that is captured.
#[derive(Debug)]
struct Open {
    facts: Facts,
    /// The queue pair and the addresses, for the record of the stream.
    qp: u32,
    ends: String,
    /// The observer knows the stream.
    announced: bool,
    payload: u32,
    position: u64,
    skip: usize,
    /// The front of the present FPDU, as far as it is kept.
    front: Vec<u8>,
    /// Its octets so far.
    taken: usize,
    records: Vec<u8>,
    count: u64,
}

impl Tap {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { kind, seen: 0, open: None }
    }

    /// Whether there is a capture; begins or ends this direction's part of it. `place`: where it is.
    #[inline]
    pub(crate) fn is_on<'a>(
        &mut self,
        stream: &Stream,
        qp: u32,
        place: impl FnOnce() -> Place<'a>,
    ) -> bool {
        if PRESENT.load(Relaxed) != self.seen {
            self.change(stream, qp, place());
        }
        self.open.is_some()
    }

    #[cold]
    fn change(&mut self, stream: &Stream, qp: u32, place: Place<'_>) {
        let capture = capture();
        self.seen = if capture.to.is_some() { capture.number } else { 0 };
        self.open = None;
        if capture.to.is_none() {
            // A child has no part in the capture of its parent.
            PRESENT.store(0, Relaxed);
            return;
        }
        let end = |end: Option<std::net::SocketAddr>| end.map_or("?".into(), |end| end.to_string());
        let Place { position, skip, begun } = place;
        let mut open = Box::new(Open {
            facts: stream.facts,
            qp,
            ends: format!("{} {}", end(stream.local()), end(stream.remote())),
            announced: false,
            payload: capture.payload,
            position,
            skip,
            front: Vec::new(),
            taken: 0,
            records: Vec::new(),
            count: 0,
        });
        drop(capture);
        open.take(self.kind, begun);
        self.open = Some(open);
    }

    /// Whether payload must pass by here.
    pub(crate) fn needs_payload(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.payload > 0 && !open.is_unreadable())
    }

    /// The next octets of the direction.
    pub(crate) fn take(&mut self, octets: &[u8]) {
        if let Some(open) = &mut self.open {
            open.take(self.kind, octets);
        }
    }

    /// The next octets of the direction, of payload that is not here.
    pub(crate) fn pass(&mut self, octets: usize) {
        if let Some(open) = &mut self.open {
            open.pass(self.kind, octets);
        }
    }

    /// The next FPDU, whole; `copy` fills octets of it from an offset on, or cannot.
    pub(crate) fn take_fpdu(&mut self, len: usize, mut copy: impl FnMut(usize, &mut [u8]) -> bool) {
        let Some(open) = &mut self.open else { return };
        let mut front = vec![0; len.min(HEAD)];
        let mut whole = copy(0, &mut front);
        let kept = kept(&front, len, open.payload);
        let head = front.len().min(kept);
        front.resize(kept, 0);
        whole &= kept <= head || copy(head, &mut front[head..]);
        if !whole {
            front.truncate(head);
        }
        open.front = front;
        open.taken = len;
        open.record(self.kind, len);
    }

    /// The visit is over.
    pub(crate) fn flush(&mut self) {
        if let Some(open) = &mut self.open {
            open.write();
        }
    }
}

impl Open {
    /// Positions of markers are known from the beginning of the stream only.
    fn is_unreadable(&self) -> bool {
        self.facts.flags & MARKERS != 0
    }

    fn take(&mut self, kind: Kind, mut octets: &[u8]) {
        while !octets.is_empty() {
            let skipped = octets.len().min(self.skip);
            self.position += skipped as u64;
            self.skip -= skipped;
            octets = &octets[skipped..];
            let due = match self.len() {
                _ if self.skip > 0 || octets.is_empty() => return,
                None => HEAD_OF_HEAD,
                Some(len) => kept(&self.front, len, self.payload),
            };
            let more = due.saturating_sub(self.front.len()).min(octets.len());
            self.front.extend_from_slice(&octets[..more]);
            self.taken += more;
            octets = &octets[more..];
            if let Some(len) = self.len() {
                let due = kept(&self.front, len, self.payload);
                if self.front.len() >= due {
                    let rest = octets.len().min(len - self.taken);
                    octets = &octets[rest..];
                    self.taken += rest;
                }
                if self.taken == len {
                    self.record(kind, len);
                }
            }
        }
    }

    fn pass(&mut self, kind: Kind, octets: usize) {
        let skipped = octets.min(self.skip);
        self.position += skipped as u64;
        self.skip -= skipped;
        self.taken += octets - skipped;
        if let Some(len) = self.len().filter(|len| self.taken >= *len) {
            self.record(kind, len);
        }
    }

    /// Octets of the present FPDU on the wire, once that is known.
    fn len(&self) -> Option<usize> {
        let front = self.front.first_chunk::<HEAD_OF_HEAD>()?;
        Some(mpa::fpdu_len(u16::from_be_bytes([front[0], front[1]])))
    }

    /// The present FPDU is complete.
    fn record(&mut self, kind: Kind, len: usize) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let now = Duration::try_from(now).unwrap_or_default();
        if !self.is_unreadable() {
            let record = Record {
                kind,
                flags: 0,
                octets: len as u32,
                stream: self.facts.number,
                position: self.position,
                time: now.as_nanos() as u64,
                content: &self.front,
            };
            record.put(&mut self.records);
            self.count += 1;
        }
        self.position += len as u64;
        self.taken = 0;
        self.front.clear();
        if self.records.len() >= FULL {
            self.write();
        }
    }

    /// Writes the records, or drops them.
    fn write(&mut self) {
        if self.records.is_empty() && (self.announced || !self.is_unreadable()) {
            return;
        }
        let mut capture = capture();
        let Capture { to: Some(to), dropped, reported, .. } = &mut *capture else {
            self.records.clear();
            return;
        };
        let mut front = Vec::new();
        if reported != dropped {
            count(*dropped).put(&mut front);
        }
        if !self.announced {
            self.announcement().put(&mut front);
        }
        match to.write(&front, &self.records) {
            Written::All => {
                *reported = *dropped;
                self.announced = true;
            }
            Written::Nothing => *dropped += self.count,
            Written::Gone => {
                capture.to = None;
                PRESENT.store(0, Relaxed);
            }
        }
        self.records.clear();
        self.count = 0;
    }

    fn announcement(&self) -> Record<'_> {
        let Facts { number, flags } = self.facts;
        Record {
            kind: Kind::Stream,
            flags,
            octets: self.qp,
            stream: number,
            position: 0,
            time: 0,
            content: self.ends.as_bytes(),
        }
    }
}

/// The record of so many drops.
fn count(dropped: u64) -> Record<'static> {
    let (kind, position) = (Kind::Dropped, dropped);
    Record { kind, flags: 0, octets: 0, stream: 0, position, time: 0, content: &[] }
}

/// Octets that say how long an FPDU is, and how much of it is header.
const HEAD_OF_HEAD: usize = 4;

/// How many octets of an FPDU of `len` are kept: the headers, `payload` octets, and its end if they are all.
/// `front`: at least the first 4 octets.
// RFC 5040 4.3, RFC 5041 4: Read Requests and Terminates have headers only
fn kept(front: &[u8], len: usize, payload: u32) -> usize {
    const TAGGED: u8 = 0x80;
    const READ_REQUEST: u8 = 1;
    const TERMINATE: u8 = 7;
    let Some(&[high, low, ddp, rdmap]) = front.first_chunk::<HEAD_OF_HEAD>() else { return 0 };
    let header = if ddp & TAGGED != 0 { HEAD - 4 } else { HEAD };
    let end = 2 + usize::from(u16::from_be_bytes([high, low]));
    match rdmap & 0xF {
        READ_REQUEST | TERMINATE => len,
        _ if header + payload as usize >= end => len,
        _ => header + payload as usize,
    }
    .min(CONTENT_MAX)
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[path = "capture_tests.rs"]
mod tests;
