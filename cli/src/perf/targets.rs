//! Performance targets, as ratios to raw TCP of the same run, and whether they are met. No state.

use std::io::Write;

use serde::Serialize;

use super::case::{Mode, Op};
use super::report::{Outcome, number};
use crate::error::CliResult;
use crate::output::table;

/// A bound on a figure.
#[derive(Clone, Copy, Debug)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// A target, and the results that it applies to.
struct Target {
    name: &'static str,
    bound: Bound,
    is_for: fn(&Outcome) -> bool,
    figure: fn(&Outcome) -> Option<f64>,
}

/// A target and one result.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    target: &'static str,
    result: String,
    wanted: String,
    got: f64,
    met: bool,
}

const fn one(o: &Outcome) -> bool {
    o.conns == 1 && o.threads == 1 && o.depth > 1
}

fn ratio_max(o: &Outcome) -> Option<f64> {
    o.ratio_max
}

fn ratio_same(o: &Outcome) -> Option<f64> {
    o.ratio_same
}

fn is_bw(o: &Outcome, sizes: &[u32]) -> bool {
    one(o) && o.mode == Mode::Bw && sizes.contains(&o.size)
}

fn is_lat(o: &Outcome, sizes: &[u32]) -> bool {
    o.conns == 1 && o.mode == Mode::Lat && sizes.contains(&o.size)
}

/// Through shared memory, as it is without the CRC that a policy may require.
fn is_local(o: &Outcome) -> bool {
    o.local_stream == Some(true) && !o.crc
}

fn is_rate(o: &Outcome) -> bool {
    one(o) && o.mode == Mode::Rate && (8..=64).contains(&o.size) && o.depth >= 64
}

const MIB: u32 = 1 << 20;
const KIB64: u32 = 64 << 10;

const TARGETS: &[Target] = &[
    Target {
        name: "1 MiB, CRC off, of raw_max",
        bound: Bound::AtLeast(0.95),
        is_for: |o| is_bw(o, &[MIB]) && !o.crc && !o.op.is_answered(),
        figure: ratio_max,
    },
    Target {
        name: "64 KiB, CRC off, of raw_max",
        bound: Bound::AtLeast(0.90),
        is_for: |o| is_bw(o, &[KIB64]) && !o.crc && !o.op.is_answered(),
        figure: ratio_max,
    },
    Target {
        name: "64 KiB and 1 MiB, CRC on, of raw_max",
        bound: Bound::AtLeast(0.72),
        is_for: |o| is_bw(o, &[KIB64, MIB]) && o.crc && !o.op.is_answered(),
        figure: ratio_max,
    },
    Target {
        name: "RDMA Read 64 KiB and 1 MiB, CRC off, of raw_max",
        bound: Bound::AtLeast(0.85),
        is_for: |o| is_bw(o, &[KIB64, MIB]) && !o.crc && o.op == Op::Read,
        figure: ratio_max,
    },
    Target {
        name: "4 KiB, depth 64, CRC on, times raw_same",
        bound: Bound::AtLeast(5.0),
        is_for: |o| is_bw(o, &[4 << 10]) && o.depth >= 64 && o.crc && !o.op.is_answered(),
        figure: ratio_same,
    },
    Target {
        name: "1 KiB, depth 64, CRC on, times raw_same",
        bound: Bound::AtLeast(8.0),
        is_for: |o| is_bw(o, &[1 << 10]) && o.depth >= 64 && o.crc && !o.op.is_answered(),
        figure: ratio_same,
    },
    Target {
        name: "8 to 64 B, posts in lists, times raw_same",
        bound: Bound::AtLeast(40.0),
        is_for: |o| is_rate(o) && o.list > 1 && !o.op.is_answered(),
        figure: ratio_same,
    },
    Target {
        name: "8 to 64 B, posts one by one, depth 64, times raw_same",
        bound: Bound::AtLeast(10.0),
        is_for: |o| is_rate(o) && o.list == 1 && !o.op.is_answered(),
        figure: ratio_same,
    },
    Target {
        name: "one operation outstanding, of raw_same",
        bound: Bound::AtLeast(0.95),
        is_for: |o| o.conns == 1 && o.depth == 1 && matches!(o.mode, Mode::Bw | Mode::Rate),
        figure: ratio_same,
    },
    Target {
        name: "8 to 64 B, polling, CRC on, times raw_same",
        bound: Bound::AtMost(1.10),
        is_for: |o| is_lat(o, &[8, 64]) && !o.wait && o.crc && !o.op.is_answered(),
        figure: ratio_same,
    },
    Target {
        name: "4 KiB, polling, times raw_same",
        bound: Bound::AtMost(1.12),
        is_for: |o| is_lat(o, &[4 << 10]) && !o.wait && !o.op.is_answered(),
        figure: ratio_same,
    },
    Target {
        name: "64 KiB, polling, times raw_same",
        bound: Bound::AtMost(1.20),
        is_for: |o| is_lat(o, &[KIB64]) && !o.wait && !o.op.is_answered(),
        figure: ratio_same,
    },
    Target {
        name: "RDMA Read 8 B, polling, times a round trip of raw_same",
        bound: Bound::AtMost(1.10),
        is_for: |o| is_lat(o, &[8]) && !o.wait && o.op == Op::Read,
        figure: ratio_same,
    },
    Target {
        name: "8 to 64 B, waiting, times raw_same, which blocks",
        bound: Bound::AtMost(0.20),
        is_for: |o| {
            is_lat(o, &[8, 64]) && o.wait && !o.fd && o.spin_us.is_none() && !o.op.is_answered()
        },
        figure: ratio_same,
    },
    Target {
        name: "8 to 64 B, waiting, spin off, times raw_same",
        bound: Bound::AtMost(1.05),
        is_for: |o| is_lat(o, &[8, 64]) && o.wait && o.spin_us == Some(0) && !o.op.is_answered(),
        figure: ratio_same,
    },
    Target {
        name: "8 to 64 B, by descriptor, times raw TCP with two wake-ups",
        bound: Bound::AtMost(1.5),
        is_for: |o| is_lat(o, &[8, 64]) && o.fd && !o.op.is_answered(),
        figure: ratio_same,
    },
    Target {
        name: "8 B through shared memory, polling, less one cache line, in us",
        bound: Bound::AtMost(0.6),
        is_for: |o| is_local(o) && is_lat(o, &[8]) && !o.wait && !o.op.is_answered(),
        figure: |o| Some(o.value - o.line_us?),
    },
    Target {
        name: "8 B through shared memory, polling, times raw_same",
        bound: Bound::AtMost(0.25),
        is_for: |o| is_local(o) && is_lat(o, &[8]) && !o.wait && !o.op.is_answered(),
        figure: ratio_same,
    },
    Target {
        name: "8 B through shared memory, spin off, times raw_same",
        bound: Bound::AtMost(0.95),
        is_for: |o| is_local(o) && is_lat(o, &[8]) && o.spin_us == Some(0) && !o.op.is_answered(),
        figure: ratio_same,
    },
    Target {
        name: "4 KiB through shared memory, polling, in GB/s",
        bound: Bound::AtLeast(8.0),
        is_for: |o| is_local(o) && is_bw(o, &[4 << 10]) && !o.wait && !o.op.is_answered(),
        figure: |o| Some(o.value),
    },
    Target {
        name: "64 KiB and 1 MiB through shared memory, polling, in GB/s",
        bound: Bound::AtLeast(12.0),
        is_for: |o| is_local(o) && is_bw(o, &[KIB64, MIB]) && !o.wait && !o.op.is_answered(),
        figure: |o| Some(o.value),
    },
    Target {
        name: "CPU per 64 KiB, both sides, waiting, CRC off, times raw_max's",
        bound: Bound::AtMost(1.2),
        is_for: |o| is_bw(o, &[KIB64]) && o.wait && !o.crc && !o.op.is_answered(),
        figure: |o| Some(both_sides(o) / o.raw_max_cpu_us_per_msg?),
    },
    Target {
        name: "CPU per message of 64 B, batched, in us",
        bound: Bound::AtMost(0.3),
        is_for: |o| is_rate(o) && o.size == 64 && o.list > 1,
        figure: |o| Some(both_sides(o)),
    },
    Target {
        name: "connect, start-up and first Write, of connect and two exchanges",
        bound: Bound::AtLeast(0.8),
        is_for: |o| o.mode == Mode::Connect,
        figure: ratio_same,
    },
];

fn both_sides(o: &Outcome) -> f64 {
    o.cpu_us_per_msg_local + o.cpu_us_per_msg_remote
}

/// The verdicts on all results that a target applies to.
pub(super) fn verdicts(results: &[Outcome]) -> Vec<Verdict> {
    let of = |target: &'static Target| {
        results.iter().filter(|o| (target.is_for)(o)).filter_map(|o| {
            let got = (target.figure)(o)?;
            let (wanted, met) = match target.bound {
                Bound::AtLeast(bound) => (format!(">= {bound}"), got >= bound),
                Bound::AtMost(bound) => (format!("<= {bound}"), got <= bound),
            };
            Some(Verdict { target: target.name, result: o.case.to_string(), wanted, got, met })
        })
    };
    TARGETS.iter().flat_map(of).collect()
}

/// The verdicts as a table, if there are any.
pub(super) fn print(verdicts: &[Verdict], out: &mut dyn Write) -> CliResult<()> {
    if verdicts.is_empty() {
        return Ok(writeln!(out, "\nTargets: none is for these measurements")?);
    }
    let met = verdicts.iter().filter(|verdict| verdict.met).count();
    writeln!(out, "\nTargets: {met} of {} met", verdicts.len())?;
    let mut rows = vec![["", "wanted", "got", ""].map(String::from).to_vec()];
    for target in verdicts.chunk_by(|a, b| a.target == b.target) {
        rows.extend(target.first().map(|v| vec![v.target.into()]));
        rows.extend(target.iter().map(|v| {
            let word = if v.met { "met" } else { "MISSED" };
            vec![format!("  {}", v.result), v.wanted.clone(), number(v.got), word.into()]
        }));
    }
    Ok(write!(out, "{}", table(&rows))?)
}
