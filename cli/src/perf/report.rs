//! Results: from samples to medians and ratios, as JSON and as a table. No state.

use std::io::Write;

use serde::Serialize;

use super::case::{Case, Mode, Op, Server};
use super::machine::Machine;
use super::meter::Summary;
use super::plot::{Chart, Series};
use super::rounds::{Figures, Row, Sample};
use super::targets::{self, Verdict};
use crate::error::CliResult;
use crate::output::table;

/// What is printed.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) results: Vec<Outcome>,
    targets: Vec<Verdict>,
    machine: Machine,
}

/// Of one case. Names of fields are a contract.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) op: Op,
    pub(super) mode: Mode,
    pub(super) size: u32,
    pub(super) depth: u32,
    pub(super) conns: u32,
    pub(super) threads: u32,
    pub(super) list: u32,
    pub(super) srq: bool,
    pub(super) crc: bool,
    pub(super) wait: bool,
    pub(super) spin_us: Option<u32>,
    pub(super) server: Option<Server>,
    pub(super) value: f64,
    pub(super) unit: &'static str,
    pub(super) min: f64,
    pub(super) max: f64,
    rounds: usize,
    pub(super) raw_max: Option<f64>,
    pub(super) ratio_max: Option<f64>,
    pub(super) raw_same: Option<f64>,
    pub(super) ratio_same: Option<f64>,
    pub(super) cpu_us_per_msg_local: f64,
    pub(super) cpu_us_per_msg_remote: f64,
    cpu_us_per_gb_local: f64,
    cpu_us_per_gb_remote: f64,
    /// Both sides.
    raw_same_cpu_us_per_msg: Option<f64>,
    /// Both sides.
    pub(super) raw_max_cpu_us_per_msg: Option<f64>,
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    p999_us: Option<f64>,
    /// The slowest connection as a part of the mean.
    pub(super) slowest_over_mean: Option<f64>,
    #[serde(skip)]
    pub(super) case: Case,
}

impl Report {
    pub(super) fn new(figures: &Figures, machine: Machine) -> Self {
        let results: Vec<_> =
            figures.rows.iter().filter_map(|row| Outcome::new(row, figures)).collect();
        let targets = targets::verdicts(&results);
        Self { results, targets, machine }
    }

    pub(super) fn print(&self, json: bool, out: &mut dyn Write) -> CliResult<()> {
        if json {
            let text = serde_json::to_string_pretty(self).map_err(std::io::Error::from)?;
            return Ok(writeln!(out, "{text}")?);
        }
        self.machine.print(out)?;
        let sections = [
            (Mode::Bw, "Bandwidth; more is better"),
            (Mode::Lat, "Half a round trip, of reads and fetch-add a whole one; less is better"),
            (Mode::Rate, "Message rate; more is better"),
            (Mode::Connect, "Connect, RDMA Write, close; more is better"),
        ];
        for (mode, title) in sections {
            let rows: Vec<_> = self.results.iter().filter(|one| one.mode == mode).collect();
            if let Some(first) = rows.first() {
                writeln!(out, "\n{title}; {}", first.unit)?;
                let lines = rows.iter().map(|one| one.cells());
                let lines: Vec<_> = std::iter::once(header()).chain(lines).collect();
                write!(out, "{}", table(&lines))?;
            }
        }
        targets::print(&self.targets, out)
    }
}

fn header() -> Vec<String> {
    let names = [
        "", "median", "min", "max", "/same", "/max", "us/msg", "remote", "p50 us", "p99 us",
        "p99.9", "fair",
    ];
    names.map(Into::into).into()
}

impl Outcome {
    fn new(row: &Row, figures: &Figures) -> Option<Self> {
        let case = row.case;
        let values =
            |samples: &[Sample]| Summary::of(samples.iter().map(|sample| sample.value(&case)));
        let [same, best] = case.references().map(|reference| figures.of(reference));
        let (value, same_value, best_value) = (values(&row.samples)?, values(same), values(best));
        let ratio = |raw: Option<Summary>| raw.map(|raw| value.median / raw.median);
        let both = |samples| Some(cpu(samples, &case, 0)? + cpu(samples, &case, 1)?);
        let [local, remote] = [0, 1].map(|side| cpu(&row.samples, &case, side).unwrap_or(f64::NAN));
        let gigabytes = 1e9 / f64::from(case.size);
        let time = |n: usize| {
            let times = row.samples.iter().filter_map(|sample| Some(sample.times?[n]));
            Some(Summary::of(times)?.median)
        };
        let Case { op, mode, size, depth, conns, threads, list, srq, crc, wait, spin_us, server } =
            case;
        Some(Self {
            op,
            mode,
            size,
            depth,
            conns,
            threads,
            list,
            srq,
            crc,
            wait,
            spin_us,
            server,
            value: value.median,
            unit: mode.unit(),
            min: value.min,
            max: value.max,
            rounds: row.samples.len(),
            raw_max: best_value.map(|raw| raw.median),
            ratio_max: ratio(best_value),
            raw_same: same_value.map(|raw| raw.median),
            ratio_same: ratio(same_value),
            cpu_us_per_msg_local: local,
            cpu_us_per_msg_remote: remote,
            cpu_us_per_gb_local: local * gigabytes,
            cpu_us_per_gb_remote: remote * gigabytes,
            raw_same_cpu_us_per_msg: both(same),
            raw_max_cpu_us_per_msg: both(best),
            p50_us: time(0),
            p99_us: time(1),
            p999_us: time(2),
            slowest_over_mean: Summary::of(row.samples.iter().filter_map(|s| s.slowest))
                .map(|slowest| slowest.median),
            case,
        })
    }

    fn cells(&self) -> Vec<String> {
        let some = |value: Option<f64>| value.map_or_else(|| "-".into(), number);
        vec![
            self.case.to_string(),
            number(self.value),
            number(self.min),
            number(self.max),
            some(self.ratio_same),
            some(self.ratio_max),
            number(self.cpu_us_per_msg_local),
            number(self.cpu_us_per_msg_remote),
            some(self.p50_us),
            some(self.p99_us),
            some(self.p999_us),
            some(self.slowest_over_mean),
        ]
    }
}

/// Size against value, a chart per mode, with the lines of raw TCP.
pub(super) fn charts(report: &Report) -> Vec<Chart> {
    let modes = [
        (Mode::Bw, "Bandwidth", false),
        (Mode::Lat, "Latency, median", true),
        (Mode::Rate, "Message rate", true),
    ];
    let chart = |(mode, title, log): (Mode, &str, bool)| {
        let mut series: Vec<Series> = Vec::new();
        let mut add = |name: String, dashed, size: u32, value: Option<f64>| {
            let Some(value) = value else { return };
            let point = (f64::from(size), value);
            match series.iter_mut().find(|known| known.name == name) {
                // A reference serves many results.
                Some(known) if known.points.contains(&point) => {}
                Some(known) => known.points.push(point),
                None => series.push(Series { name, dashed, points: vec![point] }),
            }
        };
        for one in report.results.iter().filter(|one| one.mode == mode) {
            add(one.case.series(), false, one.size, Some(one.value));
            let answered = if one.op.is_answered() { ", reads" } else { "" };
            let wait = if one.wait { "waits" } else { "polls" };
            add(format!("raw TCP, same shape{answered}, {wait}"), true, one.size, one.raw_same);
            if mode != Mode::Lat {
                add("raw TCP, best".into(), true, one.size, one.raw_max);
            }
        }
        for one in &mut series {
            one.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        let unit = mode.unit().into();
        Chart { title: title.into(), unit, log, series }
    };
    modes.into_iter().map(chart).collect()
}

/// Median of the processor time per message of a side.
fn cpu(samples: &[Sample], case: &Case, side: usize) -> Option<f64> {
    Some(Summary::of(samples.iter().map(|sample| sample.cpu_us(case)[side]))?.median)
}

/// With as many digits as say something.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        medium if medium >= 10.0 => format!("{value:.1}"),
        small if small >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_say_something() {
        let of = [123.4, 12.34, 1.234, 0.0123].map(number);
        assert_eq!(of, ["123", "12.3", "1.23", "0.0123"]);
    }
}
