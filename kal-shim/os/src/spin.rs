//! Spinning before a sleep: looks for what a thread waits for, and yields the processor now and then.
//!
//! To sleep and to be woken takes longer than most peers take, so a thread that waits looks for a while
//! first. That costs nobody anything while the processor has nothing else to do. Beside busy threads it
//! does: each yield gives one of them the processor for a whole slice, milliseconds, where a sleeping
//! thread is woken at once. So a yield that took long ends the spin, and the next waits do not spin.
//!
//! One `Spinner` belongs to what is waited for. Any thread uses it; what it remembers is a hint.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Looks for each yield: the peer may need this very processor. Mostly it does not, and a yield costs
/// as much as a look.
const LOOKS_PER_YIELD: u32 = 8;
/// A yield that takes so long gave the processor to a thread that computes.
const LONG_YIELD: Duration = Duration::from_micros(100);
/// Waits that do not spin after one.
const WAITS_WITHOUT_SPIN: u32 = 128;

/// See the module.
#[derive(Default, Debug)]
pub struct Spinner {
    /// Waits that are still to go without a spin.
    resting: AtomicU32,
}

impl Spinner {
    /// Calls `look` at least once and for at most `spin`, until it returns true. Returns what its last call
    /// returned: false means that the caller is to sleep.
    pub fn spin(&self, spin: Duration, mut look: impl FnMut() -> bool) -> bool {
        let begin = Instant::now();
        let spin = if self.rests() { Duration::ZERO } else { spin };
        for turn in 1_u32.. {
            if look() {
                return true;
            }
            if begin.elapsed() >= spin {
                break;
            }
            if turn.is_multiple_of(LOOKS_PER_YIELD) && yields_long() {
                self.resting.store(WAITS_WITHOUT_SPIN, Ordering::Relaxed);
                return look();
            }
        }
        false
    }

    fn rests(&self) -> bool {
        let left = self.resting.load(Ordering::Relaxed);
        self.resting.store(left.saturating_sub(1), Ordering::Relaxed);
        left != 0
    }
}

/// Yields the processor; true if other threads kept it long.
fn yields_long() -> bool {
    let begin = Instant::now();
    std::thread::yield_now();
    begin.elapsed() >= LONG_YIELD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_at_least_once_and_says_what_it_found() {
        let spinner = Spinner::default();
        assert!(spinner.spin(Duration::ZERO, || true));
        assert!(!spinner.spin(Duration::ZERO, || false));
    }

    #[test]
    fn looks_until_it_is_true() {
        let mut looks = 0;
        let found = Spinner::default().spin(Duration::from_secs(3600), || {
            looks += 1;
            looks == 3
        });
        assert!(found);
        assert_eq!(looks, 3);
    }

    #[test]
    fn waits_after_a_long_yield_look_once() {
        let spinner = Spinner::default();
        spinner.resting.store(2, Ordering::Relaxed);
        let looks = || {
            let mut looks = 0;
            spinner.spin(Duration::from_secs(3600), || {
                looks += 1;
                looks == 2
            });
            looks
        };
        assert_eq!([looks(), looks(), looks()], [1, 1, 2]);
    }
}
