//! Ping-pong: sends and receives the messages of a round trip, at either side. Owned by a worker's thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use itapi::{Error, Local, RemoteRange, Result, Work};

use super::Worker;
use crate::error::{CliError, CliResult, Exit};
use crate::perf::case::{INLINE, Op};

/// One message in this many on a connection is signalled.
const SIGNAL_EVERY: u64 = 16;

/// Of a side that makes no other call: reads of its memory between two checks that the connection still exists.
const READS_PER_CHECK: u64 = 1 << 20;

/// Depth of the send queue for round trips: at most two requests per message, twice, because slots are freed
/// only when the signalled completion is taken.
pub(super) const SLOTS: u32 = 2 * 2 * SIGNAL_EVERY as u32;

/// One side of a ping-pong.
pub(in crate::perf) struct PingPong<'a> {
    pub(in crate::perf) worker: Worker,
    /// The other side's memory, by connection.
    pub(in crate::perf) remotes: Vec<RemoteRange>,
    sent: u64,
    received: u64,
    /// The next message is signalled.
    signals: bool,
    /// The receive that the last message took, with its connection. It is posted again after the next message
    /// is sent, off the critical path: other receives are posted.
    taken: Option<(usize, Local)>,
    /// Set when no message will come, if nothing else tells.
    over: Option<&'a AtomicBool>,
}

impl<'a> PingPong<'a> {
    pub(in crate::perf) fn new(
        worker: Worker,
        remotes: Vec<RemoteRange>,
        over: Option<&'a AtomicBool>,
    ) -> Self {
        Self { worker, remotes, sent: 0, received: 0, signals: false, taken: None, over }
    }

    /// An RDMA Write raises no event at the receiver: a polling side reads the memory; a waiting side needs a
    /// Send after it.
    fn is_seen_in_memory(&self) -> bool {
        self.worker.case.op == Op::Write && !self.worker.case.wait
    }

    pub(in crate::perf) fn is_over(&self) -> bool {
        self.over.is_some_and(|over| over.load(Ordering::Relaxed))
    }

    /// Sends the next message over connection `at`.
    pub(in crate::perf) fn send(&mut self, at: usize) -> Result<()> {
        self.post(at)?;
        // Connections take turns.
        let round = self.sent / self.worker.eps.len() as u64 + 1;
        self.signals = round.is_multiple_of(SIGNAL_EVERY);
        match self.taken.take() {
            Some((at, local)) => self.worker.post_recv(&self.worker.eps[at], local),
            None => Ok(()),
        }
    }

    fn post(&mut self, at: usize) -> Result<()> {
        let size = self.worker.case.size as usize;
        self.sent += 1;
        let mark = mark(self.sent);
        let octets = [mark; INLINE as usize];
        let small = self.worker.small(&octets);
        let local = || self.worker.region.range(size..2 * size);
        // The other side polls the last octet in memory.
        if self.is_seen_in_memory() && small.is_none() {
            self.worker.region.write_at(2 * size - 1, &[mark])?;
        }
        let to = || self.remotes[at].slice(0..size as u64);
        let work = match (self.worker.case.op, small) {
            (Op::Send, Some(octets)) => Work::send(octets),
            (Op::Send, None) => Work::send(local()?),
            (_, Some(octets)) => Work::write(octets, to()?),
            (_, None) => Work::write(local()?, to()?),
        };
        let ep = &self.worker.eps[at];
        let last = match self.worker.case.op {
            Op::WriteImm => work.with_immediate(self.sent),
            Op::Write if self.worker.case.wait => {
                let mut both = vec![work.unsignalled(), signalled(Work::send(&[]), self.signals)];
                ep.post_all(&mut both)?;
                return both.is_empty().then_some(()).ok_or_else(full);
            }
            _ => work,
        };
        ep.post(signalled(last, self.signals))?;
        Ok(())
    }

    /// Waits for the next message of connection `at`; `None`: waiting timed out, or it is over.
    pub(in crate::perf) fn receive(
        &mut self,
        at: usize,
        patience: Duration,
    ) -> CliResult<Option<()>> {
        self.received += 1;
        if self.is_seen_in_memory() { self.watch(at) } else { self.take_receive(at, patience) }
    }

    fn take_receive(&mut self, at: usize, patience: Duration) -> CliResult<Option<()>> {
        loop {
            let Some(completion) = self.worker.next(patience)? else {
                if self.worker.case.wait || self.is_over() {
                    return Ok(None);
                }
                continue;
            };
            self.worker.check(&completion)?;
            if is_receive(completion.operation) {
                self.taken = Some((at, completion.local));
                return Ok(Some(()));
            }
        }
    }

    /// Reads the last octet until the peer has written it; polling makes progress meanwhile, or the library's
    /// own thread.
    fn watch(&self, at: usize) -> CliResult<Option<()>> {
        let (last, mark) = (self.worker.case.size as usize - 1, mark(self.received));
        let mut octet = [0];
        for reads in 1u64.. {
            if !self.worker.case.memory {
                self.poll()?;
                if self.is_over() {
                    return Ok(None);
                }
            } else {
                std::hint::spin_loop();
                if reads.is_multiple_of(READS_PER_CHECK) {
                    self.check_connected(at)?;
                }
            }
            self.worker.region.read_at(last, &mut octet)?;
            if octet[0] == mark {
                break;
            }
        }
        // A poll that finds none would serve the sockets in place of the library's thread.
        if self.worker.case.memory && self.sent != 0 && self.sent.is_multiple_of(SIGNAL_EVERY) {
            while !self.poll()? {}
        }
        Ok(Some(()))
    }

    fn check_connected(&self, at: usize) -> CliResult<()> {
        match self.worker.eps[at].ended(Duration::ZERO)? {
            Some(end) => Err(CliError::connection(Exit::Network, &end)),
            None => Ok(()),
        }
    }

    /// Takes a completion, if there is one.
    fn poll(&self) -> CliResult<bool> {
        let completion = self.worker.evd.poll()?;
        completion.as_ref().map_or(Ok(()), |completion| self.worker.check(completion))?;
        Ok(completion.is_some())
    }
}

pub(in crate::perf) fn is_receive(operation: itapi::Operation) -> bool {
    matches!(operation, itapi::Operation::Recv | itapi::Operation::RecvImmediate)
}

fn signalled(work: Work<'_>, yes: bool) -> Work<'_> {
    if yes { work } else { work.unsignalled() }
}

fn full() -> Error {
    Error::Argument("the send queue is full in the middle of a round trip".into())
}

/// The last octet of a message: never 0, and never that of the message before.
fn mark(message: u64) -> u8 {
    (message % 251) as u8 + 1
}
