//! Monotonic time. No state.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock: never goes back, stops while the machine is suspended.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Both parts of a monotonic time are never negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// About a century: longer than any process runs.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The instant `time` from now. Any duration is allowed, [`Duration::MAX`] for no end: a sum that no
/// clock can represent becomes one that never comes.
pub fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time.min(FAR)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sum_is_too_long() {
        let far = after(Duration::MAX);
        assert!(far > after(Duration::from_secs(1 << 30)));
        assert_eq!(far.max(after(FAR)).duration_since(far).as_secs(), 0);
    }

    #[test]
    fn never_goes_back() {
        let readings: Vec<u64> = (0..1000).map(|_| now_ns()).collect();
        assert!(readings.is_sorted());
    }
}
