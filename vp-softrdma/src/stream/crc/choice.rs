//! Choosing the fastest of several kernels by measuring, once per process, at the first use.
//!
//! The features that a processor reports do not show how fast they are: where 512-bit multiplications are
//! executed in two halves, other kernels win. So each candidate sums a few FPDUs' worth of octets, in turns,
//! and its best time counts: disturbances only make a run longer, and affect all alike. That takes some 100 us.
//!
//! Called from any thread; only the result is kept.

use std::time::{Duration, Instant};

use crate::tuning::{CRC_TRIAL_OCTETS, CRC_TRIALS};

/// The octets to sum; not on the stack, since the thread that posts first may have a small one.
pub(super) static OCTETS: [u8; CRC_TRIAL_OCTETS] = [0x5a; CRC_TRIAL_OCTETS];

/// A kernel or copier, and its name.
#[derive(Clone, Copy)]
pub(super) struct Candidate<F> {
    pub(super) name: &'static str,
    pub(super) run: F,
}

impl<F> Candidate<F> {
    pub(super) const fn new(name: &'static str, run: F) -> Self {
        Self { name, run }
    }
}

/// The chosen one.
#[derive(Clone, Copy)]
pub(crate) struct Chosen<F> {
    /// Its name.
    pub(crate) name: &'static str,
    /// The function.
    pub(crate) run: F,
    /// The best run over [`CRC_TRIAL_OCTETS`] octets.
    best: Duration,
}

impl<F> Chosen<F> {
    /// Octets per ns, which is GB/s.
    pub(crate) fn rate(&self) -> f64 {
        CRC_TRIAL_OCTETS as f64 / self.best.as_nanos().max(1) as f64
    }
}

/// The fastest of `candidates`; it must be a twentieth faster to be preferred to an earlier one. `run`
/// makes it work on [`CRC_TRIAL_OCTETS`] octets.
pub(super) fn fastest<F: Copy>(
    candidates: &[Candidate<F>],
    mut run: impl FnMut(F),
) -> Option<Chosen<F>> {
    best_of(candidates, |candidate| {
        let started = Instant::now();
        run(candidate);
        started.elapsed()
    })
}

fn best_of<F: Copy>(
    candidates: &[Candidate<F>],
    mut time: impl FnMut(F) -> Duration,
) -> Option<Chosen<F>> {
    let chosen = |of: &Candidate<F>| Chosen { name: of.name, run: of.run, best: Duration::MAX };
    let mut all: Vec<_> = candidates.iter().map(chosen).collect();
    for _ in 0..CRC_TRIALS {
        for one in &mut all {
            one.best = one.best.min(time(one.run));
        }
    }
    all.into_iter().reduce(|best, next| if next.best * 20 <= best.best * 19 { next } else { best })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn choose(times: &[(u64, u64)]) -> Option<&'static str> {
        const NAMES: [&str; 4] = ["first", "second", "third", "fourth"];
        let names = NAMES.iter().take(times.len()).enumerate();
        let all: Vec<_> = names.map(|(at, name)| Candidate::new(name, at)).collect();
        let mut runs = 0;
        let chosen = best_of(&all, |at| {
            runs += 1;
            // The time of a run, and a disturbance of all runs but one in seven.
            let (own, noise) = times[at];
            Duration::from_nanos(own + if runs % 7 == 0 { 0 } else { noise })
        });
        chosen.map(|chosen| chosen.name)
    }

    #[test]
    fn the_fastest_is_chosen_and_the_first_of_equals() {
        assert_eq!(choose(&[]), None);
        assert_eq!(choose(&[(1000, 0)]), Some("first"));
        assert_eq!(choose(&[(1000, 0), (700, 0), (900, 0)]), Some("second"));
        assert_eq!(choose(&[(1000, 0), (960, 0)]), Some("first"));
        assert_eq!(choose(&[(1000, 0), (950, 0)]), Some("second"));
    }

    // A disturbed run is never shorter.
    #[test]
    fn noise_does_not_decide() {
        assert_eq!(choose(&[(1000, 90_000), (700, 100_000), (2000, 0)]), Some("second"));
        assert_eq!(choose(&[(1000, 900), (1100, 0), (1000, 5)]), Some("first"));
    }

    #[test]
    fn a_rate_is_octets_per_nanosecond() {
        let chosen = Chosen { name: "", run: (), best: Duration::from_nanos(512) };
        assert_eq!(chosen.rate(), 32.0);
    }
}
