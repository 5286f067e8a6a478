//! Sends every message of a ping-pong back, over the connections of a worker in turn, until the client leaves. Owned
//! by one thread.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use itapi::{Ep, RemoteRange};

use crate::error::CliResult;
use crate::perf::worker::{PingPong, REASON, Worker};

pub(super) fn serve(worker: Worker, remotes: Vec<RemoteRange>, over: &AtomicBool) -> CliResult<()> {
    // No event reports the end of a connection by path.
    let over = worker.case.by_path.then_some(over);
    let mut pair = PingPong::new(worker, remotes, over);
    for trip in 0.. {
        let at = trip % pair.worker.eps.len();
        let received = pair.receive(at, Duration::MAX);
        if matches!(received, Ok(None)) && pair.is_over() {
            break;
        }
        let back = received.and_then(|_| Ok(pair.send(at)?));
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
