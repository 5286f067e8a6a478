//! Model-based test of the C functions under reuse: random programs create endpoints and shared
//! receive queues, connect, post, end, destroy, recreate in the same slots of the table of handles and
//! reconnect, in several threads that share an adapter and its dispatchers, from which several more
//! threads take. They also call with handles that they have freed. A model has the expected completions.
//!
//! Runs the kept seeds, then new ones, for some seconds or for `WARPLINE_STRESS_SECONDS`;
//! `WARPLINE_MODEL_SEED` repeats the choices of one (not their interleaving).

#[path = "../../../tests/all/model/dice.rs"]
mod dice;
mod ledger;
mod program;
mod step;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use self::dice::Dice;
use self::ledger::Ledger;
use self::program::Program;
use super::*;

/// Seeds that found something, and some that reach much: they always run first.
const KEPT: [u64; 3] = [0x1, 0x2a, 0xfeed_5eed];
/// What a thread waits in one go, in microseconds.
const GLANCE: u64 = 200;

/// What the threads share. Handles are numbers, as C could keep them.
struct World {
    ia: u64,
    pz: u64,
    evds: [u64; 2],
    ledger: Ledger,
    /// Programs that run.
    programs: AtomicU32,
    /// A thread has panicked: the others stop.
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
    fn new(side: &Side, memory: &Memory, programs: u32) -> Self {
        let second = dispatcher(side.ia, IT_DTO_EVENT_STREAM, 4096);
        Self {
            ia: side.ia.addr() as u64,
            pz: side.pz.addr() as u64,
            evds: [side.dto, second].map(|evd| evd.addr() as u64),
            ledger: Ledger::new(memory),
            programs: AtomicU32::new(programs),
            failed: AtomicBool::new(false),
        }
    }

    /// Refuses to go on after another thread's failure, which is the one to read.
    fn check(&self) {
        assert!(!self.failed.load(Ordering::Acquire), "another thread failed");
    }

    /// Takes completions, in various ways, until all programs have ended.
    fn take(&self, mut dice: Dice) {
        let _ending = Ending(self, false);
        while self.programs.load(Ordering::Acquire) != 0 {
            let evd = object::handle(self.evds[dice.roll(2) as usize]);
            self.ledger.round(|| take_some(evd, dice.roll(3)));
        }
    }

    /// All programs have ended, and all of their objects are gone.
    fn check_silence(&self) {
        for evd in self.evds {
            self.ledger.round(|| take_some(object::handle(evd), 1));
            let mut event = it_event_t::zeroed();
            let left = c!(it_evd_dequeue(object::handle(evd), &raw mut event));
            assert_eq!(left, IT_ERR_QUEUE_EMPTY, "{:?} is left over", Dto::of(&event));
        }
    }
}

/// Takes completions in one of three ways.
fn take_some(evd: it_evd_handle_t, way: u64) -> Vec<Dto> {
    let mut events = [it_event_t::zeroed(); 5];
    let mut taken = 1;
    let status = match way {
        0 => c!(it_evd_dequeue(evd, &raw mut events[0])),
        1 => c!(it_evd_dequeue_n(evd, 5, events.as_mut_ptr(), &raw mut taken)),
        _ => c!(it_evd_wait(evd, GLANCE, &raw mut events[0], null_mut())),
    };
    match status {
        IT_SUCCESS => events[..taken as usize].iter().map(Dto::of).collect(),
        IT_ERR_QUEUE_EMPTY | IT_ERR_TIMEOUT_EXPIRED => Vec::new(),
        _ => panic!("{status}: {}", last()),
    }
}

/// Runs one world; returns how many requests it posted.
fn run(seed: u64) -> u64 {
    println!("WARPLINE_MODEL_SEED={seed:#x}");
    let mut dice = Dice::new(seed);
    let (programs, takers) = (2 + dice.roll(2) as u32, 1 + dice.roll(3));
    let side = Side::new();
    let memory = side.memory(ledger::CELLS * ledger::MESSAGE, IT_PRIV_ALL);
    let world = World::new(&side, &memory, programs);
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
