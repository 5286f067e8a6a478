//! Messages of the peer's requester, put together from packets and judged on the way. Main thread only.

use std::time::{Duration, Instant};

use super::link::Link;
use super::packet::{Arrived, op};
use crate::conform::verdict::{Play, fail};

/// A request of the peer's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Incoming {
    Send { data: Vec<u8>, immediate: Option<u32>, invalidated: Option<u32>, solicited: bool },
    Write { address: u64, key: u32, data: Vec<u8>, immediate: Option<u32> },
    Read { psn: u32, address: u64, key: u32, length: u32 },
    Atomic { psn: u32, opcode: u8, address: u64, key: u32, operands: (u64, u64) },
}

impl Incoming {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Send { data, .. } => format!("a Send of {} octets", data.len()),
            Self::Write { data, .. } => format!("a Write of {} octets", data.len()),
            Self::Read { length, .. } => format!("a Read of {length} octets"),
            Self::Atomic { opcode, .. } => super::packet::name(*opcode),
        }
    }
}

/// A message that is not complete.
#[derive(Default)]
struct Partial {
    /// The opcode of its first packet.
    first: Option<u8>,
    reth: (u64, u32, u32),
    data: Vec<u8>,
}

impl Link {
    /// The next message of the peer's. The link must be prompt.
    pub(super) fn message(&mut self) -> Play<Incoming> {
        match self.message_within(self.patience)? {
            Some(message) => Ok(message),
            None => fail("the peer sent no request"),
        }
    }

    /// The same, or `None` after a time.
    pub(super) fn message_within(&mut self, wait: Duration) -> Play<Option<Incoming>> {
        let (until, mut partial) = (Instant::now() + wait, Partial::default());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(packet) = self.next_request(left) else {
                return match partial.first {
                    None => Ok(None),
                    Some(_) => self.wrong(&["IBRC-04"], "the peer did not end its message".into()),
                };
            };
            if packet.opcode == op::CNP {
                continue;
            }
            if let Some(message) = self.add(&mut partial, &packet)? {
                return Ok(Some(message));
            }
        }
    }

    fn wrong<T>(&self, ids: &[&'static str], text: String) -> Play<T> {
        self.record().broken(ids, text.clone());
        fail(text)
    }

    /// Adds a packet to a message, which may be complete then.
    fn add(&self, partial: &mut Partial, packet: &Arrived) -> Play<Option<Incoming>> {
        let (opcode, psn) = (packet.opcode, packet.psn);
        let begins = !matches!(opcode, 1..=3 | 7..=9 | op::SEND_LAST_INV);
        let is_write = matches!(opcode, 6..=0x0b);
        let continues = partial.first.is_some_and(|first| (first == op::WRITE_FIRST) == is_write);
        if begins == partial.first.is_some() || (!begins && !continues) {
            let text = format!("the peer sent {} out of its sequence", packet.text());
            return self.wrong(&["IBRC-04"], text);
        }
        let (mtu, size) = (self.terms.mtu, packet.payload.len());
        let is_end = !matches!(opcode, 0 | 1 | 6 | 7);
        let fits = if is_end { size <= mtu && (begins || size > 0) } else { size == mtu };
        if !fits {
            let id = if is_end { "IBRC-03" } else { "IBRC-02" };
            let text = format!("the peer sent {}; the path MTU is {mtu}", packet.text());
            return self.wrong(&[id], text);
        }
        self.record().kept(&["IBRC-02", "IBRC-03", "IBRC-04", "ROCE-02"]);
        if packet.solicited && !(is_end && (!is_write || matches!(opcode, 9 | 0x0b))) {
            self.record().broken(&["IBRC-39"], format!("{} asks for an event", packet.text()));
        }
        match opcode {
            op::READ_REQUEST => {
                let (address, key, length) = packet.reth();
                return Ok(Some(Incoming::Read { psn, address, key, length }));
            }
            op::COMPARE_SWAP | op::FETCH_ADD => {
                let (address, key, _) = packet.reth();
                let operands = packet.operands();
                return Ok(Some(Incoming::Atomic { psn, opcode, address, key, operands }));
            }
            _ => {}
        }
        if begins {
            partial.first = Some(opcode);
            partial.reth = packet.reth();
        }
        partial.data.extend(&packet.payload);
        if !is_end {
            return Ok(None);
        }
        if !packet.ack {
            // Without it nobody would tell the peer that the message arrived. [IBRC-40]
            self.record()
                .broken(&["IBRC-40"], format!("{} asks for no acknowledgement", packet.text()));
        } else {
            self.record().kept(&["IBRC-40"]);
        }
        let data = std::mem::take(&mut partial.data);
        let word = Some(packet.last_word());
        let immediate = word.filter(|_| matches!(opcode, 3 | 5 | 9 | 0x0b));
        partial.first = None;
        if !is_write {
            let invalidated = word.filter(|_| matches!(opcode, 0x16 | 0x17));
            let solicited = packet.solicited;
            return Ok(Some(Incoming::Send { data, immediate, invalidated, solicited }));
        }
        let (address, key, length) = partial.reth;
        if length as usize != data.len() {
            let text = format!("a Write of {} octets says that it has {length}", data.len());
            return self.wrong(&["IBRC-18"], text);
        }
        self.record().kept(&["IBRC-18"]);
        Ok(Some(Incoming::Write { address, key, data, immediate }))
    }
}
