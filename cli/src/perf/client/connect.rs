//! Connections that are only made to be measured: connect, one RDMA Write, close. Owned by one
//! thread.

use std::net::SocketAddr;
use std::time::Duration;

use itapi::{Disconnect, Error, Ia, Work};

use super::remote;
use crate::error::CliResult;
use crate::perf::case::Case;
use crate::perf::lane::{Lane, PATIENCE};
use crate::perf::meter::{Count, Rounds};

/// See the module.
pub(super) struct Connector {
    lane: Lane,
    address: SocketAddr,
}

impl Connector {
    pub(super) fn new(ia: &Ia, case: Case, address: SocketAddr) -> itapi::Result<Self> {
        Ok(Self { lane: Lane::new(ia, case, 1, false)?, address })
    }

    pub(super) fn phase(&self, length: Duration) -> CliResult<Count> {
        let mut rounds = Rounds::new(length);
        loop {
            self.one()?;
            if rounds.lap() {
                return Ok(rounds.count());
            }
        }
    }

    fn one(&self) -> CliResult<()> {
        let ep = self.lane.pz.ep(&self.lane.evd).depth(4, 4).max_pieces(1).build()?;
        let established = ep.connect(self.address, &[])?;
        let remote = remote(&established.private_data)?;
        ep.post(Work::write(&[1; 8], remote)).map_err(Error::from)?;
        let completion = loop {
            match self.lane.next(PATIENCE)? {
                Some(completion) => break completion,
                None => std::hint::spin_loop(),
            }
        };
        self.lane.check(&completion)?;
        // It closes behind our back.
        Ok(ep.start_disconnect(Disconnect::Graceful)?)
    }
}
