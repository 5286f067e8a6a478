//! `warpline perf scale`: measures many connections, threads and endpoints, idle connections, and fairness
//! between large and small messages. Against a second process, as `perf local`.

mod idle;
mod ping;

use std::io::Write;
use std::time::Duration;

use serde::Serialize;

use self::idle::Idle;
use self::ping::PingTimes;
use super::args::ScaleArgs;
use super::case::{Case, Mode, Op};
use super::local::{Second, has_mpa, suited};
use super::machine::{Machine, Usage, pin};
use super::report::Report;
use super::rounds::{Figures, Plan, Session};
use crate::error::CliResult;
use crate::signals;

/// What is printed.
#[derive(Serialize)]
struct Scale {
    #[serde(flatten)]
    report: Report,
    /// `null`: a signal ended the run before.
    idle: Option<Idle>,
    ping_beside_read: Vec<PingTimes>,
}

/// Runs all measurements and prints the report.
pub(super) fn run(args: &ScaleArgs, out: &mut dyn Write) -> CliResult<()> {
    signals::catch()?;
    let device = args.device.as_deref();
    let mut machine = Machine::here();
    let plan = Plan {
        rounds: args.rounds,
        in_all: false,
        time: args.seconds,
        raw: true,
        line: false,
        hold: false,
    };
    // Threads first: they need all processors, before this process is pinned.
    let mpa = has_mpa(device)?;
    let mut figures = threads(device, plan, mpa)?;
    let second = Second::start(Some(1), device)?;
    machine.pinned = pin(0);
    let usage = Usage::start(Some(second.process()));
    let mut session = Session::connect(second.address(), device)?;
    figures.extend(session.measure(&suited(connections(args.connections), mpa), plan)?);
    let ping_beside_read = match signals::caught() {
        true => Vec::new(),
        false => ping::measure(&mut session, u64::from(args.read) << 20, args.read_size, mpa)?,
    };
    let idle = match signals::caught() {
        true => None,
        false => Some(idle::measure(&mut session, args.idle, mpa)?),
    };
    machine.foreign_cpu = Some(usage.foreign());
    let report = Report::new(&figures, machine);
    let scale = Scale { report, idle, ping_beside_read };
    if args.json {
        let text = serde_json::to_string_pretty(&scale).map_err(std::io::Error::from)?;
        writeln!(out, "{text}")?;
    } else {
        scale.report.print(args.targets, out)?;
        ping::print(&scale.ping_beside_read, mpa, out)?;
        scale.idle.iter().try_for_each(|idle| idle.print(out))?;
    }
    if signals::caught() { Err(signals::ended_early()) } else { Ok(()) }
}

/// Measures one thread and two, in processes that are not pinned.
fn threads(device: Option<&str>, plan: Plan, mpa: bool) -> CliResult<Figures> {
    let second = Second::start(None, device)?;
    let mut session = Session::connect(second.address(), device)?;
    let two =
        Case { conns: 2, wait: true, crc: Some(false), ..Case::new(Op::Write, Mode::Bw, 64 << 10) };
    session.measure(&suited(vec![two, Case { threads: 2, ..two }], mpa), plan)
}

/// Measures the other cases.
fn connections(most: u32) -> Vec<Case> {
    let write = Case { crc: Some(false), ..Case::new(Op::Write, Mode::Bw, 64 << 10) };
    let mut cases = Vec::new();
    for conns in [1, 10, 100, 1000].into_iter().filter(|&conns| conns <= most) {
        cases.push(Case { conns, ..write });
    }
    // All endpoints of a thread share one dispatcher.
    let rate = Case::new(Op::Send, Mode::Rate, 64);
    cases.extend([1, 4, 16, 64].map(|conns| Case { conns, ..rate }));
    let receives = Case { conns: 16, ..Case::new(Op::Send, Mode::Bw, 4 << 10) };
    cases.extend([false, true].map(|srq| Case { srq, ..receives }));
    // Fairness: the slowest connection against the mean.
    cases.push(Case { conns: most.min(100), ..Case::new(Op::Send, Mode::Bw, 4 << 10) });
    cases.push(Case { wait: true, ..Case::new(Op::Write, Mode::Connect, 8) });
    cases
}

/// Time of each figure that is not a case.
const SLICE: Duration = Duration::from_secs(1);
