//! Random programs over the provider interface, judged by an oracle that knows the contract: depths and slots of queues,
//! order of completions, messages and memory, rights, flushes, counts.
//!
//! `program` makes the choices from a seed, `oracle` knows what may be done and what must come of it, `runner`
//! plays, and posts by `posts`. A seed repeats the choices, not what threads do meanwhile. Everything belongs to one thread; several
//! play on one device at the same time.

mod oracle;
mod posts;
mod program;
mod runner;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Fail;
use crate::rig::Rig;

/// Seeds that are always played: each has found a fault, or covers much.
const KEPT: [u64; 6] = [0x1, 0x2a, 0x5eed, 0xfeed_5eed, 0x0b5e_55ed, 0x0ddb_a115];

/// Programs that are played at the same time.
const THREADS: usize = 3;

/// Which programs are played.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Programs {
    /// How long new ones are begun, after those that are always played.
    pub(crate) time: Duration,
    /// Only the program of this seed.
    pub(crate) seed: Option<u64>,
}

/// The time for random programs in a run of the whole suite.
const SHORT: Duration = Duration::from_secs(2);

impl Default for Programs {
    fn default() -> Self {
        Self { time: SHORT, seed: None }
    }
}

/// Plays programs until one fails or the time is over.
pub(crate) fn play(rig: &Rig) -> Result<(), Fail> {
    let programs = rig.programs();
    if let Some(seed) = programs.seed {
        return one(rig, seed, &Mutex::new(()));
    }
    let (begin, next, failed) = (Instant::now(), AtomicU64::new(0), AtomicBool::new(false));
    let base = new_seed();
    let (connects, result) = (Mutex::new(()), Mutex::new(Ok(())));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !failed.load(Ordering::Acquire) {
                    let number = next.fetch_add(1, Ordering::AcqRel);
                    let kept = KEPT.get(number as usize).copied();
                    if kept.is_none() && begin.elapsed() > programs.time {
                        return;
                    }
                    let seed = kept.unwrap_or_else(|| base.wrapping_add(number));
                    if let Err(why) = one(rig, seed, &connects) {
                        failed.store(true, Ordering::Release);
                        *result.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
                            Err(why);
                    }
                }
            });
        }
    });
    result.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn one(rig: &Rig, seed: u64, connects: &Mutex<()>) -> Result<(), Fail> {
    runner::play(rig, seed, connects)
        .map_err(|Fail(why)| Fail(format!("program {seed:#x} (--seed {seed} repeats it): {why}")))
}

/// Another one in each process.
fn new_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
