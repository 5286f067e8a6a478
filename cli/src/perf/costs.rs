//! `warpline perf costs`: measures the costs of RDMA besides data transfer: registration by size, with and
//! without pinning, compared with copying and with reuse; first touch; objects; connections. One thread of this
//! process measures; a second process is the peer.

mod memory;
mod objects;
mod transfer;

use std::io::Write;
use std::time::{Duration, Instant};

use serde::Serialize;

use self::memory::Memory;
use self::objects::Object;
use self::transfer::Transfer;
use super::args::CostsArgs;
use super::case::octets;
use super::local::{Second, has_mpa, write_plot};
use super::machine::{Machine, Usage, pin};
use super::meter::is_over;
use super::plot::{Chart, Series};
use super::report::number;
use super::rounds::Session;
use crate::error::CliResult;
use crate::output::table;
use crate::signals;

/// Sizes of the memory that is registered and moved.
const SIZES: [u32; 8] =
    [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// Least number of runs for a figure.
const FEWEST: u32 = 5;

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    memory: Vec<Memory>,
    transfers: Vec<Transfer>,
    objects: Vec<Object>,
    machine: Machine,
}

/// Runs all measurements and prints the report.
pub(super) fn run(args: &CostsArgs, out: &mut dyn Write) -> CliResult<()> {
    signals::catch()?;
    let mut machine = Machine::here();
    let second = Second::start(Some(1), args.device.as_deref())?;
    machine.pinned = pin(0);
    let usage = Usage::start(Some(second.process()));
    let mut session = Session::connect(second.address(), args.device.as_deref())?;
    let mpa = has_mpa(args.device.as_deref())?;
    let memory = memory::measure(args)?;
    let transfers = transfer::measure(args, &mut session, mpa)?;
    let objects = objects::measure(args, &mut session, mpa)?;
    machine.foreign_cpu = Some(usage.foreign());
    let report = Report { memory, transfers, objects, machine };
    report.print(args.json, mpa, out)?;
    if signals::caught() {
        return Err(signals::ended_early());
    }
    match &args.plot {
        Some(file) => write_plot(file, &report.charts()),
        None => Ok(()),
    }
}

/// The least time that `once` returns, over runs during `slice`; in microseconds. The least, because other
/// processes only add to it. After a signal one run.
fn least_us(slice: Duration, mut once: impl FnMut() -> CliResult<Duration>) -> CliResult<f64> {
    let begin = Instant::now();
    let (mut least, mut runs) = (Duration::MAX, 0);
    while runs == 0 || (runs < FEWEST && !signals::caught()) || !is_over(begin, slice) {
        least = least.min(once()?);
        runs += 1;
    }
    Ok(least.as_nanos() as f64 / 1e3)
}

/// The sizes to measure, until a signal.
fn sizes() -> impl Iterator<Item = u32> {
    SIZES.into_iter().take_while(|_| !signals::caught())
}

/// How long it takes.
fn timed<T>(work: impl FnOnce() -> itapi::Result<T>) -> CliResult<(Duration, T)> {
    let begin = Instant::now();
    let result = work()?;
    Ok((begin.elapsed(), result))
}

impl Report {
    fn print(&self, json: bool, mpa: bool, out: &mut dyn Write) -> CliResult<()> {
        if json {
            let text = serde_json::to_string_pretty(self).map_err(std::io::Error::from)?;
            return Ok(writeln!(out, "{text}")?);
        }
        self.machine.print(out)?;
        writeln!(out, "\nMemory; microseconds, the least of many runs")?;
        let rows = self.memory.iter().map(Memory::cells);
        lines(memory::HEADER, rows, out)?;
        let crc = if mpa { ", CRC on" } else { "" };
        writeln!(out, "\nRDMA Writes one at a time{crc}; microseconds until the peer has replied")?;
        let rows = self.transfers.iter().map(Transfer::cells);
        lines(transfer::HEADER, rows, out)?;
        let cheaper = self.transfers.iter().find(|one| one.register_us < one.copy_us);
        match cheaper {
            Some(one) => writeln!(
                out,
                "Registering for each transfer costs less than copying from {} on.",
                octets(one.size)
            )?,
            // A signal came before.
            None if self.transfers.is_empty() => {}
            None => writeln!(out, "Copying costs less at each of these sizes.")?,
        }
        writeln!(out, "\nObjects and connections; microseconds")?;
        lines(objects::HEADER, self.objects.iter().map(Object::cells), out)
    }

    fn charts(&self) -> Vec<Chart> {
        let memory = |name: &str, dashed, value: fn(&Memory) -> Option<f64>| Series {
            name: name.into(),
            dashed,
            points: points(&self.memory, |one| Some((one.size, value(one)?))),
        };
        let moved = |name: &str, value: fn(&Transfer) -> f64| Series {
            name: name.into(),
            dashed: false,
            points: points(&self.transfers, |one| Some((one.size, value(one)))),
        };
        vec![
            Chart {
                title: "Registering memory against copying it".into(),
                unit: "us".into(),
                log: true,
                series: vec![
                    memory("register, deregister", false, |one| Some(one.register_us)),
                    memory("the same, pinned", false, |one| one.pinned_us),
                    memory("copy", true, |one| Some(one.copy_us)),
                    memory("first touch", true, |one| Some(one.first_touch_us)),
                ],
            },
            Chart {
                title: "RDMA Write of application memory".into(),
                unit: "us".into(),
                log: true,
                series: vec![
                    moved("register, write, deregister", |one| one.register_us),
                    moved("copy into a pool, write", |one| one.copy_us),
                    moved("registered once, write", |one| one.reuse_us),
                ],
            },
        ]
    }
}

fn points<T>(rows: &[T], point: impl Fn(&T) -> Option<(u32, f64)>) -> Vec<(f64, f64)> {
    rows.iter().filter_map(|row| point(row).map(|(size, value)| (size.into(), value))).collect()
}

fn lines(
    header: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
    out: &mut dyn Write,
) -> CliResult<()> {
    let header = header.iter().map(ToString::to_string).collect();
    let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
    Ok(write!(out, "{}", table(&rows))?)
}

/// A value, or a dash.
fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), number)
}
