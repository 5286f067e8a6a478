//! The requester: splits requests into packets, repeats unacknowledged ones, completes in order (InfiniBand
//! volume 1, 9.7.3 to 9.7.7).
//!
//! State: each started request has its range of PSNs, and counts how many of them are done; the cursor is the
//! next packet to send. Going back sets the cursor to the first packet that is not done.
//!
//! To an end of this implementation a Write is sent as Writes of one packet each: a RETH only in the first would make that
//! one longer than the others, and packets of one length leave in one system call. With immediate data it is one message,
//! whose length the peer reports.
//!
//! A long Read is sent as several Read Requests, each for no more packets than fit the window: UDP has no back
//! pressure, and a full socket drops responses.

use alloc::collections::{TryReserveError, VecDeque};

use super::call::{Call, room};
use super::congestion::Window;
use super::host::{AtomicOp, Host};
use super::outstanding::Outstanding;
use super::request::{Completion, Post, PostError, Request, SendOp, Status};
use super::timing::{RoundTrip, Timing};
use super::{RcConfig, Source, Stats, Transmit, packet};
use crate::psn::Psn;
use crate::wire::aeth::{Nak, Syndrome, rnr_time};
use crate::wire::bth::{Operation, Position, Rider};
use crate::wire::extended::AtomicEth;
use crate::wire::packet::{Extended, Packet};

/// Unlimited retries.
const ENDLESS: u8 = 7;
/// Microseconds between two RNR NAKs that count at most, longer than any time that they ask for: in more the peer, or
/// this end, did not run.
const MOST_UNREADY: u64 = 1_000_000;

/// The next packet to send.
#[derive(Clone, Copy, Default, Debug)]
struct Cursor {
    request: usize,
    packet: u32,
}

#[derive(Debug)]
pub(super) struct Requester {
    queue: VecDeque<Request>,
    /// Number of requests, from the front, that have PSNs.
    started: usize,
    cursor: Cursor,
    /// What requests of one packet before the cursor take of the window beyond one packet each.
    beyond: i64,
    call: Call,
    /// PSN of the next request that is started.
    next: Psn,
    /// The PSN after the last that was ever sent or requested.
    end: Psn,
    reads: Outstanding,
    window: Window,
    completions: VecDeque<Completion>,
    /// Packets sent since the last that asked for an acknowledgement.
    unasked: u32,
    /// Repetitions without progress.
    retries: u8,
    rnr_retries: u8,
    /// When the last RNR NAK without progress arrived, and how long such came before it.
    unready: Option<(u64, u64)>,
    /// The requester went back to this PSN, and nothing has arrived since: another report of the same loss is
    /// ignored.
    went_back: Option<Psn>,
    /// When outstanding packets count as lost.
    lost_at: Option<u64>,
    /// The peer had no receive: send nothing until then.
    paused_until: Option<u64>,
    failed: Option<Status>,
    /// The request that failed first.
    failed_post: Option<Post>,
    /// A Read or an atomic waits for an earlier one.
    waits_for_reads: bool,
    /// Writes are sent as several.
    pub(super) divides: bool,
    timing: Timing,
    pub(super) stats: Stats,
}

impl Requester {
    pub(super) fn new(config: &RcConfig) -> Result<Self, TryReserveError> {
        let depth = config.send_depth as usize;
        let (mut queue, mut completions) = (VecDeque::new(), VecDeque::new());
        queue.try_reserve_exact(depth)?;
        completions.try_reserve_exact(depth)?;
        Ok(Self {
            queue,
            started: 0,
            cursor: Cursor::default(),
            beyond: 0,
            call: Call::default(),
            next: config.send_psn,
            end: config.send_psn,
            reads: Outstanding::new(config.initiator_depth)?,
            window: Window::new(config.window),
            completions,
            unasked: 0,
            retries: 0,
            rnr_retries: 0,
            unready: None,
            went_back: None,
            lost_at: None,
            paused_until: None,
            failed: None,
            failed_post: None,
            waits_for_reads: false,
            divides: false,
            timing: Timing::default(),
            stats: Stats::default(),
        })
    }

    pub(super) fn post(&mut self, config: &RcConfig, post: Post) -> Result<(), PostError> {
        if self.failed.is_some() {
            return Err(PostError::Broken);
        }
        post.check(config.initiator_depth)?;
        if self.queue.len() + self.completions.len() >= config.send_depth as usize {
            return Err(PostError::QueueFull);
        }
        self.queue.push_back(Request::new(post, config.mtu, self.divides));
        Ok(())
    }

    pub(super) fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    pub(super) const fn failed(&self) -> Option<Status> {
        self.failed
    }

    pub(super) const fn failed_post(&self) -> Option<Post> {
        self.failed_post
    }

    pub(super) const fn round_trip(&self) -> Option<RoundTrip> {
        self.timing.known()
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.paused_until.or(self.lost_at)
    }

    /// The first PSN that is not acknowledged.
    fn unacknowledged(&self) -> Psn {
        match self.queue.front() {
            Some(head) if self.started > 0 => head.missing(),
            _ => self.next,
        }
    }

    pub(super) fn poll_transmit(&mut self, config: &RcConfig, now: u64) -> Option<Transmit> {
        if self.failed.is_some() || self.paused_until.is_some() {
            return None;
        }
        let unacknowledged = self.unacknowledged();
        let cursor = self.cursor;
        let request = self.queue.get_mut(cursor.request)?;
        let first = if cursor.request == self.started { self.next } else { request.first };
        let psn = first.plus(cursor.packet);
        let window = self.window.packets();
        let unit = room(config);
        let cost = if request.packets == 1 { self.call.room_of(request) } else { unit };
        let taken = i64::from(psn.ahead_of(unacknowledged)) * unit + self.beyond;
        let free = i64::from(window) * unit - taken;
        // In packets of the path MTU. If nothing is outstanding one may be sent, however long it is.
        let packets = u32::try_from(free / unit).unwrap_or(0).max(u32::from(taken == 0));
        let left = request.packets - cursor.packet;
        let repeated = self.reads.repeated().filter(|_| request.wants_response());
        let count = match (request.post.op, repeated) {
            _ if free < cost && taken != 0 => return None,
            (_, Some(last)) => last.next().ahead_of(psn).unsigned_abs(),
            // [IBRC-17]
            _ if request.wants_response() && !self.reads.has_room() => {
                self.stats.read_stalls += u64::from(!self.waits_for_reads);
                self.waits_for_reads = true;
                return None;
            }
            (SendOp::Read { .. }, None) if left > 1 && packets < left.min(window.div_ceil(2)) => {
                return None;
            }
            // [IBRC-20]
            (SendOp::Read { .. }, None) => left.min(packets.max(1)),
            _ => 1,
        };
        if cursor.request == self.started {
            request.first = first;
            self.next = first.plus(request.packets);
            self.started += 1;
        }
        request.beyond = cost - unit;
        let request = *request;
        self.beyond += request.beyond;
        self.call.add(&request);
        self.advance(&request, count);
        let last = psn.plus(count - 1);
        let is_new = last.next().ahead_of(self.end) > 0;
        if is_new {
            self.end = last.next();
        }
        if request.wants_response() {
            self.waits_for_reads = false;
            self.reads.sent(last);
        }
        self.lost_at = self.lost_at.or_else(|| self.next_time_out(config, now));
        self.unasked += 1;
        let ends = cursor.packet + count == request.packets;
        let mut transmit = cut(config, &request, psn, cursor.packet, count);
        let bth = &mut transmit.headers.bth;
        bth.solicited = ends && request.post.solicited;
        bth.ack_request = ends || packets <= 1 || self.unasked > window / 4;
        if bth.ack_request {
            self.unasked = 0;
            if is_new {
                self.timing.sent(psn, now);
            }
        }
        Some(transmit)
    }

    /// See [`super::Qp::begin_call`].
    pub(super) fn begin_call(&mut self, joins: bool) {
        self.call = Call::new(joins);
    }

    /// The network reports congestion.
    pub(super) fn congested(&mut self) {
        let unacknowledged = self.unacknowledged();
        self.window.shrink(unacknowledged, self.end);
    }

    fn advance(&mut self, request: &Request, count: u32) {
        self.cursor.packet += count;
        if self.cursor.packet == request.packets {
            self.cursor = Cursor { request: self.cursor.request + 1, packet: 0 };
        }
    }

    pub(super) fn handle_response(
        &mut self,
        config: &RcConfig,
        now: u64,
        operation: Operation,
        packet: &Packet<'_>,
        host: &mut impl Host,
    ) {
        let psn = packet.headers.bth.psn;
        // For a packet that was never sent, or was done before.
        if self.failed.is_some() || psn.ahead_of(self.end) >= 0 {
            return;
        }
        match (operation, packet.headers.extended.aeth.map(|aeth| aeth.syndrome)) {
            (Operation::Acknowledge, Some(syndrome)) => {
                self.acknowledgement(config, now, psn, syndrome);
            }
            (Operation::ReadResponse(_), _) => {
                self.timing.replied(psn, now);
                self.response(config, now, psn, packet.payload, host);
            }
            (Operation::AtomicAcknowledge, _) => {
                self.timing.replied(psn, now);
                let original = packet.headers.extended.original.unwrap_or_default();
                self.response(config, now, psn, &original.to_ne_bytes(), host);
            }
            _ => {}
        }
    }

    fn acknowledgement(&mut self, config: &RcConfig, now: u64, psn: Psn, syndrome: Syndrome) {
        match syndrome {
            Syndrome::Ack { .. } => {
                self.timing.replied(psn, now);
                self.acknowledge(config, now, psn.next());
            }
            Syndrome::Reserved(_) => {}
            refusal => {
                self.acknowledge(config, now, psn);
                // Otherwise it is for a packet that has been repeated since.
                if self.started > 0 && self.unacknowledged() == psn {
                    self.refusal(config, now, psn, refusal);
                }
            }
        }
    }

    fn refusal(&mut self, config: &RcConfig, now: u64, psn: Psn, refusal: Syndrome) {
        match refusal {
            Syndrome::Rnr { timer } => self.not_ready(config, now, timer),
            Syndrome::Nak(Nak::PsnSequence) => self.lost(config, now, psn),
            Syndrome::Nak(Nak::InvalidRequest) => self.fail(0, Status::RemoteInvalidRequest),
            Syndrome::Nak(Nak::RemoteAccess) => self.fail(0, Status::RemoteAccess),
            Syndrome::Nak(Nak::RemoteOperational) => self.fail(0, Status::RemoteOperational),
            Syndrome::Ack { .. } | Syndrome::Reserved(_) => {}
        }
    }

    fn not_ready(&mut self, config: &RcConfig, now: u64, timer: u8) {
        self.stats.not_ready += 1;
        // [IBRC-13]
        if config.rnr_retry != ENDLESS {
            if self.rnr_retries >= config.rnr_retry {
                return self.fail(0, Status::RnrRetryExceeded);
            }
            self.rnr_retries += 1;
        }
        // [IBRC-21]
        let (last, before) = self.unready.unwrap_or((now, 0));
        let waited = before.saturating_add(now.saturating_sub(last).min(MOST_UNREADY));
        self.unready = Some((now, waited));
        if config.rnr_limit.is_some_and(|limit| waited >= limit) {
            return self.fail(0, Status::RnrRetryExceeded);
        }
        self.go_back();
        self.lost_at = None;
        self.paused_until = Some(now.saturating_add(u64::from(rnr_time(timer))));
    }

    /// Acknowledges all packets before `end`.
    fn acknowledge(&mut self, config: &RcConfig, now: u64, end: Psn) {
        while self.started > 0
            && let Some(head) = self.queue.front_mut()
        {
            // [IBRC-10]
            let covered = end.ahead_of(head.first).max(0).unsigned_abs().min(head.packets);
            if covered <= head.done {
                return;
            }
            // [IBRC-11]
            // Executed, but the response was lost (InfiniBand volume 1, 9.7.5).
            if head.wants_response() {
                let missing = head.missing();
                return self.lost(config, now, missing);
            }
            self.window.grow(covered - head.done);
            head.done = covered;
            self.progress(config, now);
        }
    }

    /// Handles a response to a Read or atomic.
    fn response(
        &mut self,
        config: &RcConfig,
        now: u64,
        psn: Psn,
        octets: &[u8],
        host: &mut impl Host,
    ) {
        self.acknowledge(config, now, psn);
        let Some(head) = self.queue.front_mut() else { return };
        // A repetition, or one after a gap: `acknowledge` went back already.
        if self.started == 0 || !head.wants_response() || head.missing() != psn {
            return;
        }
        let (offset, len) = match head.post.op {
            SendOp::Read { .. } => head.range(config.mtu, head.done, 1),
            _ => (0, 8),
        };
        if octets.len() != len as usize {
            return self.fail(0, Status::BadResponse);
        }
        if host.place_response(head.post.slot, offset, octets).is_err() {
            return self.fail(0, Status::LocalProtection);
        }
        head.done += 1;
        self.window.grow(1);
        self.reads.arrived(psn);
        self.progress(config, now);
    }

    /// After progress: completes requests that are done, and resets the retry counts.
    fn progress(&mut self, config: &RcConfig, now: u64) {
        if let Some(head) = self.queue.front()
            && head.is_done()
        {
            let slot = head.post.slot;
            if self.cursor.request > 0 {
                self.beyond -= head.beyond;
            }
            self.queue.pop_front();
            self.started -= 1;
            self.stats.requests += 1;
            self.completions.push_back(Completion { slot, status: Status::Success });
            self.cursor = match self.cursor.request.checked_sub(1) {
                Some(request) => Cursor { request, ..self.cursor },
                None => Cursor::default(),
            };
        }
        // An earlier transmission was acknowledged after the cursor had gone back.
        if let Some(head) = self.queue.front()
            && self.cursor.request == 0
        {
            self.cursor.packet = self.cursor.packet.max(head.done);
        }
        (self.retries, self.rnr_retries, self.went_back) = (0, 0, None);
        (self.paused_until, self.unready) = (None, None);
        let unacknowledged = self.unacknowledged();
        self.timing.progress();
        let under_way = self.end.ahead_of(unacknowledged) > 0;
        self.lost_at = self.next_time_out(config, now).filter(|_| under_way);
    }

    /// Goes back to `missing`, which did not arrive; once.
    fn lost(&mut self, config: &RcConfig, now: u64, missing: Psn) {
        if self.went_back == Some(missing) {
            return;
        }
        self.went_back = Some(missing);
        self.repeat(config, now);
    }

    fn repeat(&mut self, config: &RcConfig, now: u64) {
        // [IBRC-12]
        if self.retries >= config.retry_count {
            return self.fail(0, Status::RetryExceeded);
        }
        self.retries += 1;
        self.send_again(config, now);
    }

    fn send_again(&mut self, config: &RcConfig, now: u64) {
        self.stats.repeats += 1;
        self.go_back();
        self.lost_at = self.next_time_out(config, now);
    }

    fn next_time_out(&self, config: &RcConfig, now: u64) -> Option<u64> {
        self.timing.time_out(config).map(|after| now.saturating_add(after))
    }

    fn go_back(&mut self) {
        let packet = self.queue.front().map_or(0, |head| head.done);
        self.cursor = Cursor { request: 0, packet };
        self.beyond = 0;
        self.timing.repeats();
        self.reads.go_back();
    }

    pub(super) fn handle_timeout(&mut self, config: &RcConfig, now: u64) {
        if let Some(until) = self.paused_until {
            if until <= now {
                self.paused_until = None;
            }
        } else if self.lost_at.is_some_and(|at| at <= now) {
            self.went_back = None;
            match self.timing.expire(config) {
                true => self.repeat(config, now),
                false => self.send_again(config, now),
            }
        }
    }

    pub(super) fn source_fault(&mut self, slot: u32) {
        if let Some(index) = self.queue.iter().position(|request| request.post.slot == slot) {
            self.fail(index, Status::LocalProtection);
        }
    }

    pub(super) fn flush(&mut self) {
        self.fail(usize::MAX, Status::Flushed);
    }

    /// Fails the request at `index` with `status` and flushes all others.
    fn fail(&mut self, index: usize, status: Status) {
        let post = self.queue.get(index).map(|request| request.post);
        (self.failed, self.failed_post) = (self.failed.or(Some(status)), self.failed_post.or(post));
        (self.lost_at, self.paused_until, self.started) = (None, None, 0);
        for (at, request) in self.queue.drain(..).enumerate() {
            let status = if at == index { status } else { Status::Flushed };
            self.completions.push_back(Completion { slot: request.post.slot, status });
        }
    }
}

/// Packet `index` of a request; for Reads the Read Request for `count` responses from `index`.
fn cut(config: &RcConfig, request: &Request, psn: Psn, index: u32, count: u32) -> Transmit {
    let mut extended = Extended::default();
    // [IBRC-25]
    let position = match request.divided {
        true => Position::Only,
        false => Position::of(index == 0, index + 1 == request.packets),
    };
    let (offset, len) = request.range(config.mtu, index, count);
    let source = Source::Request { slot: request.post.slot, offset, len };
    let rider = if position.ends() { request.rider() } else { Rider::None };
    let riders = |extended: &mut Extended, immediate, invalidate| {
        if position.ends() {
            (extended.immediate, extended.invalidate) = (immediate, invalidate);
        }
    };
    let (operation, source) = match request.post.op {
        SendOp::Send { immediate, invalidate } => {
            riders(&mut extended, immediate, invalidate);
            (Operation::Send(position, rider), source)
        }
        SendOp::Write { immediate, .. } => {
            riders(&mut extended, immediate, None);
            if position.begins() {
                let count = if request.divided { 1 } else { request.packets };
                extended.reth = request.reth(config.mtu, index, count);
            }
            (Operation::Write(position, rider), source)
        }
        SendOp::Read { .. } => {
            extended.reth = request.reth(config.mtu, index, count);
            (Operation::ReadRequest, Source::None)
        }
        SendOp::Atomic { address, rkey, op } => {
            let (operation, swap_or_add, compare) = match op {
                AtomicOp::CompareSwap { compare, swap } => (Operation::CompareSwap, swap, compare),
                AtomicOp::FetchAdd { add } => (Operation::FetchAdd, add, 0),
            };
            extended.atomic = Some(AtomicEth { address, rkey, swap_or_add, compare });
            (operation, Source::None)
        }
    };
    packet(config, operation, psn, extended, source)
}
