//! Counts, times and statistics of a measurement. Plain values of the thread that measures.

use std::time::{Duration, Instant};

/// Times that are kept of one measurement; later ones are left out.
const MOST_LAPS: usize = 1 << 20;

/// What one thread has done in a measurement, or all of them.
#[derive(Debug, Default)]
pub(super) struct Count {
    /// Messages, all of them received.
    pub(super) messages: u64,
    /// Until the last one was confirmed.
    pub(super) elapsed: Duration,
    /// Times of single messages.
    pub(super) laps: Laps,
    /// Messages of the connection that had the fewest, as a part of the mean.
    pub(super) slowest: Option<f64>,
}

impl Count {
    /// Of threads that ran at once.
    pub(super) fn join(parts: impl IntoIterator<Item = Self>) -> Self {
        parts.into_iter().fold(Self::default(), |mut all, part| {
            all.messages += part.messages;
            all.elapsed = all.elapsed.max(part.elapsed);
            all.laps.0.extend(part.laps.0);
            all.slowest = match (all.slowest, part.slowest) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            all
        })
    }
}

/// Times of single messages in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Laps(Vec<u32>);

impl Laps {
    /// One more.
    pub(super) fn add(&mut self, lap: Duration) {
        if self.0.len() < MOST_LAPS {
            self.0.push(u32::try_from(lap.as_nanos()).unwrap_or(u32::MAX));
        }
    }

    /// The values below which so many parts of a thousand lie, in microseconds; `None`: no times.
    pub(super) fn permille<const N: usize>(&mut self, parts: [usize; N]) -> Option<[f64; N]> {
        let last = self.0.len().checked_sub(1)?;
        self.0.sort_unstable();
        Some(parts.map(|part| f64::from(self.0[(self.0.len() * part / 1000).min(last)]) / 1e3))
    }
}

/// Round trips, one after the other.
#[derive(Debug)]
pub(super) struct Rounds {
    begin: Instant,
    last: Instant,
    end: Instant,
    count: Count,
}

impl Rounds {
    /// Starts the clock.
    pub(super) fn new(length: Duration) -> Self {
        let now = Instant::now();
        Self { begin: now, last: now, end: now + length, count: Count::default() }
    }

    /// A round trip ended, and the next begins; true when the time is up.
    pub(super) fn lap(&mut self) -> bool {
        let now = Instant::now();
        self.count.laps.add(now - self.last);
        self.count.messages += 1;
        self.last = now;
        now >= self.end
    }

    /// What there was.
    pub(super) fn count(mut self) -> Count {
        self.count.elapsed = self.last - self.begin;
        self.count
    }
}

/// One figure over all rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Summary {
    /// The middle one.
    pub(super) median: f64,
    /// The smallest.
    pub(super) min: f64,
    /// The largest.
    pub(super) max: f64,
}

impl Summary {
    /// Of the rounds' values; `None` if there are none.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
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
        let summary = Summary::of([3.0, 1.0, 2.0]);
        assert_eq!(summary, Some(Summary { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Summary::of([]), None);
    }

    #[test]
    fn percentiles() {
        let mut laps = Laps::default();
        assert_eq!(laps.permille([500]), None);
        for micros in (1..=1000).rev() {
            laps.add(Duration::from_micros(micros));
        }
        assert_eq!(laps.permille([0, 500, 990, 1000]), Some([1.0, 501.0, 991.0, 1000.0]));
    }

    #[test]
    fn a_measurement_without_time_is_one_round() {
        let mut rounds = Rounds::new(Duration::ZERO);
        assert!(rounds.lap());
        assert_eq!(rounds.count().messages, 1);
    }

    #[test]
    fn threads_count_together() {
        let part = |messages, slowest| Count { messages, slowest, ..Count::default() };
        let all = Count::join([part(1, Some(0.9)), part(2, Some(0.7)), part(3, None)]);
        assert_eq!((all.messages, all.slowest), (6, Some(0.7)));
    }
}
