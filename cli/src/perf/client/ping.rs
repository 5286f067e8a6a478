//! Measures round trips, one at a time, over the connections of a worker in turn. Owned by one thread.

use std::time::Duration;

use itapi::{Completion, Error, RemoteRange, Work};

use crate::error::CliResult;
use crate::perf::case::Op;
use crate::perf::meter::{Count, Rounds};
use crate::perf::worker::{PATIENCE, PingPong, Worker};

/// See the module.
pub(super) struct Ping {
    pair: PingPong<'static>,
    trips: usize,
}

impl Ping {
    pub(super) fn new(worker: Worker, remotes: Vec<RemoteRange>) -> Self {
        Self { pair: PingPong::new(worker, remotes, None), trips: 0 }
    }

    pub(super) fn worker(&self) -> &Worker {
        &self.pair.worker
    }

    pub(super) fn phase(&mut self, length: Duration) -> CliResult<Count> {
        let mut rounds = Rounds::new(length);
        if self.worker().case.op.is_answered() {
            loop {
                let at = self.next();
                self.fetch(at)?;
                if rounds.ended() {
                    return Ok(rounds.count());
                }
            }
        }
        let mut at = self.next();
        self.pair.send(at)?;
        loop {
            self.pair.receive(at, PATIENCE)?.ok_or(Error::Timeout(PATIENCE))?;
            let over = rounds.is_over();
            if !over {
                at = self.next();
                self.pair.send(at)?;
            }
            // While the next message is under way: reading the clock is no part of a round trip.
            rounds.count_one();
            if over {
                return Ok(rounds.count());
            }
        }
    }

    /// Connections take turns.
    fn next(&mut self) -> usize {
        let at = self.trips % self.pair.worker.eps.len();
        self.trips += 1;
        at
    }

    /// A round trip by RDMA Read or atomic, in which the peer's process takes no part.
    fn fetch(&self, at: usize) -> CliResult<()> {
        let (worker, size) = (self.worker(), self.worker().case.size as usize);
        let (remote, local) =
            (self.pair.remotes[at].slice(0..size as u64)?, worker.region.range(0..size)?);
        let work = match worker.case.op {
            Op::FetchAdd => Work::fetch_add(remote, 1, local),
            _ => Work::read(remote, local),
        };
        worker.eps[at].post(work)?;
        let completion = self.completion()?;
        worker.check(&completion)
    }

    fn completion(&self) -> CliResult<Completion> {
        loop {
            match self.worker().next(PATIENCE)? {
                Some(completion) => return Ok(completion),
                None if self.worker().case.wait => return Err(Error::Timeout(PATIENCE).into()),
                None => {}
            }
        }
    }
}
