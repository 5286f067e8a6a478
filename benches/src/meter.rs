//! Clocks and statistics of one measurement. Plain values of the thread that measures.

use std::time::{Duration, Instant};

/// The first part of a slice of time warms up: one in so many.
const WARM_UP: u32 = 5;

/// A slice of time, whose first part does not count.
#[derive(Debug)]
struct Slice {
    warm: Instant,
    end: Instant,
    counts: bool,
}

impl Slice {
    fn new(length: Duration) -> Self {
        let now = Instant::now();
        Self { warm: now + length / WARM_UP, end: now + length, counts: false }
    }

    /// True at the one moment when the measurement begins. One step that outlasts the slice counts
    /// in full, so that there is always a figure.
    fn begins(&mut self, now: Instant) -> bool {
        let begins = !self.counts && (self.warm..self.end).contains(&now);
        self.counts |= begins;
        begins
    }
}

/// Octets per time.
#[derive(Debug)]
pub struct Meter {
    slice: Slice,
    begin: Instant,
    octets: u64,
    /// Warm-up included.
    total: u64,
}

impl Meter {
    /// Starts the clock.
    pub fn new(length: Duration) -> Self {
        Self { slice: Slice::new(length), begin: Instant::now(), octets: 0, total: 0 }
    }

    /// True when the time is up.
    pub fn is_over(&mut self) -> bool {
        let now = Instant::now();
        if self.slice.begins(now) {
            (self.begin, self.octets) = (now, 0);
        }
        now >= self.slice.end
    }

    /// So many octets were moved.
    pub fn add(&mut self, octets: usize) {
        self.octets += octets as u64;
        self.total += octets as u64;
    }

    /// Why the figure counts for nothing, if the receiver did not get what was sent, all of it and
    /// no more.
    pub fn check(&self, received: u64) -> Result<(), String> {
        match self.total {
            sent if sent == received => Ok(()),
            sent => Err(format!("{sent} octets were sent, but {received} received")),
        }
    }

    /// GB/s (10^9 octets). Ask once the receiver has confirmed all of it.
    pub fn gigabytes_per_second(&self) -> f64 {
        self.octets as f64 / self.begin.elapsed().as_secs_f64() / 1e9
    }
}

/// Times of round trips, one after the other.
#[derive(Debug)]
pub struct Laps {
    slice: Slice,
    last: Instant,
    laps: Vec<u32>,
}

impl Laps {
    /// Starts the clock.
    pub fn new(length: Duration) -> Self {
        Self { slice: Slice::new(length), last: Instant::now(), laps: Vec::new() }
    }

    /// A round trip ended, and the next begins; true when the time is up.
    pub fn lap(&mut self) -> bool {
        let now = Instant::now();
        if self.slice.begins(now) {
            self.laps.clear();
        }
        let lap = now.duration_since(self.last).as_nanos();
        self.laps.push(u32::try_from(lap).unwrap_or(u32::MAX));
        self.last = now;
        now >= self.slice.end
    }

    /// Median of half a round trip in microseconds.
    pub fn half_round_trip(mut self) -> f64 {
        self.laps.sort_unstable();
        self.laps.get(self.laps.len() / 2).map_or(f64::NAN, |&lap| f64::from(lap) / 2e3)
    }
}

/// One figure over all rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Of the rounds' values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Self { median: sorted[sorted.len() / 2], min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_do_not_depend_on_the_order() {
        let summary = Summary::of(&[3.0, 1.0, 2.0]);
        assert_eq!(summary, Some(Summary { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn a_step_longer_than_the_slice_counts() {
        let mut meter = Meter::new(Duration::ZERO);
        meter.add(1);
        assert!(meter.is_over());
        assert!(meter.gigabytes_per_second() > 0.0);
        assert!(meter.check(1).is_ok());
        assert!(meter.check(2).is_err());
    }

    #[test]
    fn a_slice_without_time_is_over_at_once() {
        assert!(Meter::new(Duration::ZERO).is_over());
        assert!(Laps::new(Duration::ZERO).lap());
    }
}
