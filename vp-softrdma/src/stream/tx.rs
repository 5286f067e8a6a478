//! Transmitting to the socket: FPDUs are gathered into batches, each sent with as few system calls as
//! possible.
//!
//! The outbox belongs to one QP and is used under its lock, by whichever thread posts or makes progress.
//! It holds a batch only while octets wait for the socket. When the peer dies the QP drops it with the
//! stream.
//!
//! With CRC on the payload is copied into the batch and the CRC computed over the copy, never over
//! memory that may change meanwhile. With CRC off large payloads are sent straight from registered
//! memory, resolved anew for each system call, so a stalled stream never delays deregistration.

use iwarp_proto::{Fpdu, Payload};
use shm_ring::SHORT;
use vp_api::capture::Kind;
use vp_api::room;
use vp_soft::memory::AccessError;
use vp_soft::memory::place;
use vp_soft::memory::stag_table::{Need, Use};
use vp_soft::queue::wq;

use crate::qp::context::{Context, Queues};
use crate::qp::protocol_core::ProtocolCore;
use crate::stream::capture::{Place, Tap};
use crate::stream::crc;
use crate::stream::local::Local;
use crate::stream::socket::{Fault, Piece, Sent, Stream};
use crate::stream::{pool, registered};
use crate::tuning::{ARENA_OCTETS, BATCH_FPDUS, BATCH_OCTETS, GATHER_MIN};

/// The largest FPDU, markers included.
const MAX_FPDU: usize = 66 << 10;
/// Pieces given to one `sendmsg`.
const MAX_PIECES: usize = 128;
/// The same for a batch with few runs, and for a ring, which holds few FPDUs: clearing room for more takes as long as
/// copying 4 KiB.
const FEW_PIECES: usize = 16;

/// A run of a batch's octets.
#[derive(Clone, Copy)]
enum Run {
    /// In the arena.
    Arena { at: usize, len: usize },
    /// In registered memory.
    Payload(Payload),
}

impl Run {
    fn len(&self) -> usize {
        match self {
            Self::Arena { len, .. } => *len,
            Self::Payload(payload) => payload.len() as usize,
        }
    }
}

/// FPDUs that are being sent.
pub(crate) struct Batch {
    arena: Box<[u8]>,
    used: usize,
    runs: Vec<Run>,
    /// Where each FPDU ends, and its number.
    ends: Vec<(usize, u64)>,
    octets: usize,
    sent: usize,
    /// First run with octets to send, and how many of its octets were sent.
    run: usize,
    run_sent: usize,
    /// First FPDU not sent in full.
    end: usize,
}

impl Batch {
    /// An empty batch; `None`: there is no memory for one.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            arena: room::try_filled(ARENA_OCTETS + MAX_FPDU, 0)?,
            used: 0,
            runs: room::try_list(3 * BATCH_FPDUS)?,
            ends: room::try_list(BATCH_FPDUS)?,
            octets: 0,
            sent: 0,
            run: 0,
            run_sent: 0,
            end: 0,
        })
    }

    /// Empties the batch.
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.ends.clear();
        (self.used, self.octets, self.sent) = (0, 0, 0);
        (self.run, self.run_sent, self.end) = (0, 0, 0);
    }

    fn is_empty(&self) -> bool {
        self.octets == 0
    }

    fn has_room(&self) -> bool {
        self.octets < BATCH_OCTETS && self.ends.len() < BATCH_FPDUS && self.used < ARENA_OCTETS
    }

    /// Octets before the first FPDU: the last streaming-mode message.
    fn push_raw(&mut self, octets: &[u8]) {
        let Some(space) = self.arena.get_mut(self.used..self.used + octets.len()) else { return };
        space.copy_from_slice(octets);
        self.extend_arena(octets.len());
    }

    /// Adds an FPDU, or nothing of it on an error. `kept` is the memory that the one before used.
    fn push<'c>(
        &mut self,
        fpdu: &Fpdu,
        source: &Source<'c, '_>,
        kept: &mut Option<Use<'c>>,
    ) -> Result<(), AccessError> {
        match fpdu.head() {
            // A local operation after it may invalidate its memory before it has left.
            Some(head) if fpdu.payload.len() >= GATHER_MIN && !source.queues.sends.has_locals() => {
                source.check(fpdu.payload)?;
                self.push_arena(head);
                self.runs.push(Run::Payload(fpdu.payload));
                self.octets += fpdu.payload.len() as usize;
                self.push_arena(fpdu.trailer());
            }
            _ => {
                let len = fpdu.wire_len();
                let space = self.arena.get_mut(self.used..self.used + len);
                let space = space.ok_or(AccessError::Bounds)?;
                fpdu.encode_summed(space, |offset, to, crc| {
                    source.copy(fpdu.payload, offset, to, crc, kept)
                })?;
                self.extend_arena(len);
            }
        }
        self.ends.push((self.octets, fpdu.sequence));
        Ok(())
    }

    /// Adds the short messages that are next; false if there was none.
    fn push_short(&mut self, core: &mut ProtocolCore, context: &Context) -> bool {
        let (before, most) = (self.octets, BATCH_FPDUS - self.ends.len());
        let (mut end, ends) = (before, &mut self.ends);
        core.transmit_short(context, &mut self.arena[self.used..], most, |octets, sequence| {
            end += octets;
            ends.push((end, sequence));
        });
        self.extend_arena(end - before);
        end > before
    }

    fn push_arena(&mut self, octets: &[u8]) {
        self.arena[self.used..self.used + octets.len()].copy_from_slice(octets);
        self.extend_arena(octets.len());
    }

    fn extend_arena(&mut self, added: usize) {
        match self.runs.last_mut() {
            Some(Run::Arena { len, .. }) => *len += added,
            _ => self.runs.push(Run::Arena { at: self.used, len: added }),
        }
        self.used += added;
        self.octets += added;
    }

    /// One system call that sends as much of the rest as fits.
    fn send(&self, stream: &Stream, source: &Source<'_, '_>) -> Result<Sent, AccessError> {
        if let Some(Run::Arena { at, len }) = self.runs.get(self.run)
            && self.run + 1 == self.runs.len()
        {
            let octets = &self.arena[at + self.run_sent..at + len];
            return Ok(stream.send(octets));
        }
        match stream.shared() {
            // Each piece is checked again at each call.
            Some(local) => self.send_pieces::<FEW_PIECES>(stream, source, local.room()),
            None if self.runs.len() - self.run <= FEW_PIECES => {
                self.send_pieces::<FEW_PIECES>(stream, source, usize::MAX)
            }
            None => self.send_pieces::<MAX_PIECES>(stream, source, usize::MAX),
        }
    }

    /// [`Batch::send`], in `N` pieces at most, and no further piece after `most` octets.
    fn send_pieces<const N: usize>(
        &self,
        stream: &Stream,
        source: &Source<'_, '_>,
        most: usize,
    ) -> Result<Sent, AccessError> {
        let mut parts = [const { Part::None }; N];
        let mut count = 0;
        let mut skip = self.run_sent;
        let mut octets = 0;
        for run in &self.runs[self.run..] {
            let rest = &mut parts[count..];
            let taken = match run {
                Run::Arena { at, len } => put(rest, Part::Octets(&self.arena[at + skip..at + len])),
                Run::Payload(payload) => source.hold(*payload, skip, rest)?,
            };
            octets += run.len() - skip;
            if taken == 0 {
                break;
            }
            (count, skip) = (count + taken, 0);
            if octets >= most {
                break;
            }
        }
        let mut pieces = [Piece::EMPTY; N];
        for (piece, part) in pieces.iter_mut().zip(&parts[..count]) {
            *piece = part.piece()?;
        }
        Ok(stream.gather(&pieces[..count]))
    }

    /// This many octets were sent; returns the number of the last FPDU that was sent completely.
    fn advance(&mut self, octets: usize) -> Option<u64> {
        self.sent += octets;
        self.run_sent += octets;
        while let Some(run) = self.runs.get(self.run)
            && self.run_sent >= run.len()
        {
            self.run_sent -= run.len();
            self.run += 1;
        }
        let mut last = None;
        while let Some((end, sequence)) = self.ends.get(self.end)
            && *end <= self.sent
        {
            last = Some(*sequence);
            self.end += 1;
        }
        last
    }

    /// Fills `to` with the octets from `at` on.
    fn copy(
        &self,
        at: usize,
        mut to: &mut [u8],
        source: &Source<'_, '_>,
    ) -> Result<(), AccessError> {
        let mut skip = at;
        for run in &self.runs {
            let here = run.len().saturating_sub(skip).min(to.len());
            let (now, later) = to.split_at_mut(here);
            match run {
                _ if here == 0 => {}
                Run::Arena { at, .. } => now.copy_from_slice(&self.arena[at + skip..][..here]),
                Run::Payload(payload) => {
                    source.copy(*payload, skip as u32, now, None, &mut None)?
                }
            }
            (to, skip) = (later, skip.saturating_sub(run.len()));
        }
        if to.is_empty() { Ok(()) } else { Err(AccessError::Bounds) }
    }

    fn is_sent(&self) -> bool {
        self.sent == self.octets
    }
}

/// The source of payloads.
struct Source<'c, 'q> {
    context: &'c Context,
    queues: &'q Queues,
}

impl<'c> Source<'c, '_> {
    /// Calls `f` with each piece of `len` octets at `offset` of a payload.
    fn each(
        &self,
        payload: Payload,
        offset: u32,
        len: u32,
        mut f: impl FnMut(Use<'c>) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        match payload {
            Payload::None => Ok(()),
            Payload::Local { slot, offset: start, .. } => {
                self.queues.each_source(self.context, slot, start + offset, len, f)
            }
            Payload::Source { stag, to, .. } => {
                let to = to + u64::from(offset);
                f(self.queues.read_source(self.context, stag, to, len)?)
            }
        }
    }

    fn check(&self, payload: Payload) -> Result<(), AccessError> {
        self.each(payload, 0, payload.len(), |_| Ok(()))
    }

    /// Fills `to` with a payload's octets from `offset` on. Continues `crc`, if given, over them.
    fn copy(
        &self,
        payload: Payload,
        offset: u32,
        to: &mut [u8],
        mut crc: Option<&mut u32>,
        kept: &mut Option<Use<'c>>,
    ) -> Result<(), AccessError> {
        let Payload::Local { slot, offset: start, .. } = payload else {
            return self.each(payload, offset, to.len() as u32, |source| {
                copy_out(&source, to, crc.as_deref_mut())
            });
        };
        let start = start + offset;
        let sgl = match self.queues.sends.payload(slot) {
            wq::Payload::Sgl(sgl) => sgl,
            wq::Payload::Inline(octets) => {
                let from = octets.get(start as usize..).and_then(|from| from.get(..to.len()));
                to.copy_from_slice(from.ok_or(AccessError::Bounds)?);
                crc.into_iter().for_each(|crc| *crc = crc::kernel()(*crc, to));
                return Ok(());
            }
        };
        let mut rest = to;
        for piece in wq::pieces(sgl, start, rest.len() as u32) {
            let Context { table, caller, .. } = self.context;
            let (stag, need) = (piece.stag, Need::LocalRead);
            let source = table.resolve_next(kept, stag, need, caller, piece.to, piece.len)?;
            let (now, later) = rest.split_at_mut(piece.len as usize);
            copy_out(source, now, crc.as_deref_mut())?;
            rest = later;
        }
        Ok(())
    }

    /// Fills `parts` with the payload from octet `skip` on, as many as there is room for; returns how
    /// many.
    fn hold(
        &self,
        payload: Payload,
        skip: usize,
        parts: &mut [Part<'c>],
    ) -> Result<usize, AccessError> {
        let mut count = 0;
        let len = payload.len() - skip as u32;
        self.each(payload, skip as u32, len, |source| {
            count += put(&mut parts[count..], Part::Registered(source));
            Ok(())
        })?;
        Ok(count)
    }
}

/// Copies the front of registered memory; continues `crc`, if given, over it.
fn copy_out(source: &Use<'_>, octets: &mut [u8], crc: Option<&mut u32>) -> Result<(), AccessError> {
    match crc {
        Some(crc) => registered::copy_out_summed(source, 0, octets, crc),
        None => place::copy_out(source, 0, octets),
    }
}

/// The source of one piece of a system call.
enum Part<'a> {
    None,
    Octets(&'a [u8]),
    Registered(Use<'a>),
}

impl Part<'_> {
    fn piece(&self) -> Result<Piece<'_>, AccessError> {
        match self {
            Self::None => Ok(Piece::EMPTY),
            Self::Octets(octets) => Ok(Piece::of(octets)),
            Self::Registered(source) => registered::source_piece(source),
        }
    }
}

/// Puts a part first; returns 0 if there is no room.
fn put<'a>(parts: &mut [Part<'a>], part: Part<'a>) -> usize {
    parts.first_mut().map_or(0, |first| {
        *first = part;
        1
    })
}

/// Octets that wait for the socket.
pub(crate) struct Outbox {
    batch: Option<Box<Batch>>,
    tap: Tap,
    /// Octets of FPDUs gathered so far.
    octets: u64,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { batch: None, tap: Tap::new(Kind::Sent), octets: 0 }
    }
}

/// The result of transmitting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// Nothing waits any more.
    Drained,
    /// The socket took this many octets; FPDUs up to `last` are sent completely.
    Sent { octets: usize, last: Option<u64> },
    /// The socket is full; an event reports when it has room.
    Full,
    /// The stream broke.
    Broken(Fault),
    /// The payload of an FPDU whose header was sent can no longer be read: the stream must be reset.
    /// RDMAC 6.4(1) [VERBS-12]
    Lost,
}

impl Outbox {
    /// Adds a streaming-mode message in front. False: there is no memory for it.
    pub(crate) fn push_raw(&mut self, octets: &[u8]) -> bool {
        if octets.is_empty() {
            return true;
        }
        self.batch = pool::take_batch();
        self.batch.as_mut().map(|batch| batch.push_raw(octets)).is_some()
    }

    /// Fills an empty batch with what the core has to send. False: there is no memory for a batch, and
    /// the core still has it.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        stream: &Stream,
        core: &mut ProtocolCore,
        context: &Context,
    ) -> bool {
        self.batch.is_some() || core.is_idle() || self.gather(stream, core, context)
    }

    fn gather(&mut self, stream: &Stream, core: &mut ProtocolCore, context: &Context) -> bool {
        let Some(mut batch) = pool::take_batch() else { return false };
        let mut kept = None;
        loop {
            if core.has_short()
                && batch.push_short(core, context)
                && (core.is_idle() || !batch.has_room())
            {
                break;
            }
            let Some(fpdu) = core.poll_transmit(context) else { break };
            let source = Source { context, queues: &core.queues };
            if let Err(error) = batch.push(&fpdu, &source, &mut kept) {
                core.source_fault(context, error);
            }
            // A local operation may invalidate only what is not in use, by this thread either.
            if core.queues.sends.has_locals() {
                kept = None;
            }
            if !batch.has_room() {
                break;
            }
        }
        if batch.is_empty() {
            pool::give_batch(batch);
            return true;
        }
        if self.is_captured(stream, context) {
            capture(&mut self.tap, &batch, &Source { context, queues: &core.queues });
        }
        self.octets += batch.octets as u64;
        self.batch = Some(batch);
        true
    }

    /// Whether the peer would get an FPDU of up to [`SHORT`] octets at once, in one cache line.
    #[inline]
    pub(crate) fn takes_short(&mut self, stream: &Stream, context: &Context) -> bool {
        self.batch.is_none()
            && stream.shared().is_some_and(Local::takes_short)
            && !self.is_captured(stream, context)
    }

    /// Sends the first `octets` of an FPDU, after [`Self::takes_short`].
    #[inline]
    pub(crate) fn send_short(&mut self, stream: &Stream, fpdu: &[u8; SHORT], octets: usize) {
        self.octets += octets as u64;
        if let Some(local) = stream.shared() {
            local.send_short(fpdu, octets);
        }
    }

    fn is_captured(&mut self, stream: &Stream, context: &Context) -> bool {
        let place = || Place { position: self.octets, skip: 0, begun: &[] };
        self.tap.is_on(stream, context.id.0, place)
    }

    /// Nothing waits for the stream.
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_none()
    }

    /// One system call's worth of progress.
    #[inline]
    pub(crate) fn send(&mut self, stream: &Stream, context: &Context, queues: &Queues) -> Progress {
        match self.batch.take() {
            None => Progress::Drained,
            Some(batch) => self.send_batch(batch, stream, &Source { context, queues }),
        }
    }

    fn send_batch(
        &mut self,
        mut batch: Box<Batch>,
        stream: &Stream,
        source: &Source<'_, '_>,
    ) -> Progress {
        let progress = match batch.send(stream, source) {
            Err(_) => Progress::Lost,
            Ok(Sent::Full) => Progress::Full,
            Ok(Sent::Broken(fault)) => Progress::Broken(fault),
            Ok(Sent::Octets(octets)) => {
                let last = batch.advance(octets);
                Progress::Sent { octets, last }
            }
        };
        if batch.is_sent() {
            pool::give_batch(batch);
        } else {
            self.batch = Some(batch);
        }
        progress
    }
}

/// Copies of a new batch's FPDUs.
#[cold]
fn capture(tap: &mut Tap, batch: &Batch, source: &Source<'_, '_>) {
    let mut begin = 0;
    for (end, _) in &batch.ends {
        tap.take_fpdu(end - begin, |offset, to| batch.copy(begin + offset, to, source).is_ok());
        begin = *end;
    }
    tap.flush();
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[path = "tx_tests.rs"]
mod tests;
