//! Runs random programs by seed: the kept seeds, then new ones for `WARPLINE_STRESS_SECONDS`, by default three
//! seconds. No state.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

/// Runs programs one after the other; if the environment's `variable` is a seed, only that one, repeatedly.
pub fn play(variable: &str, kept: &[u64], mut run: impl FnMut(u64)) {
    let begin = Instant::now();
    let length = Duration::from_secs(number("WARPLINE_STRESS_SECONDS").unwrap_or(3));
    let (random, asked) = (RandomState::new(), number(variable));
    match asked {
        Some(seed) => run(seed),
        None => kept.iter().copied().for_each(&mut run),
    }
    for n in 0_u64.. {
        if begin.elapsed() >= length {
            return;
        }
        run(asked.unwrap_or_else(|| random.hash_one(n)));
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    Some(number.unwrap_or_else(|_| panic!("{name}={text} is no number")))
}
