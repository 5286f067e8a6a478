//! A QP that could send for ever stops when its turn is over, and goes on when it has the next.

use warpline_patience::Bound;

use super::inner::TURN;
use crate::testing::end::{End, pair};

/// Many turns of each end.
const LARGE: usize = 16 << 20;

/// What one visit may take out of the core: a batch, and the FPDU that filled it.
const MOST: u64 = TURN as u64 + (66 << 10);
// A MiB and a little more.
const _: () = assert!(MOST > 1 << 20 && MOST < 5 << 18);

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
        let before = source.octets_sent();
        visit();
        let sent = source.octets_sent() - before;
        assert!(sent <= MOST, "{sent} octets in one turn");
        turns += u64::from(sent != 0);
    };
    let bound = Bound::new("a large read, turn by turn");
    while !reader.completed() {
        bound.check();
        turn(&|| {
            source.qp.poll();
        });
        // It may wait for room.
        turn(&|| source.engine.poll());
    }
    assert!(turns >= LARGE as u64 / MOST, "{turns}");
}

/// Octets behind the end of a turn bring no event of their own.
#[test]
fn the_end_of_a_turn_is_an_event() {
    let (reader, source) = reading();
    let bound = Bound::new("the event of a turn's end");
    while !reader.completed() {
        bound.check();
        source.engine.poll();
        reader.engine.poll();
    }
}
