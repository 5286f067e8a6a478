//! Spinning before a sleep: checks for what a thread waits for, and yields the processor now and then.
//!
//! Sleeping and being woken takes longer than most peers take to respond, so a thread that waits spins
//! for a while first. That is free while the processor is otherwise idle. Beside busy threads it is not:
//! each yield gives one of them the processor for a whole time slice, milliseconds, whereas a sleeping
//! thread is woken at once. So a yield that took long ends the spin, and the next waits do not spin.
//!
//! One `Spinner` belongs to the object that is waited for. Any thread uses it; its state is a hint.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::tuning::{CHECKS_PER_YIELD, LONG_YIELD, WAITS_WITHOUT_SPIN};

/// Whether waits for one object spin.
#[derive(Default, Debug)]
pub struct Spinner {
    /// Waits still to go without a spin.
    without_spin: AtomicU32,
}

/// One spin, between [`Spinner::begin`] and the sleep.
#[derive(Debug)]
pub struct Spin<'a> {
    spinner: &'a Spinner,
    begin: Instant,
    limit: Duration,
    checks: u32,
}

impl Spinner {
    /// Begins a spin of at most `limit`. The caller checks once, and again while [`Spin::again`] returns
    /// true.
    pub fn begin(&self, limit: Duration) -> Spin<'_> {
        let without_spin = self.without_spin.load(Ordering::Relaxed);
        self.without_spin.store(without_spin.saturating_sub(1), Ordering::Relaxed);
        let limit = if without_spin == 0 { limit } else { Duration::ZERO };
        Spin { spinner: self, begin: Instant::now(), limit, checks: 0 }
    }
}

impl Spin<'_> {
    /// After a check that found nothing: true to check again, false to sleep.
    pub fn again(&mut self) -> bool {
        if self.begin.elapsed() >= self.limit {
            return false;
        }
        self.checks += 1;
        if self.checks.is_multiple_of(CHECKS_PER_YIELD) && yields_long() {
            self.spinner.without_spin.store(WAITS_WITHOUT_SPIN, Ordering::Relaxed);
            self.limit = Duration::ZERO;
        }
        true
    }
}

/// Yields the processor; returns true if other threads kept it long.
fn yields_long() -> bool {
    let begin = Instant::now();
    std::thread::yield_now();
    begin.elapsed() >= LONG_YIELD
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn spins_for_the_configured_time() {
        let spinner = Spinner::default();
        assert!(!spinner.begin(Duration::ZERO).again());
        assert!(spinner.begin(LONG).again());
    }

    #[test]
    fn waits_after_a_long_yield_do_not_spin() {
        let spinner = Spinner::default();
        spinner.without_spin.store(2, Ordering::Relaxed);
        let spins = [(); 3].map(|()| spinner.begin(LONG).again());
        assert_eq!(spins, [false, false, true]);
    }
}
