//! The requester of the simple peer: goes back to the oldest request that is not complete.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::faults::Fault;
use super::peer::{Connection, Shared};
use super::wire::{self, MASK, Packet, after};

/// Until a request is repeated.
const TIMEOUT: Duration = Duration::from_millis(120);
/// Repetitions.
const RETRIES: u32 = 7;

/// A packet that is not complete.
struct Request {
    psn: u32,
    opcode: u8,
    flags: u8,
    extended: Vec<u8>,
    payload: Vec<u8>,
    /// Responses that are due, and those that arrived.
    responses: u32,
    arrived: u32,
    sent: Option<Instant>,
}

impl Request {
    fn is_plain(&self) -> bool {
        self.responses == 0
    }
    fn end(&self) -> u32 {
        self.psn.wrapping_add(self.responses.saturating_sub(1)) & MASK
    }
}

#[derive(Default)]
pub(super) struct Requester {
    next: u32,
    queue: VecDeque<Request>,
    tries: u32,
    rnr_tries: u32,
    rnr_until: Option<Instant>,
    is_dead: bool,
    rnr_retries: u32,
    /// Reads and atomics at once.
    at_once: usize,
}

impl Requester {
    pub(super) fn new(next: u32, rnr_retries: u32, at_once: usize) -> Self {
        Self { next, rnr_retries, at_once, ..Self::default() }
    }
}

fn rnr_time(code: u8) -> Duration {
    const MICROSECONDS: [u64; 32] = [
        655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560,
        3_840, 5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880,
        163_840, 245_760, 327_680, 491_520,
    ];
    Duration::from_micros(MICROSECONDS[usize::from(code & 31)])
}

impl Connection {
    fn push(&mut self, opcode: u8, flags: u8, extended: Vec<u8>, payload: Vec<u8>, responses: u32) {
        let psn = self.requester.next;
        self.requester.next = psn.wrapping_add(responses.max(1)) & MASK;
        let (arrived, sent) = (0, None);
        let request = Request { psn, opcode, flags, extended, payload, responses, arrived, sent };
        self.requester.queue.push_back(request);
    }

    /// A message of packets with these opcodes: First, Middle, Last, Only.
    fn push_all(
        &mut self,
        opcodes: [u8; 4],
        front: Vec<u8>,
        back: Vec<u8>,
        flags: u8,
        data: &[u8],
    ) {
        let size = self.requester_mtu();
        let count = data.len().div_ceil(size).max(1);
        for at in 0..count {
            let opcode = match (at == 0, at + 1 == count) {
                (true, true) => opcodes[3],
                (true, false) => opcodes[0],
                (false, false) => opcodes[1],
                (false, true) => opcodes[2],
            };
            let ends = at + 1 == count;
            let mut extended = if at == 0 { front.clone() } else { Vec::new() };
            if ends {
                extended.extend(&back);
            }
            let piece = data[at * size..data.len().min((at + 1) * size)].to_vec();
            self.push(opcode, if ends { flags | 1 } else { 0 }, extended, piece, 0);
        }
    }

    fn requester_mtu(&self) -> usize {
        self.mtu + self.exchange.longer
    }

    pub(super) fn post_send(&mut self, data: Vec<u8>, solicited: bool, invalidate: Option<u32>) {
        let flags = if solicited { 0x80 } else { 0 };
        let (opcodes, back) = match invalidate {
            None => ([0, 1, 2, 4], Vec::new()),
            Some(key) => ([0, 1, 0x16, 0x17], key.to_be_bytes().to_vec()),
        };
        self.push_all(opcodes, Vec::new(), back, flags, &data);
    }

    pub(super) fn post_write(
        &mut self,
        shared: &Shared,
        address: u64,
        key: u32,
        data: &[u8],
        immediate: Option<u32>,
    ) {
        let more = u32::from(shared.has(Fault::WriteNamesOtherLength));
        let reth = reth(address, key, data.len() as u32 + more);
        let (opcodes, back) = match immediate {
            None => ([6, 7, 8, 0x0a], Vec::new()),
            Some(word) => ([6, 7, 9, 0x0b], word.to_be_bytes().to_vec()),
        };
        self.push_all(opcodes, reth, back, 0, data);
    }

    pub(super) fn post_read(&mut self, shared: &Shared, address: u64, key: u32, length: usize) {
        let key = key ^ u32::from(shared.has(Fault::ReadNamesOtherKey));
        let count = length.div_ceil(self.mtu).max(1) as u32;
        self.push(0x0c, 1, reth(address, key, length as u32), Vec::new(), count);
    }

    pub(super) fn post_atomic(&mut self, opcode: u8, address: u64, key: u32, operands: (u64, u64)) {
        let (first, second) = (operands.0.to_be_bytes(), operands.1.to_be_bytes());
        let header = [&address.to_be_bytes()[..], &key.to_be_bytes(), &first, &second].concat();
        self.push(opcode, 1, header, Vec::new(), 1);
    }

    pub(super) fn tick(&mut self, shared: &Shared, now: Instant) {
        self.tick_responder(shared, now);
        self.exchange.tick(shared, now);
        let requester = &mut self.requester;
        if requester.is_dead || !self.exchange.is_up() {
            return;
        }
        if requester.rnr_until.is_some_and(|at| at > now) {
            return;
        }
        requester.rnr_until = None;
        let late = requester.queue.front().and_then(|front| front.sent);
        if late.is_some_and(|at| at + TIMEOUT <= now) && !shared.has(Fault::NothingRepeated) {
            requester.tries += 1;
            if requester.tries > RETRIES && !shared.has(Fault::RepeatedForEver) {
                requester.is_dead = true;
                return;
            }
            self.go_back();
        }
        self.transmit(shared, now);
    }

    fn go_back(&mut self) {
        for request in &mut self.requester.queue {
            (request.sent, request.arrived) = (None, 0);
        }
    }

    fn transmit(&mut self, shared: &Shared, now: Instant) {
        let most = match shared.has(Fault::TooManyReads) {
            true => usize::MAX,
            false => self.requester.at_once,
        };
        let mut under_way =
            self.requester.queue.iter().filter(|one| !one.is_plain() && one.sent.is_some()).count();
        for request in &mut self.requester.queue {
            if request.sent.is_some() {
                continue;
            }
            if !request.is_plain() {
                if under_way >= most {
                    break;
                }
                under_way += 1;
            }
            request.sent = Some(now);
            let flags =
                if shared.has(Fault::NoAckAsked) { request.flags & 0x80 } else { request.flags };
            let skipped = u32::from(shared.has(Fault::PsnSkipped));
            let psn = request.psn.wrapping_add(skipped) & MASK;
            let (header, payload) = (&request.extended, &request.payload);
            shared.send(
                self.peer,
                wire::build(request.opcode, flags, self.peer_qpn, psn, header, payload),
            );
        }
    }

    pub(super) fn response(&mut self, shared: &Shared, packet: &Packet) {
        if self.requester.is_dead {
            return;
        }
        match packet.opcode {
            0x11 => self.acknowledged(shared, packet.psn, packet.extended[0]),
            0x12 => self.data(shared, packet),
            _ => self.data(shared, packet),
        }
    }

    /// Requests up to `psn` are complete, as far as nothing else is due for them.
    fn complete(&mut self, shared: &Shared, psn: u32) {
        let mut first = true;
        while let Some(front) = self.requester.queue.front() {
            let is_plain = front.is_plain() || shared.has(Fault::AckCompletesRead);
            if front.sent.is_none() || after(front.end(), psn) > 0 || !is_plain {
                break;
            }
            self.requester.queue.pop_front();
            if std::mem::take(&mut first) {
                (self.requester.tries, self.requester.rnr_tries) = (0, 0);
            }
        }
    }

    fn acknowledged(&mut self, shared: &Shared, psn: u32, syndrome: u8) {
        let newest = self.requester.queue.iter().rev().find(|one| one.sent.is_some());
        let Some(newest) = newest.map(Request::end) else {
            if shared.has(Fault::StrayResponseEnds)
                || (shared.has(Fault::OldNakEnds) && syndrome >> 5 == 3)
            {
                self.requester.is_dead = true;
            }
            return;
        };
        let oldest = self.requester.queue.front().map_or(newest, |one| one.psn);
        let stray = after(psn, newest) > 0;
        if stray && !shared.has(Fault::AckOfTheFutureTaken) {
            return;
        }
        match syndrome >> 5 {
            0 => self.complete(shared, psn),
            1 if after(psn, oldest) >= 0 => {
                self.complete(shared, psn.wrapping_sub(1) & MASK);
                self.requester.rnr_tries += 1;
                let most = self.requester.rnr_retries;
                if most < 7
                    && self.requester.rnr_tries > most
                    && !shared.has(Fault::RnrCountIgnored)
                {
                    self.requester.is_dead = true;
                    return;
                }
                self.go_back();
                let time = rnr_time(syndrome);
                let time = if shared.has(Fault::RnrTimeIgnored) { time / 4 } else { time };
                self.requester.rnr_until = Some(Instant::now() + time);
            }
            3 if syndrome == 0x60 => {
                if !shared.has(Fault::NakRestartsAll) {
                    self.complete(shared, psn.wrapping_sub(1) & MASK);
                }
                self.go_back();
            }
            3 if shared.has(Fault::GoesOnAfterNak) => self.complete(shared, psn),
            3 => self.requester.is_dead = true,
            _ => {}
        }
    }

    /// A response with data.
    fn data(&mut self, shared: &Shared, packet: &Packet) {
        let at = self.requester.queue.iter().position(|one| !one.is_plain());
        let Some(at) = at else { return };
        let request = &self.requester.queue[at];
        let due = request.psn.wrapping_add(request.arrived) & MASK;
        if request.sent.is_none() || packet.psn != due {
            return;
        }
        // What is before it is complete.
        self.requester.queue.drain(..at);
        self.requester.tries = 0;
        let front = &mut self.requester.queue[0];
        front.arrived += 1;
        front.sent = Some(Instant::now());
        if front.arrived == front.responses {
            self.requester.queue.pop_front();
            self.transmit(shared, Instant::now());
        }
    }
}

fn reth(address: u64, key: u32, length: u32) -> Vec<u8> {
    [&address.to_be_bytes()[..], &key.to_be_bytes(), &length.to_be_bytes()].concat()
}
