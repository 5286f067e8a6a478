//! Random programs over the table of calls: through the library each call has the result, `errno`, octets and readiness
//! that the kernel gives without it, and the record has the octets of each connection.
//!
//! `WARPLINE_ORACLE_SEED=N` repeats a program; `WARPLINE_STRESS_SECONDS=60` is enough for 10^6 steps.

use std::collections::HashMap;

use warpline_patience::seeds::play;

use crate::program::{Moved, Program};
use crate::support::{
    CARRIER, LOG, carrier, field, has_library, is_inside, run_inside_with, run_without_library,
};

/// Steps of one program.
const STEPS: usize = 300;

/// Seeds that found something, and one for the beginning.
const KEPT: [u64; 3] = [1, 8_614_197_561_462_874_400, 10_503_897_784_506_846_842];

#[test]
fn random_programs_have_the_results_of_the_kernel() {
    if !is_inside() {
        let test = "oracle::random_programs_have_the_results_of_the_kernel";
        // Where both ways are the kernel, what fails is the test.
        run_without_library(test);
        run_inside_with(test, "tcp");
        if carrier() == "ring" {
            run_inside_with(test, "ring");
        }
        return;
    }
    let moved = run_all();
    if has_library() {
        check_record(&moved);
    }
}

fn run_all() -> Vec<Moved> {
    // A write to a peer that is gone.
    // SAFETY: no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let (mut steps, mut programs, mut moved) = (0, 0, Vec::new());
    play("WARPLINE_ORACLE_SEED", &KEPT, |seed| {
        let ran = std::panic::catch_unwind(|| {
            let mut program = Program::new(seed);
            program.run(STEPS);
            program
        });
        let program = ran.unwrap_or_else(|_| panic!("repeat with WARPLINE_ORACLE_SEED={seed}"));
        steps += program.steps;
        programs += 1;
        moved.extend(program.moved);
    });
    println!("{steps} steps in {programs} programs");
    moved
}

/// Each end's octets, by all the lines about it.
fn check_record(moved: &[Moved]) {
    let text = std::fs::read_to_string(std::env::var(LOG).unwrap()).unwrap();
    let mut lines: HashMap<[&str; 2], Vec<[u64; 2]>> = HashMap::new();
    let mut others: HashMap<[&str; 2], bool> = HashMap::new();
    for line in text.lines() {
        let value = |name| field(line, name).unwrap_or_else(|| panic!("no {name}: {line}"));
        let octets = ["sent", "received"].map(|name| value(name).parse().unwrap());
        let names = [value("local"), value("peer")];
        lines.entry(names).or_default().push(octets);
        let seen = ["?", "0+0"].contains(&value("other"));
        *others.entry(names).or_insert(true) &= seen;
    }
    for Moved { names, octets, urgent } in moved {
        let names = names.each_ref().map(String::as_str);
        let found = lines.get(&names).unwrap_or_else(|| panic!("no line for {names:?}"));
        assert!(
            found.contains(octets),
            "{names:?}: {octets:?} were moved, the record has {found:?}"
        );
        assert!(*urgent || others[&names], "{names:?}: octets that no call has moved");
    }
    assert!(!moved.is_empty());
    let by_ring = text.lines().filter(|line| field(line, "carried") == Some("ring")).count();
    println!("{by_ring} of {} ends had octets by the ring", moved.len());
    let rings = std::env::var(CARRIER).as_deref() == Ok("ring");
    assert_eq!(by_ring > 0, rings);
}
