//! A ping-pong: how either side sends the message that goes there and back. Owned by a worker's thread.

use std::time::Duration;

use itapi::{Error, Local, RemoteRange, Result, Work};

use super::Worker;
use crate::error::CliResult;
use crate::perf::case::{INLINE, Op};

/// Of so many messages over a connection one asks for a completion.
const SIGNAL_EVERY: u64 = 16;

/// Requests of a round trip's send queue: at most two a message, and as many again until the
/// completion that frees them is taken.
pub(super) const SLOTS: u32 = 2 * 2 * SIGNAL_EVERY as u32;

/// One side of a ping-pong.
pub(in crate::perf) struct PingPong {
    pub(in crate::perf) worker: Worker,
    /// Where the other side's memory is, by connection.
    pub(in crate::perf) remotes: Vec<RemoteRange>,
    sent: u64,
    received: u64,
    /// The receive that the last message took, and of which connection. It is posted again behind the
    /// next message that is sent: there are others, and nobody waits for it.
    taken: Option<(usize, Local)>,
}

impl PingPong {
    pub(in crate::perf) fn new(worker: Worker, remotes: Vec<RemoteRange>) -> Self {
        Self { worker, remotes, sent: 0, received: 0, taken: None }
    }

    /// Nobody is told of an RDMA Write: who polls looks at the memory; who waits needs a Send
    /// behind it.
    fn is_seen_in_memory(&self) -> bool {
        self.worker.case.op == Op::Write && !self.worker.case.wait
    }

    /// Sends the next message over connection `at`.
    pub(in crate::perf) fn send(&mut self, at: usize) -> Result<()> {
        self.post(at)?;
        match self.taken.take() {
            Some((at, local)) => self.worker.post_recv(&self.worker.eps[at], local),
            None => Ok(()),
        }
    }

    fn post(&mut self, at: usize) -> Result<()> {
        let size = self.worker.case.size as usize;
        // Connections take turns.
        let round = self.sent / self.worker.eps.len().max(1) as u64 + 1;
        let signal = round.is_multiple_of(SIGNAL_EVERY);
        self.sent += 1;
        let mark = mark(self.sent);
        let octets = [mark; INLINE as usize];
        let small = self.worker.small(&octets);
        let local = || self.worker.region.range(size..2 * size);
        // Its last octet tells who looks at the memory that it is there.
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
                let mut both = vec![work.unsignalled(), signalled(Work::send(&[]), signal)];
                ep.post_all(&mut both)?;
                return both.is_empty().then_some(()).ok_or_else(full);
            }
            _ => work,
        };
        ep.post(signalled(last, signal))?;
        Ok(())
    }

    /// Waits for the next message of connection `at`; `None`: a waiting side lost patience.
    pub(in crate::perf) fn receive(
        &mut self,
        at: usize,
        patience: Duration,
    ) -> CliResult<Option<()>> {
        self.received += 1;
        if self.is_seen_in_memory() {
            self.watch().map(Some)
        } else {
            self.take_receive(at, patience)
        }
    }

    fn take_receive(&mut self, at: usize, patience: Duration) -> CliResult<Option<()>> {
        loop {
            let Some(completion) = self.worker.next(patience)? else {
                if self.worker.case.wait {
                    return Ok(None);
                }
                std::hint::spin_loop();
                continue;
            };
            self.worker.check(&completion)?;
            if is_receive(completion.operation) {
                self.taken = Some((at, completion.local));
                return Ok(Some(()));
            }
        }
    }

    /// Looks at the last octet until the peer has written it; polling moves what comes.
    fn watch(&self) -> CliResult<()> {
        let (last, mark) = (self.worker.case.size as usize - 1, mark(self.received));
        let mut octet = [0];
        loop {
            if let Some(completion) = self.worker.evd.poll()? {
                self.worker.check(&completion)?;
            }
            self.worker.region.read_at(last, &mut octet)?;
            if octet[0] == mark {
                return Ok(());
            }
            std::hint::spin_loop();
        }
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

/// Never what fresh memory holds, and never that of the message before.
fn mark(message: u64) -> u8 {
    (message % 251) as u8 + 1
}
