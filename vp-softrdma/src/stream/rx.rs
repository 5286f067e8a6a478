//! Receiving from the socket: one large `recv` reads many FPDUs; large payloads are read straight to
//! their places.
//!
//! A payload can be read to its place only once its header has been read. So while payloads are large, only the
//! end of the FPDU and the next header are read after one; more would be a part of the next payload, which
//! would then be copied. Small FPDUs are read together, as many as have arrived, and copied.
//!
//! While a message waits for its receive, no more is read than may be buffered of those after it, and
//! nothing once that is full.
//!
//! The inbox belongs to one QP and is used under its lock, by whichever thread makes progress, with that
//! thread's staging buffer. Between calls only the head of an incomplete FPDU is kept. When the peer dies the
//! core is informed, once, and the inbox reads no more.

use iwarp_proto::{Destination, State, Want};
use shm_ring::SHORT;
use vp_api::capture::Kind;
use vp_soft::memory::AccessError;
use vp_soft::memory::stag_table::Use;
use vp_soft::memory::unmapped;

use crate::qp::context::Context;
use crate::qp::protocol_core::ProtocolCore;
use crate::stream::capture::{Place, Tap};
use crate::stream::local::Local;
use crate::stream::socket::{Fault, Received, Room, Stream};
use crate::stream::{pool, registered};
use crate::tuning;

/// Pieces of a receive's scatter list that one `recvmsg` fills.
const MAX_PIECES: usize = 17;
/// How much to read of a stream at once.
#[derive(Clone, Copy)]
pub(crate) struct Reads {
    /// Octets read after a large payload: the end of its FPDU, often a small one that ends the
    /// message, and the next header.
    side: usize,
    /// Payloads of so many octets are large.
    large: u32,
    /// Pauses before the rest of a payload is read.
    pauses: u32,
}

impl Reads {
    /// Each read is a system call.
    const TCP: Self = Self { side: 2 << 10, large: tuning::PLACE_MIN, pauses: tuning::PAUSES };
    /// A read costs little more than its copy.
    const LOCAL: Self =
        Self { side: tuning::LOCAL_SIDE, large: tuning::LOCAL_PLACE_MIN, pauses: 0 };
}

/// The head of an incomplete FPDU.
struct Tail {
    octets: Box<[u8]>,
    len: usize,
    /// The core continues when there are this many.
    need: usize,
}

impl Tail {
    /// `None`: there is no memory for it.
    fn new(octets: &[u8], need: usize) -> Option<Self> {
        let mut tail = Self { octets: pool::take_tail(need.max(octets.len()))?, len: 0, need };
        tail.append(octets);
        Some(tail)
    }

    fn append(&mut self, octets: &[u8]) {
        self.octets[self.len..self.len + octets.len()].copy_from_slice(octets);
        self.len += octets.len();
    }

    /// Room for the octets that are still wanted.
    fn room(&mut self) -> &mut [u8] {
        let need = self.need.max(self.len);
        &mut self.octets[self.len..need]
    }

    /// Drops `consumed` octets from the front and makes room for `need`.
    fn keep_rest(self, consumed: usize, need: usize) -> Option<Self> {
        let rest = Self::new(&self.octets[consumed.min(self.len)..self.len], need);
        pool::give_tail(self.octets);
        rest
    }
}

/// Octets that arrived and are not consumed yet.
pub(crate) struct Inbox {
    tail: Option<Tail>,
    want: Want,
    reads: Reads,
    /// While not 0, large payloads are expected: so many more reads in a row may find none.
    large: u8,
    /// FIN or a fault was seen: no more is read.
    ended: bool,
    tap: Tap,
    /// System calls made.
    pub(crate) calls: u64,
    /// Octets read.
    pub(crate) octets: u64,
}

impl Inbox {
    /// For a stream through shared memory, or not.
    pub(crate) fn new(local: bool) -> Self {
        Self {
            tail: None,
            want: Want::Octets(1),
            reads: if local { Reads::LOCAL } else { Reads::TCP },
            large: 0,
            ended: false,
            tap: Tap::new(Kind::Received),
            calls: 0,
            octets: 0,
        }
    }
}

/// Why receiving stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stopped {
    /// The socket is empty; new octets are an event.
    Empty,
    /// The socket may have more, but the budget is used up.
    Budget,
}

impl Inbox {
    /// Large payloads are on their way.
    pub(crate) fn expects_large(&self) -> bool {
        self.large > 0
    }

    /// Reads until the socket is empty or the QP's budget is used up. A short read means empty; if an end may
    /// follow (`over`, always so for shared memory), only where shared memory shows that none does.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        stream: &Stream,
        core: &mut ProtocolCore,
        context: &Context,
        over: bool,
    ) -> Stopped {
        self.attend_capture(stream, core, context);
        if let Some(local) = stream.shared()
            && self.receive_short(local, core, context)
        {
            return Stopped::Empty;
        }
        let stopped = pool::with_staging(|staging| {
            let mut budget = tuning::RECEIVE_BUDGET;
            while !self.ended {
                let (received, asked) = self.read(stream, core, context, staging);
                match received {
                    Received::Empty => return self.stopped_at(),
                    Received::Fin => self.end(|tail| core.fin(context, tail)),
                    Received::Broken(fault) => self.end(|_| core.broken(context, fault)),
                    Received::Octets(octets)
                        if octets < asked && (!over || finds_nothing(stream)) =>
                    {
                        return self.stopped_at();
                    }
                    Received::Octets(octets) => match budget.checked_sub(octets) {
                        Some(left) => budget = left,
                        None => return Stopped::Budget,
                    },
                }
            }
            Stopped::Empty
        });
        self.tap.flush();
        stopped
    }

    /// Takes one short write of the peer, if that is what a poller found; the next poll finds what follows.
    #[inline(never)] // so that a receive by TCP needs fewer registers
    fn receive_short(&mut self, local: &Local, core: &mut ProtocolCore, context: &Context) -> bool {
        let expected = matches!(self.want, Want::Octets(_)) && self.tail.is_none() && !self.ended;
        if !expected || core.proto.hold_room().is_some() {
            return false;
        }
        let mut short = [0; SHORT];
        let Some(octets) = local.receive_short(&mut short) else { return false };
        self.calls += 1;
        self.octets += octets as u64;
        self.tap.take(&short[..octets]);
        let input = core.input(context, &short[..octets]);
        self.want = input.want;
        if input.consumed < octets {
            self.take_staged(core, context, &short[input.consumed..octets]);
        }
        self.tap.flush();
        true
    }

    /// Notices that a capture began or ended.
    #[inline]
    fn attend_capture(&mut self, stream: &Stream, core: &ProtocolCore, context: &Context) {
        let Self { tap, tail, octets, .. } = self;
        tap.is_on(stream, context.id.0, || {
            let tail = tail.as_ref().map_or(&[][..], |tail| &tail.octets[..tail.len]);
            match core.proto.fpdu_rest() {
                0 => {
                    let position = octets.wrapping_sub(tail.len() as u64);
                    Place { position, skip: 0, begun: tail }
                }
                rest => {
                    Place { position: *octets, skip: rest.saturating_sub(tail.len()), begun: &[] }
                }
            }
        });
    }

    /// Reads what arrived before the stream broke: it may say why.
    pub(crate) fn receive_rest(
        &mut self,
        stream: &Stream,
        core: &mut ProtocolCore,
        context: &Context,
    ) {
        self.attend_capture(stream, core, context);
        pool::with_staging(|staging| {
            while !self.ended
                && let (Received::Octets(_), _) = self.read(stream, core, context, staging)
            {
            }
        });
        self.tap.flush();
        self.ended = true;
    }

    /// The socket is empty. In the middle of a payload more is on its way: each read of the socket
    /// delays the thread that delivers it.
    fn stopped_at(&self) -> Stopped {
        if let Want::Direct { .. } = self.want {
            (0..self.reads.pauses).for_each(|_| std::hint::spin_loop());
        }
        Stopped::Empty
    }

    fn end(&mut self, report: impl FnOnce(usize)) {
        self.ended = true;
        report(self.tail.as_ref().map_or(0, |tail| tail.len));
    }

    /// One system call, and the handling of its octets; also returns how many it requested.
    fn read(
        &mut self,
        stream: &Stream,
        core: &mut ProtocolCore,
        context: &Context,
        staging: &mut [u8],
    ) -> (Received, usize) {
        let staging = match core.proto.hold_room() {
            None => staging,
            // No more may be buffered: as if the socket were empty.
            Some(0) => return (Received::Empty, 0),
            Some(room) => {
                let room = (room as usize).clamp(self.reads.side, staging.len());
                &mut staging[..room]
            }
        };
        self.calls += 1;
        // A QP that left RTS since has flushed its receive buffers.
        if let Want::Direct { destination, offset, remaining } = self.want
            && core.proto.state() == State::Rts
            && !self.tap.needs_payload()
        {
            let behind = self.behind(staging);
            let sinks = Sinks::resolve(core, context, destination, offset, remaining);
            // If the memory is no longer valid the core finds out when it copies there, and refuses the
            // segment.
            if let Ok((received, placed)) = sinks.and_then(|sinks| sinks.read(stream, behind)) {
                self.take_direct(core, context, received, placed, behind);
                return (received, placed + behind.len());
            }
        }
        self.read_staged(stream, core, context, staging)
    }

    /// The part of `staging` to read into after the payload.
    fn behind<'s>(&self, staging: &'s mut [u8]) -> &'s mut [u8] {
        if self.large > 0 { &mut staging[..self.reads.side] } else { staging }
    }

    /// The first of the received octets, at most `placed`, are at their place already.
    fn take_direct(
        &mut self,
        core: &mut ProtocolCore,
        context: &Context,
        received: Received,
        placed: usize,
        staging: &[u8],
    ) {
        if let Received::Octets(octets) = received {
            self.octets += octets as u64;
            let direct = octets.min(placed);
            self.tap.pass(direct);
            self.tap.take(&staging[..octets - direct]);
            self.want = core.direct(context, direct as u32).want;
            self.take_staged(core, context, &staging[..octets - direct]);
        }
    }

    fn read_staged(
        &mut self,
        stream: &Stream,
        core: &mut ProtocolCore,
        context: &Context,
        staging: &mut [u8],
    ) -> (Received, usize) {
        let staging = self.behind(staging);
        let room = self.tail.as_mut().map_or(&mut [][..], Tail::room);
        let room_len = room.len();
        let received = if room_len == 0 {
            stream.recv(staging)
        } else {
            stream.scatter(&mut [Room::of(room), Room::of(staging)])
        };
        if let Received::Octets(octets) = received {
            self.octets += octets as u64;
            let appended = octets.min(room_len);
            if let Some(tail) = &mut self.tail {
                self.tap.take(&tail.octets[tail.len..tail.len + appended]);
                tail.len += appended;
            }
            self.tap.take(&staging[..octets - appended]);
            self.take_staged(core, context, &staging[..octets - appended]);
        }
        (received, room_len + staging.len())
    }

    /// Feeds the core, and learns whether payloads are large enough to read them one at a time.
    fn take_staged(&mut self, core: &mut ProtocolCore, context: &Context, staged: &[u8]) {
        let before = core.proto.fpdus_received();
        self.feed(core, context, staged);
        let fpdus = core.proto.fpdus_received().wrapping_sub(before);
        let next = match self.want {
            Want::Direct { remaining, .. } if !staged.is_empty() => Some(remaining),
            _ => None,
        };
        // A message of large payloads often ends with a small one.
        let were_large = staged.len() as u64 >= fpdus.max(1) * u64::from(self.reads.large / 2);
        if next.is_some_and(|octets| octets >= self.reads.large)
            || (were_large && core.proto.places_early())
        {
            self.large = tuning::PLACE_READS;
        } else if next.is_some() || staged.len() >= self.reads.side {
            self.large = self.large.saturating_sub(1);
        }
    }

    /// Feeds the core with the tail and `octets`, and keeps what it does not consume.
    pub(crate) fn feed(&mut self, core: &mut ProtocolCore, context: &Context, mut octets: &[u8]) {
        loop {
            if let Some(mut tail) = self.tail.take() {
                let more = octets.len().min(tail.room().len());
                tail.append(&octets[..more]);
                octets = &octets[more..];
                if tail.len < tail.need {
                    self.tail = Some(tail);
                    return;
                }
                self.feed_tail(core, context, tail);
                continue;
            }
            if octets.is_empty() {
                return;
            }
            let input = core.input(context, octets);
            octets = &octets[input.consumed.min(octets.len())..];
            self.want = input.want;
            if let Want::Octets(need) = input.want
                && !octets.is_empty()
            {
                self.keep(Tail::new(octets, need), core, context);
                return;
            }
        }
    }

    /// Keeps the head of an FPDU. Without memory for it the stream cannot continue.
    fn keep(&mut self, tail: Option<Tail>, core: &mut ProtocolCore, context: &Context) {
        if tail.is_none() {
            core.fail(context);
        }
        self.tail = tail;
    }

    fn feed_tail(&mut self, core: &mut ProtocolCore, context: &Context, tail: Tail) {
        let input = core.input(context, &tail.octets[..tail.len]);
        self.want = input.want;
        let rest = tail.len - input.consumed.min(tail.len);
        if rest == 0 {
            pool::give_tail(tail.octets);
        } else if let Want::Octets(need) = input.want {
            self.keep(tail.keep_rest(input.consumed, need), core, context);
        } else {
            pool::give_tail(tail.octets);
        }
    }
}

/// Another read of shared memory would find neither octets nor an end.
fn finds_nothing(stream: &Stream) -> bool {
    stream.shared().is_some_and(Local::is_quiet)
}

/// Registered memory for the rest of a segment.
struct Sinks<'a> {
    uses: [Option<Use<'a>>; MAX_PIECES - 1],
    count: usize,
    octets: usize,
}

impl<'a> Sinks<'a> {
    /// The `remaining` octets at `offset` of `destination`, checked anew.
    fn resolve(
        core: &ProtocolCore,
        context: &'a Context,
        destination: Destination,
        offset: u32,
        remaining: u32,
    ) -> Result<Self, AccessError> {
        let mut sinks = Self { uses: [const { None }; MAX_PIECES - 1], count: 0, octets: 0 };
        match destination {
            Destination::Receive => {
                core.queues.each_sink(context, offset, remaining, |sink| {
                    sinks.add(sink);
                    Ok(())
                })?;
            }
            Destination::Tagged => {
                let tagged = core.queues.tagged.ok_or(AccessError::InvalidStag)?;
                sinks.add(tagged.resolve(context, &core.queues.peer, offset, remaining)?);
            }
        }
        Ok(sinks)
    }

    /// What does not fit into the list is read to staging and copied.
    fn add(&mut self, sink: Use<'a>) {
        if let Some(place) = self.uses.get_mut(self.count) {
            self.octets += sink.len() as usize;
            self.count += 1;
            *place = Some(sink);
        }
    }

    /// Fills them, then `staging`; also returns how many octets they take. Releases the memory before the core
    /// sees anything: the core may be asked to invalidate it.
    fn read(self, stream: &Stream, staging: &mut [u8]) -> Result<(Received, usize), AccessError> {
        let mut rooms = [const { Room::EMPTY }; MAX_PIECES];
        for (room, sink) in rooms.iter_mut().zip(self.uses.iter().flatten()) {
            *room = registered::sink_room(sink)?;
        }
        rooms[self.count] = Room::of(staging);
        let rooms = &mut rooms[..=self.count];
        let mut received = stream.scatter(rooms);
        if received == Received::Broken(Fault::Unmapped) && self.map_blank() {
            received = stream.scatter(rooms);
        }
        Ok((received, self.octets))
    }

    /// Maps pages where the program has unmapped its memory; true if there were such places.
    #[cold]
    fn map_blank(&self) -> bool {
        self.uses.iter().flatten().filter(|sink| unmapped::map_blank(sink)).count() > 0
    }
}
