//! What the contract says about two connected queue pairs: what may be posted, which completions may come, and what
//! memory holds then. It knows nothing about time: a completion that may come may be late.
//!
//! Requests complete in order. Of one stream the first ones succeed, silently if they are unsignaled, and all behind the
//! first failure fail, with a completion each. A request occupies its slot until a completion that
//! frees it was polled. Messages arrive in order, each in the next receive.

use std::collections::VecDeque;

use vp_api::*;

use super::program::{NUMBERS, REGION};
use crate::Fail;
use crate::rig::pattern;

/// A request that occupies a slot.
#[derive(Clone, Debug)]
pub(super) struct Entry<T> {
    pub(super) wr_id: u64,
    signaled: bool,
    /// The stream that it was posted for; they are numbered.
    stream: u32,
    pub(super) what: T,
}

/// A work queue.
#[derive(Debug)]
pub(super) struct Queue<T> {
    pub(super) depth: u32,
    pub(super) list: VecDeque<Entry<T>>,
    /// The last stream of which a request failed.
    failed: Option<u32>,
}

impl<T> Queue<T> {
    pub(super) fn new(depth: u32) -> Self {
        Self { depth, list: VecDeque::new(), failed: None }
    }

    pub(super) fn is_full(&self) -> bool {
        self.list.len() as u32 == self.depth
    }

    /// Whether the completion of a request must still come.
    pub(super) fn is_due(&self) -> bool {
        self.list.iter().any(|entry| entry.signaled || self.failed == Some(entry.stream))
    }

    pub(super) fn all_signaled(&self) -> bool {
        self.list.iter().all(|entry| entry.signaled)
    }

    /// Removes the request that completed, and those before it, which have ended silently: the request is the last.
    fn complete(&mut self, wc: &WorkCompletion) -> Result<Vec<Entry<T>>, Fail> {
        let mut ended = Vec::new();
        loop {
            let none = || format!("{wc:?} completes no request that is posted");
            let entry = self.list.pop_front().ok_or_else(none)?;
            let (is_it, fails) = (entry.wr_id == wc.wr_id, self.failed == Some(entry.stream));
            if !is_it && (entry.signaled || fails) {
                return Err(format!("{wc:?} where request {} is due first", entry.wr_id).into());
            }
            let (signaled, stream) = (entry.signaled, entry.stream);
            ended.push(entry);
            if !is_it {
                continue;
            }
            return match wc.status {
                WcStatus::Success if fails => Err(format!("{wc:?} behind a failure").into()),
                WcStatus::Success if !signaled => Err(format!("{wc:?}: it is unsignaled").into()),
                WcStatus::Success => Ok(ended),
                _ => {
                    self.failed = Some(stream);
                    Ok(ended)
                }
            };
        }
    }
}

/// Memory of a request that is freed with its slot.
pub(super) type Chunk = usize;

/// A request of a send queue.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) opcode: WcOpcode,
    pub(super) chunk: Chunk,
    /// What the chunk holds when it has succeeded, if it is a sink.
    pub(super) brings: Option<Vec<u8>>,
}

/// A receive: its elements are at the begin of the chunk, and at half of it.
#[derive(Clone, Debug)]
pub(super) struct Receive {
    pub(super) lens: [u16; 2],
    pub(super) chunk: Chunk,
}

impl Receive {
    pub(super) fn room(&self) -> usize {
        self.lens.iter().map(|len| usize::from(*len)).sum()
    }
}

/// A message under way to an end.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) len: usize,
    pub(super) seed: u8,
    /// Of a Write with Immediate: its octets are not in the receive.
    pub(super) immediate: Option<u64>,
    stream: u32,
}

/// Octets that a chunk must hold.
pub(super) struct Holds {
    pub(super) chunk: Chunk,
    pub(super) at: usize,
    pub(super) octets: Vec<u8>,
}

/// One end.
pub(super) struct Side {
    pub(super) sends: Queue<Sent>,
    pub(super) receives: Queue<Receive>,
    pub(super) srq: bool,
    inbox: VecDeque<Message>,
    chunks: Vec<Chunk>,
    /// What the region holds that the peer writes to, once all is placed; and which octets may not be placed.
    pub(super) region: Vec<u8>,
    unsure: Vec<bool>,
    /// The number of the present stream.
    stream: u32,
    /// Receives of this stream that did not succeed, and those of them that were posted after its end.
    lost: (u32, u32),
}

impl Side {
    pub(super) fn new(sends: u32, receives: u32, srq: bool) -> Self {
        Self {
            sends: Queue::new(sends),
            receives: Queue::new(receives),
            srq,
            inbox: VecDeque::new(),
            chunks: (0..Self::chunks(sends, receives)).collect(),
            region: vec![0; REGION],
            unsure: vec![false; REGION],
            stream: 0,
            lost: (0, 0),
        }
    }

    /// One for each slot, and one for a request that is refused.
    pub(super) fn chunks(sends: u32, receives: u32) -> usize {
        (sends + receives + 1) as usize
    }

    /// Memory for the next request.
    pub(super) fn chunk(&self) -> Result<Chunk, Fail> {
        self.chunks.last().copied().ok_or_else(|| "more requests than slots".into())
    }

    /// The receive that the next message of the peer fills.
    pub(super) fn next_receive(&self, stream: u32) -> Option<&Receive> {
        let ahead = self.inbox.iter().filter(|message| message.stream == stream).count();
        let mut of_stream = self.receives.list.iter().filter(|entry| entry.stream == stream);
        of_stream.nth(ahead).map(|entry| &entry.what)
    }

    /// Whether all messages have been received.
    pub(super) fn has_all(&self, stream: u32) -> bool {
        self.inbox.iter().all(|message| message.stream != stream)
    }

    /// Whether reads are under way: what is written behind them, unfenced, may come before them.
    pub(super) fn reads(&self) -> bool {
        self.sends.list.iter().any(|entry| entry.what.opcode == WcOpcode::Read)
    }

    pub(super) fn receive(&mut self, wr_id: u64, stream: u32, what: Receive) {
        self.chunks.retain(|chunk| *chunk != what.chunk);
        self.receives.list.push_back(Entry { wr_id, signaled: true, stream, what });
    }

    pub(super) fn send(&mut self, wr_id: u64, signaled: bool, stream: u32, what: Sent) {
        self.chunks.retain(|chunk| *chunk != what.chunk);
        self.sends.list.push_back(Entry { wr_id, signaled, stream, what });
    }

    /// A message of the peer is under way.
    pub(super) fn expect(&mut self, mut message: Message, stream: u32) {
        message.stream = stream;
        self.inbox.push_back(message);
    }

    /// The peer writes.
    pub(super) fn write(&mut self, at: usize, octets: &[u8]) {
        self.region[at..at + octets.len()].copy_from_slice(octets);
        self.unsure[at..at + octets.len()].fill(true);
    }

    /// The peer adds to a number; returns what it was.
    pub(super) fn add(&mut self, number: usize, add: u64) -> Vec<u8> {
        let at = REGION - 8 * (NUMBERS - number);
        let before = self.region[at..at + 8].to_vec();
        let value = before.iter().rev().fold(0, |sum, octet| sum << 8 | u64::from(*octet));
        self.write(at, &value.wrapping_add(add).to_le_bytes());
        before
    }

    /// Where a region differs from what it must hold, if it does. What it holds is what it must hold from now on.
    pub(super) fn compare(&mut self, found: Vec<u8>, all_placed: bool) -> Option<usize> {
        let differs =
            |at: &usize| found[*at] != self.region[*at] && (all_placed || !self.unsure[*at]);
        let wrong = (0..REGION).find(differs);
        self.region = found;
        self.unsure.fill(false);
        wrong
    }

    /// A completion was polled; returns what memory must hold now.
    pub(super) fn completed(
        &mut self,
        wc: &WorkCompletion,
        over: bool,
    ) -> Result<Vec<Holds>, Fail> {
        match wc.opcode {
            WcOpcode::Recv | WcOpcode::RecvImmediate => self.received(wc, over),
            _ => self.sent(wc),
        }
    }

    fn sent(&mut self, wc: &WorkCompletion) -> Result<Vec<Holds>, Fail> {
        let ended = self.sends.complete(wc)?;
        let (last, mut holds) = (ended.len() - 1, Vec::new());
        for (n, Entry { what, .. }) in ended.into_iter().enumerate() {
            self.chunks.push(what.chunk);
            if n == last && what.opcode != wc.opcode {
                return Err(format!("{wc:?} of a request of kind {:?}", what.opcode).into());
            }
            if let Some(octets) =
                what.brings.filter(|_| n != last || wc.status == WcStatus::Success)
            {
                if n == last && wc.octets as usize != octets.len() {
                    return Err(format!("{wc:?} of {} octets", octets.len()).into());
                }
                holds.push(Holds { chunk: what.chunk, at: 0, octets });
            }
        }
        Ok(holds)
    }

    fn received(&mut self, wc: &WorkCompletion, over: bool) -> Result<Vec<Holds>, Fail> {
        let ended = self.receives.complete(wc)?;
        let Some(Entry { what, stream, .. }) = ended.into_iter().next() else { return Ok(vec![]) };
        self.chunks.push(what.chunk);
        if wc.status != WcStatus::Success {
            if stream == self.stream {
                self.lost.0 += 1;
                self.lost.1 += u32::from(over);
            }
            return Ok(vec![]);
        }
        self.inbox.retain(|message| message.stream >= stream);
        let message = self.inbox.pop_front().filter(|message| message.stream == stream);
        let message = message.ok_or_else(|| format!("{wc:?}, and no message is under way"))?;
        let opcode = match message.immediate {
            Some(_) => WcOpcode::RecvImmediate,
            None => WcOpcode::Recv,
        };
        let expected = (opcode, message.len as u32, message.immediate);
        if (wc.opcode, wc.octets, wc.immediate) != expected {
            return Err(format!("{wc:?} where {message:?} is expected").into());
        }
        if message.immediate.is_some() {
            return Ok(vec![]);
        }
        let octets = pattern(message.len, message.seed);
        let (first, second) = octets.split_at(message.len.min(what.lens[0].into()));
        let holds = |at, octets: &[u8]| Holds { chunk: what.chunk, at, octets: octets.to_vec() };
        Ok(vec![holds(0, first), holds(REGION / 2, second)])
    }

    /// The numbers of receives lost that a query may say, when all completions of the stream were polled.
    pub(super) fn lost(&self) -> std::ops::RangeInclusive<u32> {
        self.lost.0 - self.lost.1..=self.lost.0
    }

    /// Back in Idle, and everything was polled: what is left has ended silently.
    pub(super) fn idle(&mut self, next_stream: u32) -> Result<(), Fail> {
        if let Some(entry) = self
            .sends
            .list
            .iter()
            .find(|entry| entry.signaled || self.sends.failed == Some(entry.stream))
        {
            return Err(format!("request {} of the send queue never completed", entry.wr_id).into());
        }
        let silent = self.sends.list.drain(..).map(|entry| entry.what.chunk);
        self.chunks.extend(silent);
        match self.receives.list.front() {
            Some(entry) if !self.srq => {
                return Err(format!("receive {} never completed", entry.wr_id).into());
            }
            // They serve the next stream.
            _ => self.receives.list.iter_mut().for_each(|entry| entry.stream = next_stream),
        }
        self.begin(next_stream);
        Ok(())
    }

    /// Another stream begins, and nothing of the last one is lost in it.
    pub(super) fn begin(&mut self, stream: u32) {
        (self.stream, self.lost) = (stream, (0, 0));
    }
}

impl Message {
    pub(super) fn new(len: usize, seed: u8, immediate: Option<u64>) -> Self {
        Self { len, seed, immediate, stream: 0 }
    }
}
