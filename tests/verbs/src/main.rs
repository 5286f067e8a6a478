//! Runs unmodified verbs programs on the verbs libraries: `cargo run --release -p verbs-programs -- ROW…`.
//!
//! Each program runs the number of times in `programs.toml`, or `--times N`; `--only TEXT` chooses by name; `--write`
//! writes the results into the table of docs/verbs.md. The exit status is 0 if nothing failed.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use verbs_programs::programs::{self, Program};
use verbs_programs::run::{self, Seen};
use verbs_programs::{Libraries, table};

const USAGE: &str = "verbs-programs [--times N] [--only TEXT] [--write] [ROW…]";

#[derive(Default)]
struct Asked {
    rows: Vec<u32>,
    times: Option<u32>,
    only: String,
    write: bool,
}

impl Asked {
    fn read(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let mut asked = Self::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--times" => asked.times = Some(words.next()?.parse().ok()?),
                "--only" => asked.only = words.next()?,
                "--write" => asked.write = true,
                row => asked.rows.push(row.parse().ok()?),
            }
        }
        Some(asked)
    }

    fn wants(&self, program: &Program) -> bool {
        (self.rows.is_empty() || self.rows.contains(&program.row))
            && program.name.contains(&self.only)
    }
}

fn main() -> ExitCode {
    let Some(asked) = Asked::read(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let libraries = Libraries::build();
    let mut seen = Vec::new();
    for program in programs::all().into_iter().filter(|program| asked.wants(program)) {
        let times = asked.times.unwrap_or(program.times);
        let result = repeat(&libraries, &program, times);
        println!("{} {}: {result}", program.row, program.name);
        seen.push((program, result));
    }
    if asked.write {
        table::write(&seen);
    }
    let failed = seen.iter().any(|(_, result)| result.starts_with(table::FAILED));
    ExitCode::from(u8::from(failed))
}

/// Runs it repeatedly; returns a short result.
fn repeat(libraries: &Libraries, program: &Program, times: u32) -> String {
    let mut worked = 0;
    for _ in 0..times {
        match run::once(libraries, program) {
            Seen::Works => worked += 1,
            Seen::Fails(why) => println!("{}: {why}", program.name),
            Seen::Missing(why) => return format!("not tried: {why}"),
        }
    }
    match worked {
        all if all == times => format!("works, {times} of {times}"),
        some => format!("{}, {some} of {times} worked", table::FAILED),
    }
}
