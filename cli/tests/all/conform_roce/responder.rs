//! The responder of the simple peer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::faults::Fault;
use super::memory::{ATOMIC, READ, WRITE};
use super::peer::{Connection, Shared};
use super::wire::{self, MASK, Packet, after};

/// Octets of a receive.
const RECEIVE: usize = 8192;

/// A message that is not complete.
pub(super) enum Partial {
    Send(Vec<u8>),
    Write { address: u64, key: u32, length: usize, arrived: usize },
}

#[derive(Default)]
pub(super) struct Responder {
    expected: u32,
    pub(super) msn: u32,
    partial: Option<Partial>,
    /// A gap was reported.
    reported: bool,
    refused: Option<(u32, u8)>,
    receives: usize,
    /// So many receives more at this time.
    late: Option<(Instant, usize)>,
    atomics: VecDeque<(u32, u64)>,
    /// The connection's own key.
    own: u32,
    /// Responses that are kept to be sent in the wrong order.
    kept: Vec<Vec<u8>>,
    kept_at: Option<Instant>,
}

impl Responder {
    pub(super) fn new(expected: u32, receives: usize, own: u32) -> Self {
        Self { expected, receives, own, ..Self::default() }
    }
}

/// Why a request is not executed: a syndrome.
type Refused = u8;

impl Connection {
    pub(super) fn tick_responder(&mut self, shared: &Shared, now: Instant) {
        if let Some((at, count)) = self.responder.late
            && at <= now
        {
            self.responder.receives += count;
            self.responder.late = None;
        }
        if self.responder.kept_at.is_some_and(|at| at <= now) {
            self.responder.kept_at = None;
            for octets in std::mem::take(&mut self.responder.kept).into_iter().rev() {
                shared.send(self.peer, octets);
            }
        }
    }

    pub(super) fn execute(&mut self, shared: &mut Shared, packet: &Packet) {
        if let Some((psn, code)) = self.responder.refused {
            if !shared.has(Fault::GoesOnAfterRefusal) {
                return self.acknowledge(shared, psn, code);
            }
            self.responder.refused = None;
            self.responder.expected = packet.psn;
        }
        let numbers = packet.psn as i32 - self.responder.expected as i32;
        let around = after(packet.psn, self.responder.expected);
        match if shared.has(Fault::ComparesNumbers) { numbers } else { around } {
            1.. if shared.has(Fault::AheadExecuted) => self.responder.expected = packet.psn,
            1.. => {
                let again = self.responder.reported && !shared.has(Fault::EachGapRefused);
                if !again && !shared.has(Fault::GapIgnored) {
                    self.acknowledge(shared, self.responder.expected, 0x60);
                }
                self.responder.reported = true;
                return;
            }
            ..0 => return self.repeated(shared, packet),
            0 => {}
        }
        self.responder.reported = false;
        let psn = packet.psn;
        if let Err(code) = self.executed(shared, packet) {
            if code == 0 {
                return;
            }
            let other = u32::from(shared.has(Fault::NakOfAnotherPsn));
            let wrong = shared.has(Fault::WrongCode) && code == 0x62;
            let code = if wrong { 0x63 } else { code };
            if code >> 5 == 3 {
                self.responder.refused = Some((psn.wrapping_add(other), code));
                self.responder.partial = None;
            } else {
                self.responder.reported = true;
            }
            self.acknowledge(shared, psn.wrapping_add(other), code);
        }
    }

    fn executed(&mut self, shared: &mut Shared, packet: &Packet) -> Result<(), Refused> {
        match packet.opcode {
            0x0c => self.read(shared, packet),
            0x13 | 0x14 => self.atomic(shared, packet),
            _ => self.message(shared, packet),
        }
    }

    fn message(&mut self, shared: &mut Shared, packet: &Packet) -> Result<(), Refused> {
        let opcode = packet.opcode;
        let begins = matches!(opcode, 0 | 4 | 5 | 6 | 0x0a | 0x0b | 0x17);
        let ends = !matches!(opcode, 0 | 1 | 6 | 7);
        let is_write = (6..=0x0b).contains(&opcode);
        let (mtu, size) = (self.mtu, packet.payload.len());
        let fits = match (begins, ends) {
            (_, false) => size == mtu || shared.has(Fault::FirstLengthNotChecked),
            _ if shared.has(Fault::LastLengthNotChecked) => true,
            (false, true) => (1..=mtu).contains(&size),
            (true, true) => size <= mtu,
        };
        let same = match &self.responder.partial {
            None => begins,
            Some(Partial::Send(_)) => !begins && !is_write,
            Some(Partial::Write { .. }) => !begins && is_write,
        };
        if !fits || !(same || shared.has(Fault::SequenceNotChecked)) {
            return Err(0x61);
        }
        if is_write {
            self.write(shared, packet, ends)
        } else {
            self.send_in(shared, packet, ends)
        }?;
        if ends {
            self.responder.msn += 1;
        }
        let psn = self.responder.expected;
        self.responder.expected = psn.wrapping_add(1) & MASK;
        if packet.ack && (ends || !shared.has(Fault::AckRequestIgnoredWithin)) {
            self.acknowledge(shared, psn, 0x1f);
        }
        Ok(())
    }

    fn take_receive(&mut self, shared: &Shared) -> Result<(), Refused> {
        match self.responder.receives {
            0 if shared.has(Fault::NotReadyIsSilent) => Err(0),
            0 => Err(0x20 | 10),
            _ => {
                self.responder.receives -= 1;
                Ok(())
            }
        }
    }

    fn send_in(&mut self, shared: &mut Shared, packet: &Packet, ends: bool) -> Result<(), Refused> {
        let mut data = match self.responder.partial.take() {
            Some(Partial::Send(data)) => data,
            _ => {
                self.take_receive(shared)?;
                Vec::new()
            }
        };
        data.extend(&packet.payload);
        if data.len() > RECEIVE && !shared.has(Fault::LongMessageTaken) {
            return Err(0x61);
        }
        if !ends {
            self.responder.partial = Some(Partial::Send(data));
            return Ok(());
        }
        if matches!(packet.opcode, 0x16 | 0x17) && !shared.has(Fault::InvalidationIgnored) {
            let key = packet.u32(0);
            if key != self.responder.own {
                return Err(0x62);
            }
            shared.memory.0.retain(|region| region.key != key);
        }
        let immediate = matches!(packet.opcode, 3 | 5).then(|| packet.u32(0));
        self.deliver(shared, data, immediate, packet.solicited);
        Ok(())
    }

    fn write(&mut self, shared: &mut Shared, packet: &Packet, ends: bool) -> Result<(), Refused> {
        let size = packet.payload.len();
        let (address, key, length, arrived) = match self.responder.partial.take() {
            Some(Partial::Write { address, key, length, arrived }) => {
                (address, key, length, arrived)
            }
            _ => {
                if packet.extended.len() < 16 {
                    return Err(0x61);
                }
                (packet.u64(0), packet.u32(8), packet.u32(12) as usize, 0)
            }
        };
        let checked = length != 0 || shared.has(Fault::EmptyWriteChecked);
        let whole = (address, key, length);
        if checked && shared.memory.find(shared.fault, whole, WRITE).is_none() {
            if shared.has(Fault::WrittenAllTheSame) {
                self.written_all_the_same(shared, address, key, &packet.payload);
            }
            return Err(0x62);
        }
        let total = arrived + size;
        let exact = total <= length && ends == (total == length);
        if !exact && !shared.has(Fault::WriteLengthNotChecked) {
            return Err(0x61);
        }
        let immediate =
            matches!(packet.opcode, 9 | 0x0b).then(|| packet.u32(packet.extended.len() - 4));
        if immediate.is_some() && !shared.has(Fault::ImmediateTakesNoReceive) {
            self.take_receive(shared)?;
        }
        if size > 0
            && let Some(place) =
                shared.memory.find(shared.fault, (address + arrived as u64, key, size), WRITE)
        {
            shared.memory.write(place, &packet.payload);
        }
        if !ends {
            self.responder.partial = Some(Partial::Write { address, key, length, arrived: total });
        } else if immediate.is_some() {
            self.deliver(shared, Vec::new(), immediate, packet.solicited);
        }
        Ok(())
    }

    fn written_all_the_same(&self, shared: &mut Shared, address: u64, key: u32, octets: &[u8]) {
        let found = shared.memory.0.iter().position(|region| region.key == key);
        let Some(index) = found else { return };
        if let Some(offset) = address.checked_sub(shared.memory.0[index].base) {
            shared.memory.write((index, offset as usize), octets);
        }
    }

    fn read(&mut self, shared: &mut Shared, packet: &Packet) -> Result<(), Refused> {
        if self.responder.partial.is_some() && !shared.has(Fault::SequenceNotChecked) {
            return Err(0x61);
        }
        let length = packet.u32(12) as usize;
        self.responder.msn += 1;
        let done = self.respond(shared, packet.psn, packet.u64(0), packet.u32(8), length);
        if done.is_err() {
            self.responder.msn -= 1;
        }
        done?;
        let count = length.div_ceil(self.mtu).max(1) as u32;
        self.responder.expected = packet.psn.wrapping_add(count) & MASK;
        Ok(())
    }

    fn respond(
        &mut self,
        shared: &mut Shared,
        psn: u32,
        address: u64,
        key: u32,
        length: usize,
    ) -> Result<(), Refused> {
        let mut data = Vec::new();
        if length > 0 {
            let place =
                shared.memory.find(shared.fault, (address, key, length), READ).ok_or(0x62)?;
            data = shared.memory.read(place, length);
        }
        let size = if shared.has(Fault::ShortResponses) { self.mtu / 2 } else { self.mtu };
        let count = length.div_ceil(size).max(1);
        for at in 0..count {
            let opcode = match (at == 0, at + 1 == count) {
                (true, true) => 0x10,
                (true, false) => 0x0d,
                (false, true) if shared.has(Fault::LastResponseIsMiddle) => 0x0e,
                (false, true) => 0x0f,
                (false, false) => 0x0e,
            };
            let header = if opcode == 0x0e { Vec::new() } else { self.aeth(shared, 0x1f) };
            let piece = &data[at * size..length.min((at + 1) * size)];
            let with = [&self.aeth(shared, 0x1f), piece].concat();
            let wrong = opcode == 0x0e && shared.has(Fault::MiddleHasHeader);
            let piece = if wrong { &with } else { piece };
            let step = if shared.has(Fault::ResponsesHaveOnePsn) { 0 } else { at as u32 };
            let psn = psn.wrapping_add(step) & MASK;
            self.answer(shared, wire::build(opcode, 0, self.peer_qpn, psn, &header, piece));
        }
        Ok(())
    }

    fn answer(&mut self, shared: &Shared, octets: Vec<u8>) {
        if shared.has(Fault::ResponsesReversed) {
            self.responder.kept.push(octets);
            self.responder.kept_at = Some(Instant::now() + Duration::from_millis(20));
            return;
        }
        shared.send(self.peer, octets);
    }

    fn atomic(&mut self, shared: &mut Shared, packet: &Packet) -> Result<(), Refused> {
        let (address, key) = (packet.u64(0), packet.u32(8));
        if address % 8 != 0 && !shared.has(Fault::UnalignedAtomicTaken) {
            return Err(0x61);
        }
        let place = shared.memory.find(shared.fault, (address, key, 8), ATOMIC).ok_or(0x62)?;
        let octets = shared.memory.read(place, 8);
        let old = octets.iter().fold(0u64, |sum, octet| sum << 8 | u64::from(*octet));
        let (operand, compare) = (packet.u64(12), packet.u64(20));
        let new = match packet.opcode {
            0x14 => old.wrapping_add(operand),
            _ if old == compare || shared.has(Fault::SwapsAlways) => operand,
            _ => old,
        };
        shared.memory.write(place, &new.to_be_bytes());
        let original = if shared.has(Fault::AtomicReturnsNew) { new } else { old };
        self.responder.msn += 1;
        self.responder.expected = packet.psn.wrapping_add(1) & MASK;
        self.responder.atomics.push_back((packet.psn, original));
        if self.responder.atomics.len() > 4 {
            self.responder.atomics.pop_front();
        }
        self.atomic_reply(shared, packet.psn, original);
        Ok(())
    }

    fn atomic_reply(&mut self, shared: &Shared, psn: u32, original: u64) {
        let mut header = self.aeth(shared, 0x1f);
        header.extend(original.to_be_bytes());
        self.answer(shared, wire::build(0x12, 0, self.peer_qpn, psn, &header, &[]));
    }

    fn repeated(&mut self, shared: &mut Shared, packet: &Packet) {
        let newest = self.responder.expected.wrapping_sub(1);
        match packet.opcode {
            0x0c if shared.has(Fault::RepeatedReadIgnored) => {}
            0x0c => {
                let length = packet.u32(12) as usize;
                let _ = self.respond(shared, packet.psn, packet.u64(0), packet.u32(8), length);
            }
            0x13 | 0x14 => {
                let atomics = &self.responder.atomics;
                let saved = atomics.iter().find(|(psn, _)| *psn == packet.psn).copied();
                if shared.has(Fault::RepeatedAtomicExecuted) {
                    let expected = self.responder.expected;
                    let _ = self.atomic(shared, packet);
                    self.responder.expected = expected;
                } else if let Some((psn, original)) = saved {
                    self.atomic_reply(shared, psn, original);
                }
            }
            4 if shared.has(Fault::RepeatedSendExecuted) => {
                self.deliver(shared, packet.payload.clone(), None, false);
                self.acknowledge(shared, newest, 0x1f);
            }
            _ if shared.has(Fault::RepeatedNotAcknowledged) => {}
            _ => self.acknowledge(shared, newest, 0x1f),
        }
    }

    /// The application: an echo, or a command.
    fn deliver(
        &mut self,
        shared: &mut Shared,
        data: Vec<u8>,
        immediate: Option<u32>,
        solicited: bool,
    ) {
        if let Some(word) = immediate {
            let word = if shared.has(Fault::ImmediateSwapped) { word.swap_bytes() } else { word };
            self.responder.receives += 1;
            return self.post_send([&b"immediate"[..], &word.to_be_bytes()].concat(), false, None);
        }
        if let [b'!', b'n', count, ..] = data[..] {
            let at = Instant::now() + Duration::from_millis(200);
            self.responder.late = Some((at, usize::from(count) + 1));
            return;
        }
        self.responder.receives += 1;
        if data.len() == 23 && data[0] == b'!' {
            return self.obey(shared, &data);
        }
        self.post_send(data, solicited && !shared.has(Fault::EventLost), None);
    }

    fn obey(&mut self, shared: &Shared, command: &[u8]) {
        let number = |from: usize, to: usize| {
            command[from..to].iter().fold(0u64, |sum, octet| sum << 8 | u64::from(*octet))
        };
        let (key, address, length) = (number(3, 7) as u32, number(7, 15), number(15, 23) as usize);
        let data = shared.memory.read((0, 0), length.min(128 * 1024));
        match command[1] {
            b'r' => (0..command[2]).for_each(|_| self.post_read(shared, address, key, length)),
            b'w' => {
                self.post_write(shared, address, key, &data, None);
                self.post_send(b"written".to_vec(), false, None);
            }
            b'i' => self.post_write(shared, address, key, &data, Some(0x0102_0304)),
            b'f' => self.post_atomic(0x14, address, key, (7, 0)),
            b'c' => self.post_atomic(0x13, address, key, (9, 7)),
            b'v' => self.post_send(b"invalidates".to_vec(), false, Some(key)),
            b'e' => self.post_send(b"solicited".to_vec(), true, None),
            b's' => self.post_send(vec![0x5a; usize::from(command[2]) * 256], false, None),
            _ => self.exchange.end(shared),
        }
    }
}
