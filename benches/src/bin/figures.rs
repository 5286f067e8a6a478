//! First figures: bandwidth and half round trip against raw TCP in the same run, as ratios.
//!
//! Starts itself a second time for the other side and runs all cases in turn, round after round,
//! over a new connection each. When either process dies the other ends, too.
#![forbid(unsafe_code)]

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use warpline_benches::cases::{CASES, Case};
use warpline_benches::machine::{Usage, facts, pin};
use warpline_benches::peer::{Peer, follow_parent};
use warpline_benches::table::Figures;
use warpline_benches::{Error, Result};

const ROUNDS: u32 = 7;
/// More than this part of the machine used by others: the figures say nothing.
const NOISY: f64 = 0.15;

/// Bandwidth and half round trip of SoftRDMA against raw TCP over loopback, in the same run
#[derive(Parser)]
struct Args {
    /// Time for all of it, in seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Only the rows whose name contains this, such as "Write" or "polling"
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Leave it to the scheduler where the two processes run; else each has a processor of its own
    #[arg(long)]
    unpinned: bool,
    /// Be the second process
    #[arg(long, hide = true)]
    serve: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = if args.serve { serve(args.unpinned) } else { measure(&args) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("figures: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> Result<()> {
    let chosen = |case: &Case| args.only.as_ref().is_none_or(|o| case.to_string().contains(o));
    let cases: Vec<_> = CASES.into_iter().enumerate().filter(|(_, case)| chosen(case)).collect();
    if cases.is_empty() {
        return Err("no row has such a name; without --only the table shows all names".into());
    }
    let slice = Duration::from_secs(args.seconds.into()) / (ROUNDS * cases.len() as u32);
    let facts = facts();
    // Only then pinned: the second process inherits where this one may run.
    let mut peer =
        Peer::start(if args.unpinned { &["--serve", "--unpinned"] } else { &["--serve"] })?;
    let pinned = !args.unpinned && pin(0);
    let usage = Usage::start(peer.pid());
    let mut figures = Figures::default();
    for _ in 0..ROUNDS {
        for &(index, case) in &cases {
            let figure = one(&mut peer, index, case, slice);
            figures.add(case, figure.map_err(|error| format!("{case}: {error}"))?);
        }
    }
    let foreign = usage.foreign();
    println!("{facts}");
    println!(
        "Loopback, two processes, one connection; {ROUNDS} interleaved rounds of {slice:.0?}."
    );
    println!("Placed by {}.", if pinned { "us: a processor each" } else { "the scheduler" });
    println!("Other processes used {:.0} % of the machine.", 100.0 * foreign);
    if foreign > NOISY {
        println!(
            "TOO MUCH: not even the ratios hold. Who sleeps loses its processor to others, who"
        );
        println!("spins does not, and so looks better than raw TCP. Repeat on an idle machine.");
    }
    print!("{figures}");
    Ok(())
}

fn one(peer: &mut Peer, index: usize, case: Case, slice: Duration) -> Result<f64> {
    let address = peer.ask(&index.to_string())?;
    let figure = case.measure(address, slice)?;
    match peer.hear()?.as_str() {
        "done" => Ok(figure),
        other => Err(format!("the second process said {other:?}").into()),
    }
}

/// The second process: serves one case after the other, as told.
fn serve(unpinned: bool) -> Result<()> {
    follow_parent()?;
    if !unpinned {
        // On a machine with one processor both share it.
        pin(1);
    }
    for line in std::io::stdin().lock().lines() {
        let case = line?.parse::<usize>().ok().and_then(|index| CASES.get(index).copied());
        let case = case.ok_or_else(|| Error::from("no such case"))?;
        case.serve(|address| say(&address.to_string()))
            .map_err(|error| format!("second process, {case}: {error}"))?;
        say("done")?;
    }
    Ok(())
}

fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
