//! `warpline perf local` and `warpline perf run`: measure against a second process of this program, or against
//! a server. The second process belongs to the first: killed when dropped, and by the kernel when the first
//! dies.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use ual::vp_api::ConnectionModel;

use super::args::{LocalArgs, RunArgs, WhatArgs};
use super::case::{Case, Mode, Op};
use super::machine::{Machine, Usage, pin};
use super::matrix;
use super::meter::Summary;
use super::plot::{self, Chart};
use super::report::{Report, charts};
use super::rounds::{Plan, Session};
use crate::error::{CliError, CliResult, Exit};
use crate::{second, signals};

/// Default time of the whole matrix.
const MATRIX: Duration = Duration::from_secs(80);
/// Default time of one measurement that the command line chose.
const ONE: Duration = Duration::from_secs(1);

/// Measures against a server.
pub(super) fn run(args: &RunArgs, out: &mut dyn Write) -> CliResult<()> {
    signals::catch()?;
    let (cases, plan) = chosen(&args.what)?;
    let machine = Machine::here();
    let mut session = Session::connect(&args.host, args.what.device.as_deref())?;
    let figures = session.measure(&cases, plan)?;
    finish(session, Report::new(&figures, machine), &args.what, out)
}

/// Measures against a second process.
pub(super) fn local(args: &LocalArgs, out: &mut dyn Write) -> CliResult<()> {
    signals::catch()?;
    let (cases, mut plan) = chosen(&args.what)?;
    let mut machine = Machine::here();
    let pinned = !args.unpinned && cases.iter().all(|case| case.threads == 1);
    // Started before this process is pinned, because it inherits the affinity.
    let second = Second::start_at(args.address, pinned.then_some(1), args.what.device.as_deref())?;
    let several = std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1);
    plan.line = pinned && several;
    machine.pinned = pinned && pin(0);
    let usage = Usage::start(Some(second.process()));
    let mut session = Session::connect(second.address(), args.what.device.as_deref())?;
    let figures = session.measure(&cases, plan)?;
    machine.line_us = Summary::of(figures.lines());
    machine.foreign_cpu = Some(usage.foreign());
    finish(session, Report::new(&figures, machine), &args.what, out)
}

/// Shows the report, and keeps the last connections if they are to be held.
fn finish(
    mut session: Session,
    mut report: Report,
    what: &WhatArgs,
    out: &mut dyn Write,
) -> CliResult<()> {
    report.connections = session.held()?;
    show(&report, what, out)?;
    if signals::caught() {
        return Err(signals::ended_early());
    }
    if what.hold {
        out.flush()?;
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    }
    session.release()
}

fn show(report: &Report, what: &WhatArgs, out: &mut dyn Write) -> CliResult<()> {
    if what.json {
        let text = serde_json::to_string_pretty(report).map_err(std::io::Error::from)?;
        writeln!(out, "{text}")?;
    } else {
        report.print(what.targets, out)?;
    }
    match &what.plot {
        Some(file) => write_plot(file, &charts(report)),
        None => Ok(()),
    }
}

/// Writes charts as SVG.
pub(super) fn write_plot(file: &Path, charts: &[Chart]) -> CliResult<()> {
    std::fs::write(file, plot::svg(charts)).map_err(|error| {
        CliError::input(format!("cannot write {}: {error}", file.display())).at("perf --plot")
    })
}

fn chosen(what: &WhatArgs) -> CliResult<(Vec<Case>, Plan)> {
    let is_matrix = what.is_matrix();
    let cases = if is_matrix { matrix::cases(what) } else { what.cases()? };
    let mpa = has_mpa(what.device.as_deref())?;
    let refused = |why| Err(CliError::new(Exit::Usage, why).at("perf"));
    if !mpa && what.crc.is_some() {
        return refused("--crc: the device connects by itself; it has no MPA, and no CRC of MPA's");
    }
    if !mpa && what.local.is_some() {
        return refused("--local: the device connects by itself; it has no local streams");
    }
    if what.plot.is_some() && cases.iter().all(|case| case.mode == Mode::Connect) {
        return refused(
            "--plot: there are charts of bw, lat and rate only; add one of these --mode",
        );
    }
    let cases = suited(cases, mpa);
    if what.hold && !cases.iter().all(|case| matches!(case.mode, Mode::Bw | Mode::Rate)) {
        let why = "--hold: the traffic of a connection is counted for bw and rate only";
        let error = CliError::new(Exit::Usage, why).at("perf");
        return Err(error.hint("add --mode bw, --mode rate, or both"));
    }
    let usual = if is_matrix { MATRIX } else { ONE };
    let in_all = is_matrix && what.seconds.is_none();
    let time = what.seconds.unwrap_or(usual);
    let (rounds, raw, hold) = (what.rounds, !what.no_raw, what.hold);
    Ok((cases, Plan { rounds, in_all, time, raw, line: false, hold }))
}

/// Whether the device's connections begin with MPA, which has a CRC.
pub(super) fn has_mpa(device: Option<&str>) -> CliResult<bool> {
    let ia = super::worker::open(&Case::new(Op::Write, Mode::Bw, 8), device, true)?;
    Ok(ia.attrs().connection_model == ConnectionModel::LlpStream)
}

/// The cases for a device with MPA; for one without, each once, as there is no CRC.
pub(super) fn suited(cases: Vec<Case>, mpa: bool) -> Vec<Case> {
    if mpa {
        return cases;
    }
    let mut once: Vec<Case> = Vec::new();
    for case in cases.into_iter().map(|case| Case { crc: None, ..case }) {
        if !once.contains(&case) {
            once.push(case);
        }
    }
    once
}

/// The second process.
pub(super) struct Second {
    child: Child,
    address: String,
}

impl Second {
    /// Its process id.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Where its control connections go.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Starts this program as a server on loopback, on the `nth` processor.
    pub(super) fn start(nth: Option<usize>, device: Option<&str>) -> CliResult<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST.into(), nth, device)
    }

    pub(super) fn start_at(
        address: IpAddr,
        nth: Option<usize>,
        device: Option<&str>,
    ) -> CliResult<Self> {
        let refuse = |why: String| {
            CliError::new(Exit::Failed, format!("cannot start the second process: {why}"))
                .at("perf local")
        };
        let mut command = second::program()?;
        let address = SocketAddr::new(address, 0).to_string();
        command.args(["perf", "serve", &address, "--follow"]);
        if let Some(nth) = nth {
            command.args(["--cpu", &nth.to_string()]);
        }
        if let Some(device) = device {
            command.args(["--device", device]);
        }
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| second::not_started(&error))?;
        let stdout = child.stdout.take();
        let mut this = Self { child, address: String::new() };
        let mut line = String::new();
        let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut line));
        match (read, line.trim_end().rsplit_once(' ')) {
            (Some(Ok(_)), Some((_, address))) => {
                this.address = address.into();
                Ok(this)
            }
            _ => Err(refuse("it did not print its address".into())),
        }
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_mpa_each_case_is_measured_once() {
        let case = |crc, size| Case { crc, ..Case::new(Op::Write, Mode::Bw, size) };
        let all = [(true, 8), (false, 8), (true, 64)].map(|(crc, size)| case(Some(crc), size));
        assert_eq!(suited(all.to_vec(), true), all);
        let once = suited(all.into(), false);
        assert!(once == [case(None, 8), case(None, 64)]);
        assert_eq!(once[0].to_string(), "RDMA Write, 8 B, poll");
    }
}
