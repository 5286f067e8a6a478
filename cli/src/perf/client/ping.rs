//! Round trips, one at a time, over the connections of a lane in turn. Owned by one thread.

use std::time::Duration;

use itapi::{Completion, Error, RemoteRange, Work};

use crate::error::CliResult;
use crate::perf::case::Op;
use crate::perf::lane::{Ball, Lane, PATIENCE};
use crate::perf::meter::{Count, Rounds};

/// See the module.
pub(super) struct Ping {
    ball: Ball,
    trips: usize,
}

impl Ping {
    pub(super) fn new(lane: Lane, remotes: Vec<RemoteRange>) -> Self {
        Self { ball: Ball::new(lane, remotes), trips: 0 }
    }

    pub(super) fn lane(&self) -> &Lane {
        &self.ball.lane
    }

    pub(super) fn phase(&mut self, length: Duration) -> CliResult<Count> {
        let mut rounds = Rounds::new(length);
        loop {
            let at = self.trips % self.ball.lane.eps.len();
            self.trips += 1;
            if self.lane().case.op.is_answered() {
                self.fetch(at)?;
            } else {
                self.ball.throw(at)?;
                self.ball.catch(at, PATIENCE)?.ok_or(Error::Timeout(PATIENCE))?;
            }
            if rounds.lap() {
                return Ok(rounds.count());
            }
        }
    }

    /// What the peer's process takes no part in.
    fn fetch(&self, at: usize) -> CliResult<()> {
        let (lane, size) = (self.lane(), self.lane().case.size as usize);
        let (remote, local) =
            (self.ball.remotes[at].slice(0..size as u64)?, lane.region.range(0..size)?);
        let work = match lane.case.op {
            Op::FetchAdd => Work::fetch_add(remote, 1, local),
            _ => Work::read(remote, local),
        };
        lane.eps[at].post(work)?;
        let completion = self.completion()?;
        lane.check(&completion)
    }

    fn completion(&self) -> CliResult<Completion> {
        loop {
            match self.lane().next(PATIENCE)? {
                Some(completion) => return Ok(completion),
                None if self.lane().case.wait => return Err(Error::Timeout(PATIENCE).into()),
                None => std::hint::spin_loop(),
            }
        }
    }
}
