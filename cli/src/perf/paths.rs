//! `warpline perf local --paths`: a device that connects by path and by its own connection manager, in turn with
//! SoftRDMA over TCP with its CRC. Each device has a second process, which sleeps while the other is measured.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;

use super::args::{LocalArgs, WhatArgs};
use super::case::{Case, Mode, Op};
use super::local::{Second, has_mpa};
use super::machine::{Machine, pin};
use super::meter::Summary;
use super::report::number;
use super::rounds::{Plan, Session};
use crate::error::{CliError, CliResult, Exit};
use crate::output::table;
use crate::signals;

/// The device to compare with.
const SOFT: &str = "vp_softrdma";

/// Default time of one measurement.
const TIME: Duration = Duration::from_millis(500);

/// What is printed.
#[derive(Serialize)]
struct Report {
    results: Vec<Outcome>,
    machine: Machine,
}

/// Medians of one case. Names of fields are a contract.
#[derive(Serialize)]
struct Outcome {
    op: Op,
    mode: Mode,
    size: u32,
    depth: u32,
    unit: &'static str,
    by_path: f64,
    by_manager: f64,
    softrdma: f64,
    ratio_by_path: f64,
    ratio_by_manager: f64,
    #[serde(skip)]
    shape: String,
}

/// The values of one case: by path, by the connection manager, and of SoftRDMA over TCP.
struct Row {
    case: Case,
    ways: [(Case, Vec<f64>); 3],
}

/// Measures all cases in turn.
pub(super) fn run(args: &LocalArgs, out: &mut dyn Write) -> CliResult<()> {
    signals::catch()?;
    let what = &args.what;
    let device = what.device.as_deref();
    let mut rows: Vec<_> = cases(what)?.into_iter().map(Row::new).collect();
    if has_mpa(device)? {
        let why = "--paths: the device makes its connections over TCP, and none by path";
        return Err(CliError::new(Exit::Usage, why).at("perf").hint("add --device vp_roce"));
    }
    let mut machine = Machine::here();
    // Started before this process is pinned, because they inherit the affinity.
    let start = |device| Second::start_at(args.address, (!args.unpinned).then_some(1), device);
    let (own, soft) = (start(device)?, start(Some(SOFT))?);
    machine.pinned = !args.unpinned && pin(0);
    let mut own = (Session::connect(own.address(), device)?, own);
    let mut soft = (Session::connect(soft.address(), Some(SOFT))?, soft);
    let time = what.seconds.unwrap_or(TIME);
    for _ in 0..what.rounds {
        for (case, values) in rows.iter_mut().flat_map(|row| &mut row.ways) {
            let session = if case.crc.is_none() { &mut own.0 } else { &mut soft.0 };
            values.extend(value(session, case, time)?);
        }
    }
    let report = Report { results: rows.iter().filter_map(Outcome::new).collect(), machine };
    if what.json {
        let text = serde_json::to_string_pretty(&report).map_err(std::io::Error::from)?;
        writeln!(out, "{text}")?;
    } else {
        report.print(out)?;
    }
    if signals::caught() { Err(signals::ended_early()) } else { Ok(()) }
}

/// Those that the command line names, or those for which `docs/roce.md` has aims.
fn cases(what: &WhatArgs) -> CliResult<Vec<Case>> {
    let chosen = if what.is_matrix() {
        let bw = |op| [4 << 10, 64 << 10, 1 << 20].map(|size| Case::new(op, Mode::Bw, size));
        let mut all: Vec<_> = [Op::Write, Op::Send, Op::Read].into_iter().flat_map(bw).collect();
        all.push(Case::new(Op::Send, Mode::Rate, 8));
        all.extend([Op::Send, Op::Write, Op::Read].map(|op| Case::new(op, Mode::Lat, 8)));
        all
    } else {
        WhatArgs { poll: true, crc: Some(crate::values::Switch::On), ..what.clone() }.cases()?
    };
    let checked = |case: Case| match (Case { by_path: true, ..case }).check() {
        Ok(()) => Ok(case),
        Err(why) => Err(CliError::new(Exit::Usage, why).at("perf")),
    };
    chosen.into_iter().map(checked).collect()
}

/// One measurement; `None`: a signal ended it.
fn value(session: &mut Session, case: &Case, time: Duration) -> CliResult<Option<f64>> {
    let plan = Plan { rounds: 1, in_all: false, time, raw: false, line: false, hold: false };
    let figures = session.measure(std::slice::from_ref(case), plan)?;
    let samples = figures.rows.iter().flat_map(|row| &row.samples);
    Ok(samples.map(|sample| sample.value(case)).next())
}

impl Row {
    fn new(case: Case) -> Self {
        let own = Case { crc: None, local: None, ..case };
        let soft = Case { local: Some(false), ..case };
        let ways = [Case { by_path: true, ..own }, own, soft].map(|case| (case, Vec::new()));
        Self { case: own, ways }
    }
}

impl Outcome {
    fn new(row: &Row) -> Option<Self> {
        let Case { op, mode, size, depth, .. } = row.case;
        let median = |way: usize| Some(Summary::of(row.ways[way].1.iter().copied())?.median);
        let [by_path, by_manager, softrdma] = [median(0)?, median(1)?, median(2)?];
        Some(Self {
            op,
            mode,
            size,
            depth,
            unit: mode.unit(),
            by_path,
            by_manager,
            softrdma,
            ratio_by_path: by_path / softrdma,
            ratio_by_manager: by_manager / softrdma,
            shape: row.case.to_string(),
        })
    }
}

impl Report {
    fn print(&self, out: &mut dyn Write) -> CliResult<()> {
        self.machine.print(out)?;
        writeln!(out, "\nBy path, by the connection manager, and SoftRDMA over TCP with CRC;")?;
        writeln!(out, "behind each its ratio to SoftRDMA\n")?;
        let header = ["", "by path", "", "manager", "", "SoftRDMA", ""].map(String::from).to_vec();
        let line = |one: &Outcome| {
            vec![
                one.shape.clone(),
                number(one.by_path),
                number(one.ratio_by_path),
                number(one.by_manager),
                number(one.ratio_by_manager),
                number(one.softrdma),
                one.unit.into(),
            ]
        };
        let rows: Vec<_> = std::iter::once(header).chain(self.results.iter().map(line)).collect();
        Ok(write!(out, "{}", table(&rows))?)
    }
}
