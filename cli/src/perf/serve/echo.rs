//! Throws every ball back, over the connections of a lane in turn, until the client leaves. Owned
//! by one thread.

use std::time::Duration;

use itapi::{Ep, RemoteRange};

use crate::error::CliResult;
use crate::perf::lane::{Ball, Lane, REASON};

pub(super) fn serve(lane: Lane, remotes: Vec<RemoteRange>) -> CliResult<()> {
    let mut ball = Ball::new(lane, remotes);
    for trip in 0.. {
        let at = trip % ball.lane.eps.len();
        let caught = ball.catch(at, Duration::MAX).map(drop);
        let back = caught.and_then(|()| Ok(ball.throw(at)?));
        if back.is_err() && left(&ball.lane.eps[at]) {
            break;
        }
        back?;
    }
    Ok(())
}

/// True if the connection is over, or will be at once; the client knows whether it meant that.
pub(super) fn left(ep: &Ep) -> bool {
    matches!(ep.ended(REASON), Ok(Some(_)))
}
