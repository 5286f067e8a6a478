//! Monotonic time. No state.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock: never goes back, stops while the machine is suspended.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Both parts of a monotonic time are never negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_goes_back() {
        let readings: Vec<u64> = (0..1000).map(|_| now_ns()).collect();
        assert!(readings.is_sorted());
    }
}
