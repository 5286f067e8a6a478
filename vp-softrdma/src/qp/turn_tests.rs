//! A QP that could send for ever stops when its turn is over, and goes on when it has the next.

use super::inner::SENDS;
use crate::testing::end::{End, pair};

/// Many turns of each end.
const LARGE: usize = 16 << 20;

/// An end that reads all of the other's buffer, and the other.
fn reading() -> (End, End) {
    let (reader, source) = pair(LARGE);
    reader.read(&source);
    (reader, source)
}

#[test]
fn a_visit_sends_a_turn_of_a_large_read() {
    let (reader, source) = reading();
    let mut turns = 0;
    let mut turn = |visit: &dyn Fn()| {
        let before = source.sends();
        visit();
        let sent = source.sends() - before;
        assert!(sent <= u64::from(SENDS), "{sent} system calls in one turn");
        turns += u64::from(sent != 0);
    };
    while !reader.completed() {
        turn(&|| {
            source.qp.poll();
        });
        // It may wait for room.
        turn(&|| source.engine.poll());
    }
    // A call takes less than a MiB: a batch, and the FPDU that filled it.
    assert!(turns >= (LARGE as u64 >> 20) / u64::from(SENDS), "{turns}");
}

/// Octets behind the end of a turn bring no event of their own.
#[test]
fn the_end_of_a_turn_is_an_event() {
    let (reader, source) = reading();
    while !reader.completed() {
        source.engine.poll();
        reader.engine.poll();
    }
}
