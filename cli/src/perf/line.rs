//! Measures the round trip of one cache line between two processors, a lower bound of any exchange through
//! memory.
//!
//! Two threads, each on its own processor, run for some milliseconds; they share two words. No other state.
//!
//! A host moves the processors of its guests, so that a line is *near* (the processors share a cache) at one moment
//! and *far* at the next. So it is measured before and after each measurement.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::machine::pin;

/// Round trips of a measurement, and measurements; the result is the median.
const TRIPS: u32 = 1_000;
const ROUNDS: usize = 5;

/// The longest half round trip of a near line, in microseconds: 0.04 to 0.06 were seen between processors that
/// share a cache, 0.16 to 0.8 between others.
const NEAR: f64 = 0.12;

/// The line before and after a measurement, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around(pub(super) [f64; 2]);

impl Around {
    /// Whether it was near both times; `None`: it changed.
    pub(super) fn is_near(self) -> Option<bool> {
        let [before, after] = self.0.map(|line| line <= NEAR);
        (before == after).then_some(before)
    }
}

#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU32);

/// Half a round trip in microseconds between the first two processors that this process may use.
pub(super) fn line_round_trip() -> Option<f64> {
    let (there, back) = (Line::default(), Line::default());
    let (there, back) = (&there, &back);
    // Both threads are pinned before either begins to spin.
    let placed = std::sync::Barrier::new(2);
    let place = |nth| {
        let own = pin(nth);
        placed.wait();
        own
    };
    std::thread::scope(|scope| {
        let place = &place;
        scope.spawn(move || {
            let _ = place(1);
            for trip in 1..=TRIPS * ROUNDS as u32 {
                await_word(there, trip);
                back.0.store(trip, Ordering::Release);
            }
        });
        let timed = scope.spawn(move || {
            let _ = place(0);
            let mut trip = 0;
            let mut rounds = [0.0; ROUNDS];
            for round in &mut rounds {
                let begin = Instant::now();
                for _ in 0..TRIPS {
                    trip += 1;
                    there.0.store(trip, Ordering::Release);
                    await_word(back, trip);
                }
                *round = begin.elapsed().as_secs_f64() * 1e6 / f64::from(2 * TRIPS);
            }
            rounds.sort_by(f64::total_cmp);
            rounds[ROUNDS / 2]
        });
        timed.join().ok()
    })
}

fn await_word(line: &Line, word: u32) {
    while line.0.load(Ordering::Acquire) != word {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_changed_is_neither() {
        let near = [[0.05, 0.06], [0.3, 0.2], [0.05, 0.3]].map(|line| Around(line).is_near());
        assert_eq!(near, [Some(true), Some(false), None]);
    }
}
