//! Sends every message of a ping-pong back, over the connections of a worker in turn, until the client leaves. Owned
//! by one thread.

use std::time::Duration;

use itapi::{Ep, RemoteRange};

use crate::error::CliResult;
use crate::perf::worker::{PingPong, REASON, Worker};

pub(super) fn serve(worker: Worker, remotes: Vec<RemoteRange>) -> CliResult<()> {
    let mut pair = PingPong::new(worker, remotes);
    for trip in 0.. {
        let at = trip % pair.worker.eps.len();
        let received = pair.receive(at, Duration::MAX).map(drop);
        let back = received.and_then(|()| Ok(pair.send(at)?));
        if back.is_err() && left(&pair.worker.eps[at]) {
            break;
        }
        back?;
    }
    Ok(())
}

/// True if the connection has ended or ends within [`REASON`]; the client knows whether that was intended.
pub(super) fn left(ep: &Ep) -> bool {
    matches!(ep.ended(REASON), Ok(Some(_)))
}
