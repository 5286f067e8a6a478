//! Tests of lingering streams: how often it is checked whether everything has arrived.

use std::sync::atomic::Ordering;

use warpline_patience::{Bound, until};

use crate::qp::Polled;
use crate::testing::end::pair;

/// A peer that never reads costs a few checks, not one each half millisecond.
#[test]
fn checks_of_a_stream_that_is_not_read_become_rare() {
    let (reader, source) = pair(16 << 20);
    reader.read(&source);
    until("the source's socket to be full", || source.qp.poll() == Polled::Stalled);
    source.qp.destroy();
    let bound = Bound::new("the stream to be given up");
    let mut checks = 0;
    while let Some(at) = source.engine.next_timer() {
        bound.check();
        source.services.now.store(at, Ordering::Relaxed);
        source.engine.run_timers();
        checks += 1;
    }
    assert!((10..100).contains(&checks), "{checks}");
}
