//! The report: medians and ratios of all samples, as JSON and as a table. No state.

use std::io::Write;

use serde::Serialize;

use super::case::{Case, Mode, Op, Server};
use super::line::Around;
use super::machine::Machine;
use super::meter::Summary;
use super::plot::{Chart, Series};
use super::rounds::{Figures, Row, Sample};
use super::targets::{self, Verdict};
use super::traffic::{self, Traffic};
use crate::error::CliResult;
use crate::output::{table, wrapped};

/// What is printed.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) results: Vec<Outcome>,
    targets: Vec<Verdict>,
    machine: Machine,
    /// Those that stay after the last measurement, and what they carried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) connections: Vec<Traffic>,
}

/// Results of one case. Names of fields are a contract.
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
    pub(super) fd: bool,
    memory: bool,
    pub(super) spin_us: Option<u32>,
    /// `null`: as the policy sets.
    pub(super) local_stream: Option<bool>,
    pub(super) server: Option<Server>,
    pub(super) value: f64,
    pub(super) unit: &'static str,
    pub(super) min: f64,
    pub(super) max: f64,
    /// Medians of the rounds in which a cache line went from one processor to the other by a cache that they
    /// share, and by another way.
    near: Option<f64>,
    far: Option<f64>,
    /// Half a round trip of such a line, in these rounds.
    pub(super) line_us: Option<f64>,
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
        Self { results, targets, machine, connections: Vec::new() }
    }

    /// The text: tables, the meaning of their columns, and a comparison with raw TCP.
    pub(super) fn print(&self, targets: bool, out: &mut dyn Write) -> CliResult<()> {
        self.machine.print(out)?;
        // With both, each row has the carrier.
        let mut carried: Vec<_> = self.results.iter().filter_map(|one| one.local_stream).collect();
        carried.dedup();
        match carried[..] {
            [true] => writeln!(out, "Connections are local streams.")?,
            [false] => writeln!(out, "Connections are TCP.")?,
            _ => {}
        }
        let sections = [
            (Mode::Bw, "Bandwidth; more is better"),
            (Mode::Lat, "Half a round trip, of reads and fetch-add a whole one; less is better"),
            (Mode::Rate, "Message rate; more is better"),
            (Mode::Connect, "Connect, RDMA Write, close; more is better"),
        ];
        let columns: Vec<_> = COLUMNS.iter().filter(|column| self.has(column)).collect();
        for (mode, title) in sections {
            let mut rows: Vec<_> = self.results.iter().filter(|one| one.mode == mode).collect();
            rows.sort_by_key(|one| one.op as u8);
            if !rows.is_empty() {
                writeln!(out, "\n{title}; {}", mode.unit())?;
                write!(out, "{}", table(&lines(&rows, &columns)))?;
            }
        }
        writeln!(out, "\nColumns")?;
        for column in columns {
            writeln!(out, "  {:<8}{}", column.name, column.meaning)?;
        }
        if targets {
            targets::print(&self.targets, out)?;
        }
        self.compare(out)?;
        if self.connections.is_empty() { Ok(()) } else { traffic::print(&self.connections, out) }
    }

    /// Whether a column has a value in any result.
    fn has(&self, column: &Column) -> bool {
        self.results.iter().any(|one| (column.of)(one).is_some())
    }

    /// A line for each operation: large messages for bandwidth, small ones for rate and latency, of the first
    /// such case (by default with CRC and polling).
    fn compare(&self, out: &mut dyn Write) -> CliResult<()> {
        let mut ops: Vec<Op> = self.results.iter().map(|one| one.op).collect();
        ops.sort_by_key(|&op| op as u8);
        ops.dedup();
        let lines: Vec<_> = ops.into_iter().filter_map(|op| self.compared(op)).collect();
        if !lines.is_empty() {
            writeln!(
                out,
                "\nCompared with raw TCP here: bandwidth with the best stream, message rate and"
            )?;
            writeln!(out, "latency with a plain program of the same shape")?;
        }
        lines.iter().try_for_each(|line| Ok(write!(out, "{}", wrapped(line))?))
    }

    /// `RDMA Write: 0.94 of the bandwidth, 11 times the rate, 1.1 times the latency`.
    fn compared(&self, op: Op) -> Option<String> {
        let of = |mode| self.results.iter().filter(move |one| one.op == op && one.mode == mode);
        // The first of equals.
        let least = |mode| of(mode).min_by_key(|one| one.size)?.ratio_same;
        let most = of(Mode::Bw).min_by_key(|one| std::cmp::Reverse(one.size));
        let parts = [
            (most.and_then(|one| one.ratio_max), "bandwidth"),
            (least(Mode::Rate), "rate"),
            (least(Mode::Lat), "latency"),
        ];
        let part =
            |(ratio, what): (Option<f64>, &str)| Some(format!("{} the {what}", times(ratio?)));
        let parts: Vec<_> = parts.into_iter().filter_map(part).collect();
        (!parts.is_empty()).then(|| format!("{op}: {}", parts.join(", ")))
    }
}

/// A column of the table; the JSON has all values.
struct Column {
    name: &'static str,
    meaning: &'static str,
    of: fn(&Outcome) -> Option<String>,
}

const COLUMNS: &[Column] = &[
    Column {
        name: "median",
        meaning: "the median of all rounds, in the unit of the title",
        of: |one| Some(number(one.value)),
    },
    Column {
        name: "spread",
        meaning: "the largest less the smallest, as a part of the median",
        of: |one| Some(format!("{:.0}%", 100.0 * (one.max - one.min) / one.value)),
    },
    Column {
        name: "near",
        meaning: "median of the rounds in which the processors shared a cache",
        of: |one| one.case.local.and(one.near).map(number),
    },
    Column {
        name: "far",
        meaning: "median of the rounds in which they did not",
        of: |one| one.case.local.and(one.far).map(number),
    },
    Column {
        name: "line",
        meaning: "half a round trip of one cache line, in microseconds, around these rounds",
        of: |one| one.case.local.and(one.line_us).map(number),
    },
    Column {
        name: "/same",
        meaning: "median, divided by that of a plain raw TCP program of the same shape",
        of: |one| one.ratio_same.map(number),
    },
    Column {
        name: "/max",
        meaning: "median, divided by that of the best stream of raw TCP",
        of: |one| one.ratio_max.map(number),
    },
    Column {
        name: "CPU",
        meaning: "processor time per message at this side, in microseconds",
        of: |one| Some(number(one.cpu_us_per_msg_local)),
    },
    Column {
        name: "peer",
        meaning: "the same at the other side",
        of: |one| Some(number(one.cpu_us_per_msg_remote)),
    },
    Column {
        name: "p99",
        meaning: "99 of 100 messages took no longer than this, in microseconds",
        of: |one| one.p99_us.map(number),
    },
    Column {
        name: "fair",
        meaning: "messages of the slowest connection, as a part of the mean",
        of: |one| one.slowest_over_mean.map(number),
    },
];

/// The results, grouped by operation.
fn lines(rows: &[&Outcome], columns: &[&Column]) -> Vec<Vec<String>> {
    let header = columns.iter().map(|column| column.name.into());
    let mut lines = vec![std::iter::once(String::new()).chain(header).collect()];
    let mut last = None;
    for one in rows {
        if last.replace(one.op) != Some(one.op) {
            lines.push(vec![one.op.to_string()]);
        }
        let cells = columns.iter().map(|column| (column.of)(one).unwrap_or_else(|| "-".into()));
        lines.push(std::iter::once(format!("  {}", one.case.shape())).chain(cells).collect());
    }
    lines
}

/// A ratio in words, to put before its reference.
fn times(ratio: f64) -> String {
    match ratio {
        many if many >= 10.0 => format!("{many:.0} times"),
        some if some >= 1.0 => format!("{some:.1} times"),
        part => format!("{part:.2} of"),
    }
}

impl Outcome {
    fn new(row: &Row, figures: &Figures) -> Option<Self> {
        let case = row.case;
        let carried = case.local.or_else(|| row.samples.first()?.local);
        let values =
            |samples: &[Sample]| Summary::of(samples.iter().map(|sample| sample.value(&case)));
        let [same, best] = case.references().map(|reference| figures.of(reference));
        let (value, same_value, best_value) = (values(&row.samples)?, values(same), values(best));
        let ratio = |raw: Option<Summary>| raw.map(|raw| value.median / raw.median);
        let both = |samples| Some(cpu(samples, &case, 0)? + cpu(samples, &case, 1)?);
        let [local, remote] = [0, 1].map(|side| cpu(&row.samples, &case, side).unwrap_or(f64::NAN));
        let gigabytes = 1e9 / f64::from(case.size);
        let by_line = |near: bool| {
            let is = |sample: &&Sample| sample.line.and_then(Around::is_near) == Some(near);
            let values = row.samples.iter().filter(is).map(|sample| sample.value(&case));
            Summary::of(values).map(|value| value.median)
        };
        let lines = row.samples.iter().filter_map(|sample| Some(sample.line?.0)).flatten();
        let time = |n: usize| {
            let times = row.samples.iter().filter_map(|sample| Some(sample.times?[n]));
            Some(Summary::of(times)?.median)
        };
        let Case {
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
            fd,
            memory,
            spin_us,
            local: _,
            by_path: _,
            server,
        } = case;
        Some(Self {
            op,
            mode,
            size,
            depth,
            conns,
            threads,
            list,
            srq,
            crc: crc == Some(true),
            wait,
            fd,
            memory,
            spin_us,
            local_stream: carried,
            server,
            value: value.median,
            unit: mode.unit(),
            min: value.min,
            max: value.max,
            near: by_line(true),
            far: by_line(false),
            line_us: Summary::of(lines).map(|line| line.median),
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
}

/// Charts of value against size, one per mode, with lines for raw TCP.
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
                // A reference belongs to many results; draw it once.
                Some(known) if known.points.contains(&point) => {}
                Some(known) => known.points.push(point),
                None => series.push(Series { name, dashed, points: vec![point] }),
            }
        };
        for one in report.results.iter().filter(|one| one.mode == mode) {
            add(one.case.series(), false, one.size, Some(one.value));
            let answered = if one.op.is_answered() { ", reads" } else { "" };
            let attends = one.case.attends();
            add(format!("raw TCP, same shape{answered}, {attends}"), true, one.size, one.raw_same);
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

/// A number with its significant digits.
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
    fn ratios_in_words() {
        let of = [12.3, 1.04, 0.944, 0.0123].map(times);
        assert_eq!(of, ["12 times", "1.0 times", "0.94 of", "0.01 of"]);
    }

    #[test]
    fn numbers_have_the_digits_that_say_something() {
        let of = [123.4, 12.34, 1.234, 0.0123].map(number);
        assert_eq!(of, ["123", "12.3", "1.23", "0.0123"]);
    }
}
