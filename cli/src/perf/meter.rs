//! Counters, latency histograms and statistics of a measurement. Plain values of the thread that measures.

use serde::Serialize;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::signals;

/// Longest latency in nanoseconds; longer ones count as this.
const LONGEST: u64 = 3_600_000_000_000;

/// Significant decimal digits of a latency.
const DIGITS: u8 = 3;

/// What one thread, or all threads, did in a measurement.
#[derive(Debug, Default)]
pub(super) struct Count {
    /// Messages that were received.
    pub(super) messages: u64,
    /// Time until the last one was confirmed.
    pub(super) elapsed: Duration,
    /// Latencies of single messages.
    pub(super) latencies: Latencies,
    /// Messages of the connection with the fewest, as a part of the mean.
    pub(super) slowest: Option<f64>,
}

impl Count {
    /// The sum of threads that ran at once.
    pub(super) fn join(parts: impl IntoIterator<Item = Self>) -> Self {
        parts.into_iter().fold(Self::default(), |mut all, part| {
            all.messages += part.messages;
            all.elapsed = all.elapsed.max(part.elapsed);
            all.latencies.join(part.latencies);
            all.slowest = match (all.slowest, part.slowest) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            all
        })
    }
}

/// Latencies of single messages: a histogram of nanoseconds with three significant digits.
#[derive(Debug, Default)]
pub(super) struct Latencies(Option<Histogram<u64>>);

impl Latencies {
    /// Adds a latency.
    pub(super) fn add(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.get_or_insert_with(histogram).saturating_record(nanos);
    }

    /// Adds those of another thread.
    fn join(&mut self, other: Self) {
        match (&mut self.0, other.0) {
            // Both have the same bounds.
            (Some(all), Some(more)) => all.add(more).expect("histograms of the same bounds"),
            (none @ None, more) => *none = more,
            (Some(_), None) => {}
        }
    }

    /// Quantiles, given in thousandths, in microseconds; `None`: no times.
    pub(super) fn permille<const N: usize>(&self, parts: [u32; N]) -> Option<[f64; N]> {
        let all = self.0.as_ref()?;
        let micros = |part| all.value_at_quantile(f64::from(part) / 1e3) as f64 / 1e3;
        Some(parts.map(micros))
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("bounds of a histogram, in order")
}

/// The time of a measurement is up, or a signal ends it.
pub(super) fn is_over(begin: Instant, length: Duration) -> bool {
    begin.elapsed() >= length || signals::caught()
}

/// Measures round trips, one after the other.
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

    /// Ends a round trip and begins the next; true when the time is up.
    pub(super) fn ended(&mut self) -> bool {
        self.count_one();
        self.is_over()
    }

    /// As [`Self::ended`].
    pub(super) fn count_one(&mut self) {
        let now = Instant::now();
        self.count.latencies.add(now - self.last);
        self.count.messages += 1;
        self.last = now;
    }

    /// The time was up when the last round trip ended, or a signal ends the measurement.
    pub(super) fn is_over(&self) -> bool {
        self.last >= self.end || signals::caught()
    }

    /// The result.
    pub(super) fn count(mut self) -> Count {
        self.count.elapsed = self.last - self.begin;
        self.count
    }
}

/// One figure over all rounds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Summary {
    /// The median.
    pub(super) median: f64,
    /// The smallest.
    pub(super) min: f64,
    /// The largest.
    pub(super) max: f64,
}

impl Summary {
    /// Summarizes the values of the rounds; `None` if there are none.
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
        let mut latencies = Latencies::default();
        assert_eq!(latencies.permille([500]), None);
        for micros in (1..=1000).rev() {
            latencies.add(Duration::from_micros(micros));
        }
        // To three digits.
        let near = |seen: f64, wanted: f64| (seen - wanted).abs() <= wanted / 1000.0;
        let seen = latencies.permille([1, 500, 990, 1000]).unwrap();
        assert!(seen.iter().zip([1.0, 500.0, 990.0, 1000.0]).all(|(s, w)| near(*s, w)), "{seen:?}");
    }

    // The tail covers the whole measurement: late latencies count as early ones do.
    #[test]
    fn late_latencies_count_as_early_ones() {
        let mut latencies = Latencies::default();
        (0..2_000_000).for_each(|_| latencies.add(Duration::from_micros(1)));
        (0..100_000).for_each(|_| latencies.add(Duration::from_millis(1)));
        let [median, tail] = latencies.permille([500, 990]).unwrap();
        assert!(median < 2.0 && tail > 900.0, "{median} {tail}");
    }

    #[test]
    fn threads_have_one_distribution() {
        let part = |micros| {
            let mut latencies = Latencies::default();
            latencies.add(Duration::from_micros(micros));
            Count { latencies, ..Count::default() }
        };
        let all = Count::join([part(1), Count::default(), part(100)]).latencies;
        let [low, high] = all.permille([500, 1000]).unwrap();
        assert!(low < 2.0 && high >= 100.0, "{low} {high}");
    }

    #[test]
    fn a_measurement_without_time_is_one_round() {
        let mut rounds = Rounds::new(Duration::ZERO);
        assert!(rounds.ended());
        assert_eq!(rounds.count().messages, 1);
    }

    #[test]
    fn threads_count_together() {
        let part = |messages, slowest| Count { messages, slowest, ..Count::default() };
        let all = Count::join([part(1, Some(0.9)), part(2, Some(0.7)), part(3, None)]);
        assert_eq!((all.messages, all.slowest), (6, Some(0.7)));
    }
}
