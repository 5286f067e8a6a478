//! Measures connecting: connect, one RDMA Write, and close or keep. Owned by one thread.

use std::net::SocketAddr;
use std::time::Duration;

use itapi::{Disconnect, Ep, Ia, Work};

use super::remote;
use crate::error::CliResult;
use crate::perf::case::Case;
use crate::perf::meter::{Count, Rounds};
use crate::perf::worker::{PATIENCE, Worker};

/// See the module.
pub(super) struct Connector {
    worker: Worker,
    address: SocketAddr,
}

impl Connector {
    /// Makes the connections that stay open: all of the case but one, which is made repeatedly.
    pub(super) fn new(ia: &Ia, case: Case, address: SocketAddr) -> CliResult<Self> {
        let mut this = Self { worker: Worker::new(ia, case, case.conns, false)?, address };
        for _ in 1..case.conns {
            let ep = this.establish()?;
            this.worker.eps.push(ep);
        }
        Ok(this)
    }

    /// The worker, with the connections that stay open.
    pub(super) fn worker(&self) -> &Worker {
        &self.worker
    }

    pub(super) fn phase(&self, length: Duration) -> CliResult<Count> {
        let mut rounds = Rounds::new(length);
        loop {
            self.one()?;
            if rounds.ended() {
                return Ok(rounds.count());
            }
        }
    }

    fn one(&self) -> CliResult<()> {
        // The provider closes the previous one asynchronously.
        Ok(self.establish()?.start_disconnect(Disconnect::Graceful)?)
    }

    fn establish(&self) -> CliResult<Ep> {
        let ep = self.worker.bare_ep().build()?;
        let established = ep.connect(self.address, &[])?;
        let remote = remote(&established.private_data)?;
        ep.post(Work::write(&[1; 8], remote))?;
        let completion = loop {
            if let Some(completion) = self.worker.next(PATIENCE)? {
                break completion;
            }
        };
        self.worker.check(&completion)?;
        Ok(ep)
    }
}
