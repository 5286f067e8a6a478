//! One queue pair of the tester, connected with one of the peer's. Main thread only.
//!
//! It holds the tester's model of both directions: the PSN of the next request each way and the messages that are
//! complete. Dropping it disconnects the peer, or has it end, whatever its state is, and does not wait.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use roce_proto::cm::message::{ConnectionIds, Message, Private};

use super::exchange;
use super::packet::{Arrived, Packet, aeth, after, op, reth, syndrome};
use super::peer::Range;
use super::wire::Wire;
use crate::conform::record::Record;
use crate::conform::verdict::{Play, check, fail};

/// How long the peer must send nothing.
pub(super) const QUIET: Duration = Duration::from_millis(200);

/// A key that no peer gives out.
pub(super) const UNKNOWN: u32 = 0x0bad_5700;

/// So many requests without their predecessor mean that it was not sent.
const SKIPPED: u32 = 4;

/// What both ends agreed on.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// The tester's queue pair.
    pub(super) qpn: u32,
    pub(super) peer_qpn: u32,
    /// The PSN of our first request.
    pub(super) ours: u32,
    /// The PSN of the peer's first request.
    pub(super) theirs: u32,
    /// Octets of the path MTU.
    pub(super) mtu: usize,
    /// Reads and atomics that the peer serves at once.
    pub(super) resources: u8,
    /// Communication ids, ours first; none by path.
    pub(super) ids: Option<ConnectionIds>,
    /// Private data of the peer's.
    pub(super) private: Vec<u8>,
    /// The peer may be asked to Write.
    pub(super) writes: bool,
}

pub(super) struct Link {
    pub(super) wire: Rc<Wire>,
    pub(super) terms: Terms,
    /// The PSN of our next request.
    pub(super) psn: u32,
    /// The PSN of the peer's next request.
    pub(super) theirs: u32,
    /// Messages of ours: the PSN of the last packet of each, in order.
    complete: VecDeque<u32>,
    /// How many were complete before those of `complete`.
    msn: u32,
    /// Messages of the peer's that are complete.
    pub(super) served: u32,
    /// The peer's requests are acknowledged as they arrive.
    pub(super) is_prompt: bool,
    /// The message sequence number says nothing: Reads, atomics or repetitions were sent.
    pub(super) is_plain: bool,
    requests: VecDeque<Arrived>,
    /// Requests whose predecessors did not arrive.
    skipped: u32,
    /// The PSN that was missed last.
    missed: Option<u32>,
    /// Reads of the peer's that are not answered: an acknowledgement of a repetition must not cover them.
    reads: RefCell<VecDeque<u32>>,
    pub(super) patience: Duration,
}

impl Link {
    pub(super) fn new(wire: Rc<Wire>, terms: Terms, patience: Duration) -> Self {
        let (psn, theirs) = (terms.ours, terms.theirs);
        Self {
            wire,
            terms,
            psn,
            theirs,
            complete: VecDeque::new(),
            msn: 0,
            served: 0,
            is_prompt: true,
            is_plain: true,
            requests: VecDeque::new(),
            skipped: 0,
            missed: None,
            reads: RefCell::default(),
            patience,
        }
    }

    pub(super) fn record(&self) -> Rc<Record> {
        self.wire.record()
    }

    /// A packet of a request with the next PSN, which it takes.
    pub(super) fn request(&mut self, opcode: u8, extended: &[u8], payload: &[u8]) -> Packet {
        let packet = Packet::new(opcode, self.terms.peer_qpn, self.psn, payload).with(extended);
        if matches!(opcode, 2..=5 | 8..=0x0b | op::SEND_LAST_INV | op::SEND_ONLY_INV) {
            self.complete.push_back(self.psn);
        }
        self.psn = (self.psn + 1) & super::packet::MASK;
        packet
    }

    pub(super) fn send(&self, packet: &Packet) {
        self.wire.send(packet);
    }

    /// Sends a request of one packet that asks for an acknowledgement; returns its PSN.
    pub(super) fn ask(&mut self, opcode: u8, extended: &[u8], payload: &[u8]) -> u32 {
        let packet = self.request(opcode, extended, payload).asking();
        self.send(&packet);
        packet.psn
    }

    /// Sends a message as packets of the path MTU; returns the PSN of the last.
    pub(super) fn send_message(&mut self, payload: &[u8]) -> u32 {
        let [first, middle, last, only] =
            [op::SEND_FIRST, op::SEND_MIDDLE, op::SEND_LAST, op::SEND_ONLY];
        self.packets(&[first, middle, last, only], &[], payload)
    }

    /// Writes to the peer's memory; returns the PSN of the last packet.
    pub(super) fn write(&mut self, range: Range, payload: &[u8]) -> u32 {
        let reth = reth(range.to, range.key, payload.len() as u32);
        let [first, middle, last, only] =
            [op::WRITE_FIRST, op::WRITE_MIDDLE, op::WRITE_LAST, op::WRITE_ONLY];
        self.packets(&[first, middle, last, only], &reth, payload)
    }

    fn packets(&mut self, opcodes: &[u8; 4], first: &[u8], payload: &[u8]) -> u32 {
        let mtu = self.terms.mtu;
        let count = payload.len().div_ceil(mtu).max(1);
        for at in 0..count {
            let part = &payload[at * mtu..payload.len().min((at + 1) * mtu)];
            let opcode = match (at == 0, at + 1 == count) {
                (true, true) => opcodes[3],
                (true, false) => opcodes[0],
                (false, false) => opcodes[1],
                (false, true) => opcodes[2],
            };
            let mut packet = self.request(opcode, if at == 0 { first } else { &[] }, part);
            packet.ack = at + 1 == count;
            self.send(&packet);
        }
        self.psn.wrapping_sub(1) & super::packet::MASK
    }

    /// Requests a Read; returns the PSN of its first response.
    pub(super) fn ask_read(&mut self, range: Range, length: u32) -> u32 {
        self.is_plain = false;
        let psn = self.ask(op::READ_REQUEST, &reth(range.to, range.key, length), &[]);
        let count = length.div_ceil(self.terms.mtu as u32).max(1);
        self.psn = psn.wrapping_add(count) & super::packet::MASK;
        psn
    }

    /// Reads the peer's memory.
    pub(super) fn read(&mut self, range: Range, length: u32) -> Play<Vec<u8>> {
        let psn = self.ask_read(range, length);
        self.responses(psn, length)
    }

    /// Executes an atomic operation; returns the original value.
    pub(super) fn atomic(&mut self, opcode: u8, operation: &[u8]) -> Play<u64> {
        self.is_plain = false;
        let psn = self.ask(opcode, operation, &[]);
        self.original(psn)
    }

    pub(super) fn original(&mut self, psn: u32) -> Play<u64> {
        let packet = self.answer_to(psn, "an atomic operation")?;
        check((packet.opcode, packet.psn) == (op::ATOMIC_ACKNOWLEDGE, psn), || {
            format!("an atomic operation with PSN {psn} was answered with {}", packet.text())
        })?;
        Ok(packet.original())
    }

    /// The next packet; requests of the peer's are kept aside.
    pub(super) fn response(&mut self, wait: Duration) -> Option<Arrived> {
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let packet = self.wire.next(self.terms.qpn, left)?;
            if packet.is_response() {
                return Some(packet);
            }
            self.arrived(packet);
            // Also if the peer never stops.
            if left.is_zero() {
                return None;
            }
        }
    }

    /// The next request of the peer's, a repetition, too; responses are dropped.
    pub(super) fn next_request(&mut self, wait: Duration) -> Option<Arrived> {
        let until = Instant::now() + wait;
        loop {
            if let Some(packet) = self.requests.pop_front() {
                return Some(packet);
            }
            let left = until.saturating_duration_since(Instant::now());
            let packet = self.wire.next(self.terms.qpn, left)?;
            if !packet.is_response() {
                self.arrived(packet);
            }
            if left.is_zero() {
                return self.requests.pop_front();
            }
        }
    }

    /// A request of the peer's, in the order of PSNs: repetitions are acknowledged and dropped if the link is prompt.
    fn arrived(&mut self, packet: Arrived) {
        if packet.opcode == op::CNP || !self.is_prompt {
            return self.requests.push_back(packet);
        }
        match after(packet.psn, self.theirs) {
            0 => {
                self.took(&packet);
                if packet.ack && !matches!(packet.opcode, op::READ_REQUEST | 0x13 | 0x14) {
                    self.acknowledge(packet.psn);
                }
                self.requests.push_back(packet);
            }
            ..0 => {
                self.judge_begin(&packet);
                let unanswered = self.reads.borrow().front().copied();
                match unanswered {
                    Some(read) if after(packet.psn, read) >= 0 => {}
                    unanswered => {
                        self.acknowledge(unanswered.unwrap_or(self.theirs).wrapping_sub(1));
                    }
                }
            }
            // Its predecessor was lost on the way, or never sent: the peer repeats it.
            _ => {
                self.skipped += 1;
                if self.skipped == SKIPPED {
                    self.judge_begin(&packet);
                    let text = format!("{} came, and {} never", packet.psn, self.theirs);
                    self.record().broken(&["IBRC-35"], text);
                }
                // Once: a peer that repeats at once would never stop.
                if self.missed.replace(self.theirs) != Some(self.theirs) {
                    self.reply(self.theirs, 0x60);
                }
            }
        }
    }

    /// A first request that is not the agreed one.
    fn judge_begin(&self, packet: &Arrived) {
        if self.theirs == self.terms.theirs {
            let text = format!("the peer began with PSN {}, not {}", packet.psn, self.theirs);
            self.record().broken(&["IBCM-02"], text);
        }
    }

    /// Counts a request that arrived in order.
    pub(super) fn took(&mut self, packet: &Arrived) {
        let responses = match packet.opcode {
            op::READ_REQUEST => {
                self.reads.borrow_mut().push_back(packet.psn);
                packet.reth().2.div_ceil(self.terms.mtu as u32).max(1)
            }
            _ => 1,
        };
        self.theirs = self.theirs.wrapping_add(responses) & super::packet::MASK;
        if !matches!(packet.opcode, 0 | 1 | 6 | 7) {
            self.served += 1;
        }
    }

    /// Acknowledges the peer's requests up to `psn`.
    pub(super) fn acknowledge(&self, psn: u32) {
        self.reply(psn, 0x1f);
    }

    /// Replies with a syndrome.
    pub(super) fn reply(&self, psn: u32, syndrome: u8) {
        let header = aeth(syndrome, self.served);
        self.send(&Packet::new(op::ACKNOWLEDGE, self.terms.peer_qpn, psn, &[]).with(&header));
    }

    /// Responds to a Read of the peer's with packets `from..to`.
    pub(super) fn respond(&self, psn: u32, data: &[u8], part: std::ops::Range<usize>) {
        let mtu = self.terms.mtu;
        let count = data.len().div_ceil(mtu).max(1);
        if part.end >= count {
            self.reads.borrow_mut().retain(|read| *read != psn);
        }
        for at in part.start..part.end.min(count) {
            let opcode = match (at == 0, at + 1 == count) {
                (true, true) => op::RESPONSE_ONLY,
                (true, false) => op::RESPONSE_FIRST,
                (false, false) => op::RESPONSE_MIDDLE,
                (false, true) => op::RESPONSE_LAST,
            };
            let piece = &data[at * mtu..data.len().min((at + 1) * mtu)];
            let header = aeth(0x1f, self.served);
            let header = if opcode == op::RESPONSE_MIDDLE { &[][..] } else { &header };
            let psn = psn.wrapping_add(at as u32);
            self.send(&Packet::new(opcode, self.terms.peer_qpn, psn, piece).with(header));
        }
    }

    /// The next response that is not an acknowledgement of requests before `psn`.
    fn answer_to(&mut self, psn: u32, what: &str) -> Play<Arrived> {
        let until = Instant::now() + self.patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(packet) = self.response(left) else {
                return fail(format!("{what} with PSN {psn} was not answered"));
            };
            let is_ack = packet.opcode == op::ACKNOWLEDGE && packet.aeth().0 >> 5 == 0;
            if !is_ack || after(packet.psn, psn) >= 0 {
                return Ok(packet);
            }
            self.judge_msn(&packet);
        }
    }

    /// Fails unless all up to `psn` is acknowledged. Acknowledgements of less are allowed before.
    pub(super) fn acknowledged(&mut self, psn: u32) -> Play {
        let packet = self.answer_to(psn, "a request")?;
        let (code, _) = packet.aeth();
        if packet.opcode != op::ACKNOWLEDGE || code >> 5 != 0 {
            return fail(format!("a request with PSN {psn} was answered with {}", packet.text()));
        }
        let ahead = after(packet.psn, self.psn) >= 0;
        check(!ahead, || format!("{} was acknowledged, which was not sent", packet.psn))?;
        self.judge_msn(&packet);
        Ok(())
    }

    /// The message sequence number counts complete messages. [IBRC-28]
    fn judge_msn(&mut self, packet: &Arrived) {
        while self.complete.front().is_some_and(|last| after(*last, packet.psn) <= 0) {
            self.complete.pop_front();
            self.msn = (self.msn + 1) & super::packet::MASK;
        }
        let (_, msn) = packet.aeth();
        if !self.is_plain {
            return;
        }
        match msn == self.msn {
            true => self.record().kept(&["IBRC-28", "IBRC-10"]),
            false => self
                .record()
                .broken(&["IBRC-28"], format!("MSN {msn} after {} complete messages", self.msn)),
        }
    }

    /// Fails unless the request with `psn` is refused with one of these syndromes.
    pub(super) fn refused(&mut self, psn: u32, codes: &[u8]) -> Play {
        let wanted = syndrome(codes[0]);
        let Some(packet) = self.refusal(psn)? else {
            return fail(format!("nothing was received, expected {wanted}"));
        };
        let (code, _) = packet.aeth();
        let fits = codes.iter().any(|c| if c >> 5 == 1 { code >> 5 == 1 } else { *c == code });
        check(packet.opcode == op::ACKNOWLEDGE && fits, || {
            format!("received {}, expected {wanted}", packet.text())
        })?;
        if packet.psn != psn {
            let text = format!("{} names PSN {}, expected {psn}", syndrome(code), packet.psn);
            self.record().broken(&["IBRC-30"], text.clone());
            return fail(text);
        }
        self.record().kept(&["IBRC-30"]);
        Ok(())
    }

    /// The next response to the request with `psn`.
    fn refusal(&mut self, psn: u32) -> Play<Option<Arrived>> {
        let until = Instant::now() + self.patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(packet) = self.response(left) else { return Ok(None) };
            let is_ack = packet.opcode == op::ACKNOWLEDGE && packet.aeth().0 >> 5 == 0;
            if !is_ack || after(packet.psn, psn) >= 0 {
                return Ok(Some(packet));
            }
        }
    }

    /// The responses to a Read of `length` octets, judged one by one.
    pub(super) fn responses(&mut self, psn: u32, length: u32) -> Play<Vec<u8>> {
        let mtu = self.terms.mtu as u32;
        let count = length.div_ceil(mtu).max(1);
        let mut data = Vec::new();
        for at in 0..count {
            let what = format!("response {} of {count} to a Read of {length} octets", at + 1);
            let packet = match at {
                0 => self.answer_to(psn, "a Read")?,
                _ => match self.response(self.patience) {
                    Some(packet) => packet,
                    None => return fail(format!("{what} did not arrive")),
                },
            };
            if packet.opcode == op::ACKNOWLEDGE && packet.aeth().0 >> 5 != 0 {
                return fail(format!(
                    "a Read of {length} octets was answered with {}",
                    packet.text()
                ));
            }
            let opcode = match (at == 0, at + 1 == count) {
                (true, true) => op::RESPONSE_ONLY,
                (true, false) => op::RESPONSE_FIRST,
                (false, false) => op::RESPONSE_MIDDLE,
                (false, true) => op::RESPONSE_LAST,
            };
            let size = mtu.min(length - at * mtu) as usize;
            let due = psn.wrapping_add(at) & super::packet::MASK;
            // Four octets more or less: an AETH where none is, or none where one is.
            let shown = packet.payload.len();
            let aeth = shown + 4 == size || shown == size + 4;
            let length_of: &'static [&'static str] =
                if aeth { &["ROCE-03", "IBRC-29"] } else { &["IBRC-29"] };
            let faults: [(bool, &'static [&'static str], String); 3] = [
                (packet.opcode == opcode, &["ROCE-03", "IBRC-29"], "its opcode".into()),
                (packet.psn == due, &["IBRC-09"], format!("expected PSN {due}")),
                (shown == size, length_of, format!("expected {size} octets")),
            ];
            for (holds, ids, text) in faults {
                let text = format!("{what} is {}: {text}", packet.text());
                if !holds {
                    self.record().broken(ids, text.clone());
                    return fail(text);
                }
                self.record().kept(ids);
            }
            data.extend(packet.payload);
        }
        Ok(data)
    }

    /// Fails if a response arrives within a short time.
    pub(super) fn silent(&mut self, what: &str) -> Play {
        match self.response(QUIET) {
            None => Ok(()),
            Some(packet) => fail(format!("{what} was answered with {}", packet.text())),
        }
    }

    /// Fails unless the connection still works.
    pub(super) fn goes_on(&mut self) -> Play {
        let psn = match self.terms.writes {
            // Without octets, so that no key is checked. [IBRC-31]
            true => self.ask(op::WRITE_ONLY, &reth(u64::MAX - 3, UNKNOWN, 0), &[]),
            false => self.ask(op::SEND_ONLY, &[], b"goes on"),
        };
        self.acknowledged(psn)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(ids) = self.terms.ids {
            let (remote_qpn, private) = (self.terms.peer_qpn, Private::default());
            let mad = Message::Dreq { ids, remote_qpn, private }.emit(u64::from(ids.local) << 8);
            exchange::send(&self.wire, self.wire.there(), &mad.emit());
        } else {
            // By path nothing else ends the peer's program: a request that it must refuse.
            let qpn = self.terms.peer_qpn;
            self.send(&Packet::new(op::SEND_MIDDLE, qpn, self.psn, b"ends").asking());
        }
        self.wire.close(self.terms.qpn);
    }
}
