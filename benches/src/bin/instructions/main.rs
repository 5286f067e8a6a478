//! Counts instructions per step of the data path by valgrind, which gives the same figures on a loaded machine.
//!
//! `cargo run --release -p warpline-benches --bin instructions` runs itself under callgrind once for each step
//! and prints what it counts beside the committed figures (`benches/instructions.txt`). Exit code 1: a step
//! costs 5 % more than committed; 77, with the reason in the last line: nothing to compare with. `--update`
//! replaces the committed figures. Children end with this process.
//!
//! `--publish` counts each step without a record in a state page and with one, and fails if a message costs more
//! than [`MOST`] instructions more.
//!
//! `--time` also measures the nanoseconds of each step without valgrind, best on an idle processor: the median
//! of the medians of [`PROCESSES`] processes.

mod channels;
mod counts;
mod end;
mod steps;
mod verbs;

use std::process::{Command, ExitCode};

use warpline_benches::Result;

use counts::InstructionCounts;

/// Processes in which a step is timed, and at most counted.
const PROCESSES: usize = 9;
/// Instructions per message that writing the record may cost.
const MOST: f64 = 2.0;
/// Exit code if nothing can be compared.
const SKIP: u8 = 77;

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    let result = match argument.as_deref() {
        None => compare(false),
        Some("--update") => compare(true),
        Some("--publish") => publishing(),
        Some("--time") => match std::env::args().nth(2) {
            None => time_all(),
            Some(step) => steps::time(&step).map(|ns| {
                println!("{ns}");
                ExitCode::SUCCESS
            }),
        },
        Some(step) => steps::run(step).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("instructions: {error}");
        ExitCode::FAILURE
    })
}

fn compare(update: bool) -> Result<ExitCode> {
    let committed = InstructionCounts::committed()?;
    let Some(tools) = tools() else {
        println!("valgrind is not installed");
        return Ok(ExitCode::from(SKIP));
    };
    let mut counted = InstructionCounts::new(tools);
    // Figures to commit are the cheapest of all processes.
    let enough = if update { &InstructionCounts::default() } else { &committed };
    for step in steps::STEPS {
        counted.push(step.name, least(step, enough)?);
    }
    counted.print_beside(&committed);
    if update {
        counted.commit()?;
    } else if counted.tools != committed.tools {
        println!("the committed figures are of {}, this is {}", committed.tools, counted.tools);
        return Ok(ExitCode::from(SKIP));
    }
    let worse = counted.worse_than(&committed);
    if update || worse.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("more than 5 % worse: {}", worse.join(", "));
    Ok(ExitCode::FAILURE)
}

/// The cheapest of several processes, in tenths, or the first that is not worse than committed. In some processes a step
/// takes more instructions, because threads meet otherwise: completions come in two polls instead of one. What the
/// code itself costs, every process counts.
fn least(step: &steps::Step, committed: &InstructionCounts) -> Result<u64> {
    let mut least = count(step, false)?;
    for _ in 1..PROCESSES {
        if !committed.is_worse(step.name, least) {
            break;
        }
        least = least.min(count(step, false)?);
    }
    Ok(least)
}

/// Prints what each step of a connection costs without a record and with one.
fn publishing() -> Result<ExitCode> {
    if tools().is_none() {
        println!("valgrind is not installed");
        return Ok(ExitCode::from(SKIP));
    }
    println!("{:<34} {:>10} {:>10} {:>8}", "instructions per", "without", "published", "more");
    let mut within = true;
    for step in steps::STEPS.iter().filter(|step| step.is_published) {
        let [without, with] = [false, true].map(|publishes| count(step, publishes));
        let (without, with) = (without? as f64 / 10.0, with? as f64 / 10.0);
        println!("{:<34} {without:>10.1} {with:>10.1} {:>8.1}", step.name, with - without);
        within &= with - without <= MOST;
    }
    Ok(if within { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints instructions and nanoseconds of every step.
fn time_all() -> Result<ExitCode> {
    println!("{:<34} {:>12} {:>12} {:>12}", "", "instructions", "nanoseconds", "per ns");
    for step in steps::STEPS {
        let (instructions, ns) = (count(step, false)? as f64 / 10.0, time(step)?);
        println!("{:<34} {instructions:>12.1} {ns:>12.1} {:>12.1}", step.name, instructions / ns);
    }
    Ok(ExitCode::SUCCESS)
}

/// Nanoseconds of one execution of a step.
fn time(step: &steps::Step) -> Result<f64> {
    let mut all = Vec::new();
    for _ in 0..PROCESSES {
        let output = Command::new(std::env::current_exe()?)
            .args(["--time", step.name])
            .env("WARPLINE_LOCAL", "off")
            .output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        all.push(printed.trim().parse::<f64>().map_err(|_| format!("{}: {printed}", step.name))?);
    }
    all.sort_by(f64::total_cmp);
    Ok(all[PROCESSES / 2])
}

/// What instruction counts depend on besides the code; `None` without valgrind.
fn tools() -> Option<String> {
    let valgrind = first_line("valgrind", &["--version"])?;
    let rustc = first_line("rustc", &["--version"])?;
    let libc = first_line("getconf", &["GNU_LIBC_VERSION"])?;
    Some(format!("{rustc}, {libc}, {valgrind}, {}", std::env::consts::ARCH))
}

fn first_line(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(str::to_owned)
}

/// Instructions of one execution of a step, in tenths.
fn count(step: &steps::Step, publishes: bool) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--fair-sched=yes"])
        .arg(format!("--toggle-collect=*{}*", steps::MEASURED))
        // Both ends are in one process: the steps are of streams over TCP.
        .env("WARPLINE_LOCAL", "off")
        .arg(std::env::current_exe()?)
        .arg(step.name)
        .env(end::PUBLISHES, if publishes { "1" } else { "0" })
        .output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    let collected = printed.lines().find_map(|line| line.split_once("Collected : "));
    match collected.map(|(_, count)| count.trim().parse::<u64>()) {
        Some(Ok(count)) if output.status.success() && count > 0 => {
            Ok((10 * count).div_ceil(steps::TIMES))
        }
        _ => Err(format!("{}: {}: {printed}", step.name, output.status).into()),
    }
}
