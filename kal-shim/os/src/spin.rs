//! Spinning before a sleep: checks for what a thread waits for, and yields the processor now and then.
//!
//! Sleeping and being woken takes longer than most peers take to respond, so a thread that waits spins
//! for a while first. That is free while the processor is otherwise idle. Beside busy threads it is not:
//! each yield gives one of them the processor for a whole time slice, milliseconds, whereas a sleeping
//! thread is woken at once. So a yield that took long ends the spin, and the next waits do not spin.
//!
//! The peer may need this very processor, so that the first yield should come soon; but what a thread waits for is
//! noticed only after a yield. So yields become rare while no other thread uses them.
//!
//! One `Spinner` belongs to the object that is waited for. Any thread uses it; its state is a hint.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::tuning::{CHECKS_PER_YIELD, LONG_YIELD, MOST_CHECKS, USED_YIELD, WAITS_WITHOUT_SPIN};

/// Whether waits for one object spin.
#[derive(Debug)]
pub struct Spinner {
    /// Waits still to go without a spin.
    without_spin: AtomicU32,
    /// Checks before a yield.
    checks: AtomicU32,
}

impl Default for Spinner {
    fn default() -> Self {
        Self { without_spin: AtomicU32::new(0), checks: AtomicU32::new(CHECKS_PER_YIELD) }
    }
}

/// One spin, between [`Spinner::begin`] and the sleep.
#[derive(Debug)]
pub struct Spin<'a> {
    spinner: &'a Spinner,
    begin: Instant,
    limit: Duration,
    /// Checks until the next yield, and after that.
    left: u32,
    checks: u32,
}

impl Spinner {
    /// Begins a spin of at most `limit`. The caller checks once, and again while [`Spin::again`] returns
    /// true.
    pub fn begin(&self, limit: Duration) -> Spin<'_> {
        let without_spin = self.without_spin.load(Relaxed);
        self.without_spin.store(without_spin.saturating_sub(1), Relaxed);
        let limit = if without_spin == 0 { limit } else { Duration::ZERO };
        let checks = self.checks.load(Relaxed);
        Spin { spinner: self, begin: Instant::now(), limit, left: checks, checks }
    }
}

impl Spin<'_> {
    /// After a check that found nothing: true to check again, false to sleep.
    pub fn again(&mut self) -> bool {
        if self.begin.elapsed() >= self.limit {
            return false;
        }
        self.left -= 1;
        if self.left == 0 {
            let begin = Instant::now();
            std::thread::yield_now();
            self.yielded(begin.elapsed());
        }
        true
    }

    /// A yield took so long.
    fn yielded(&mut self, took: Duration) {
        if took >= LONG_YIELD {
            self.spinner.without_spin.store(WAITS_WITHOUT_SPIN, Relaxed);
            self.limit = Duration::ZERO;
        }
        let used = took >= USED_YIELD;
        self.checks = if used { CHECKS_PER_YIELD } else { (2 * self.checks).min(MOST_CHECKS) };
        self.left = self.checks;
        self.spinner.checks.store(self.checks, Relaxed);
    }
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
        spinner.without_spin.store(2, Relaxed);
        let spins = [(); 3].map(|()| spinner.begin(LONG).again());
        assert_eq!(spins, [false, false, true]);
    }

    #[test]
    fn yields_become_rare_until_a_thread_uses_one() {
        let spinner = Spinner::default();
        let after = |took| {
            spinner.begin(LONG).yielded(took);
            spinner.begin(LONG).left
        };
        assert_eq!(after(Duration::ZERO), 2 * CHECKS_PER_YIELD);
        (0..40).for_each(|_| _ = after(Duration::ZERO));
        assert_eq!(after(Duration::ZERO), MOST_CHECKS);
        assert_eq!(after(USED_YIELD), CHECKS_PER_YIELD);
        assert!(spinner.begin(LONG).again());
        after(LONG_YIELD);
        assert!(!spinner.begin(LONG).again());
    }
}
