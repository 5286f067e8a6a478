//! Model-based test of reuse: random programs create endpoints and shared receive queues, connect, post,
//! disconnect, destroy, recreate in the same slots and reconnect. Several threads run them on one adapter and
//! its dispatchers; more threads take the completions. A model knows which completions must come.
//!
//! Runs the kept seeds, then new ones, for some seconds or for `WARPLINE_STRESS_SECONDS`;
//! `WARPLINE_MODEL_SEED` repeats the choices of one (not their interleaving).

mod dice;
mod ledger;
mod program;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use itapi::{Evd, Ia, Pz};

use self::dice::Dice;
use self::ledger::Ledger;
use self::program::Program;
use crate::pair::open;

/// Seeds that found defects, and some with wide coverage; they always run first.
const KEPT: [u64; 4] = [0x1, 0x2a, 0xfeed_5eed, 0x2d08_22da_7bca_b66b];

/// State that the threads share.
struct World {
    ia: Ia,
    pz: Pz,
    evds: [Evd; 2],
    ledger: Ledger,
    /// Programs that run.
    programs: AtomicU32,
    /// A thread has panicked: all others stop.
    failed: AtomicBool,
}

/// Tells the others that a thread has ended, and how.
struct Ending<'a>(&'a World, bool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, Ordering::Release);
        }
        if self.1 {
            self.0.programs.fetch_sub(1, Ordering::Release);
        }
    }
}

impl World {
    fn new(programs: u32) -> Self {
        let ia = open();
        let pz = ia.pz().unwrap();
        let evds = [ia.evd(program::EVD_DEPTH).unwrap(), ia.evd(program::EVD_DEPTH).unwrap()];
        let (programs, failed) = (AtomicU32::new(programs), AtomicBool::new(false));
        Self { ia, pz, evds, ledger: Ledger::default(), programs, failed }
    }

    /// Takes completions by all calls in turn, until all programs have ended.
    fn take(&self, mut dice: Dice) {
        let _ending = Ending(self, false);
        let mut batch = Vec::new();
        while self.programs.load(Ordering::Acquire) != 0 {
            let evd = &self.evds[dice.roll(2) as usize];
            self.ledger.round(|| {
                match dice.roll(3) {
                    0 => drop(evd.poll_into(&mut batch).unwrap()),
                    1 => batch.extend(evd.poll().unwrap()),
                    _ => batch.extend(evd.wait(Duration::from_micros(200)).unwrap()),
                }
                std::mem::take(&mut batch)
            });
        }
    }

    /// All programs have ended, and all of their objects are destroyed.
    fn check_silence(&self) {
        for evd in &self.evds {
            self.ledger.round(|| std::iter::from_fn(|| evd.poll().unwrap()).collect());
        }
    }
}

/// Runs one world; returns how many requests it posted.
fn run(seed: u64) -> u64 {
    println!("WARPLINE_MODEL_SEED={seed:#x}");
    let mut dice = Dice::new(seed);
    let (programs, takers) = (2 + dice.roll(2) as u32, 1 + dice.roll(3));
    let world = World::new(programs);
    std::thread::scope(|scope| {
        for _ in 0..takers {
            let dice = dice.split();
            scope.spawn(|| world.take(dice));
        }
        for _ in 0..programs {
            let dice = dice.split();
            scope.spawn(|| {
                let _ending = Ending(&world, true);
                Program::new(&world, dice).run();
            });
        }
    });
    world.check_silence();
    world.ledger.posted()
}

#[test]
fn random_programs_that_reuse_objects_lose_no_completion() {
    let (mut runs, mut posted) = (0, 0);
    warpline_patience::seeds::play("WARPLINE_MODEL_SEED", &KEPT, |seed| {
        posted += run(seed);
        runs += 1;
    });
    println!("{runs} runs, {posted} requests");
}
