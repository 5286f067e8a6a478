//! The ball that goes there and back: how either side throws it. Owned by a lane's thread.

use std::time::Duration;

use itapi::{Error, Local, RemoteRange, Result, Work};

use super::Lane;
use crate::error::CliResult;
use crate::perf::case::{INLINE, Op};

/// Of so many throws over a connection one asks for a completion.
const SIGNAL_EVERY: u64 = 16;

/// Requests of a round trip's send queue: at most two a throw, and as many again until the
/// completion that frees them is taken.
pub(super) const SLOTS: u32 = 2 * 2 * SIGNAL_EVERY as u32;

/// One side of a game.
pub(in crate::perf) struct Ball {
    pub(in crate::perf) lane: Lane,
    /// Where the other side's memory is, by connection.
    pub(in crate::perf) remotes: Vec<RemoteRange>,
    throws: u64,
    catches: u64,
    /// The receive that the last catch took, and of which connection. It is posted again behind the
    /// next throw: there are others, and nobody waits for it.
    taken: Option<(usize, Local)>,
}

impl Ball {
    pub(in crate::perf) fn new(lane: Lane, remotes: Vec<RemoteRange>) -> Self {
        Self { lane, remotes, throws: 0, catches: 0, taken: None }
    }

    /// Nobody is told of an RDMA Write: who polls looks at the memory; who waits needs a Send
    /// behind it.
    fn is_seen_in_memory(&self) -> bool {
        self.lane.case.op == Op::Write && !self.lane.case.wait
    }

    /// Throws it over connection `at`.
    pub(in crate::perf) fn throw(&mut self, at: usize) -> Result<()> {
        self.post(at)?;
        match self.taken.take() {
            Some((at, local)) => self.lane.post_recv(&self.lane.eps[at], local),
            None => Ok(()),
        }
    }

    fn post(&mut self, at: usize) -> Result<()> {
        let size = self.lane.case.size as usize;
        // Connections take turns.
        let round = self.throws / self.lane.eps.len().max(1) as u64 + 1;
        let signal = round.is_multiple_of(SIGNAL_EVERY);
        self.throws += 1;
        let mark = mark(self.throws);
        let octets = [mark; INLINE as usize];
        let small = self.lane.small(&octets);
        let local = || self.lane.region.range(size..2 * size);
        // Its last octet tells who looks at the memory that it is there.
        if self.is_seen_in_memory() && small.is_none() {
            self.lane.region.write_at(2 * size - 1, &[mark])?;
        }
        let to = || self.remotes[at].slice(0..size as u64);
        let work = match (self.lane.case.op, small) {
            (Op::Send, Some(octets)) => Work::send(octets),
            (Op::Send, None) => Work::send(local()?),
            (_, Some(octets)) => Work::write(octets, to()?),
            (_, None) => Work::write(local()?, to()?),
        };
        let ep = &self.lane.eps[at];
        let last = match self.lane.case.op {
            Op::WriteImm => work.with_immediate(self.throws),
            Op::Write if self.lane.case.wait => {
                let mut both = vec![work.unsignalled(), signalled(Work::send(&[]), signal)];
                ep.post_all(&mut both)?;
                return both.is_empty().then_some(()).ok_or_else(full);
            }
            _ => work,
        };
        ep.post(signalled(last, signal))?;
        Ok(())
    }

    /// Catches it on connection `at`; `None`: a waiting side lost patience.
    pub(in crate::perf) fn catch(
        &mut self,
        at: usize,
        patience: Duration,
    ) -> CliResult<Option<()>> {
        self.catches += 1;
        if self.is_seen_in_memory() { self.watch().map(Some) } else { self.receive(at, patience) }
    }

    fn receive(&mut self, at: usize, patience: Duration) -> CliResult<Option<()>> {
        loop {
            let Some(completion) = self.lane.next(patience)? else {
                if self.lane.case.wait {
                    return Ok(None);
                }
                std::hint::spin_loop();
                continue;
            };
            self.lane.check(&completion)?;
            if is_receive(completion.operation) {
                self.taken = Some((at, completion.local));
                return Ok(Some(()));
            }
        }
    }

    /// Looks at the last octet until the peer has written it; polling moves what comes.
    fn watch(&self) -> CliResult<()> {
        let (last, mark) = (self.lane.case.size as usize - 1, mark(self.catches));
        let mut octet = [0];
        loop {
            if let Some(completion) = self.lane.evd.poll()? {
                self.lane.check(&completion)?;
            }
            self.lane.region.read_at(last, &mut octet)?;
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

/// Never what fresh memory holds, and never that of the throw before.
fn mark(throw: u64) -> u8 {
    (throw % 251) as u8 + 1
}
