//! Describes the machine of a measurement: kernel, processors, congestion control, load. Reads `/proc`; a
//! missing value counts as 0 or empty.

use std::fs::read_to_string;
use std::io::Write;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::meter::Summary;
use crate::error::CliResult;
use crate::output::wrapped;

/// If other processes use more than this part of the machine, the figures are worthless.
const NOISY: f64 = 0.15;

/// The machine, as reported with the figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    kernel: String,
    cpu: String,
    cores: usize,
    congestion_control: String,
    /// Seconds since 1970.
    time: u64,
    /// Each process is pinned to its own processor.
    pub(super) pinned: bool,
    /// Half a round trip of one cache line between the two processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line_us: Option<Summary>,
    /// The part of the machine, 0 to 1, that other processes used during the measurements.
    pub(super) foreign_cpu: Option<f64>,
}

impl Machine {
    /// This machine, now.
    pub(super) fn here() -> Self {
        let info = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(": "));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            kernel: line("/proc/sys/kernel/osrelease"),
            cpu: model.map_or("not known", |(_, name)| name).into(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            congestion_control: line("/proc/sys/net/ipv4/tcp_congestion_control"),
            time: now.map_or(0, |now| now.as_secs()),
            pinned: false,
            line_us: None,
            foreign_cpu: None,
        }
    }

    /// The lines above a table.
    pub(super) fn print(&self, out: &mut dyn Write) -> CliResult<()> {
        let Self { kernel, cpu, cores, congestion_control, .. } = self;
        let line =
            format!("Linux {kernel}, {cores} cores ({cpu}), TCP by default {congestion_control}");
        write!(out, "{}", wrapped(&line))?;
        let placed = if self.pinned { "each on its own processor" } else { "by the scheduler" };
        writeln!(out, "Processes placed {placed}.")?;
        if let Some(Summary { median, min, max }) = self.line_us {
            writeln!(out, "Half a round trip of one cache line between the two: {median:.3} us,")?;
            writeln!(out, "{min:.3} to {max:.3} in the course of the measurements.")?;
        }
        if let Some(foreign) = self.foreign_cpu {
            writeln!(out, "Other processes used {:.0} % of the machine.", 100.0 * foreign)?;
            if foreign > NOISY {
                writeln!(out, "TOO MUCH: not even the ratios hold; repeat on an idle machine.")?;
            }
        }
        Ok(())
    }
}

fn line(path: &str) -> String {
    read_to_string(path).map_or_else(|_| "?".into(), |text| text.trim().into())
}

/// Pins this thread, and those that it starts, to the `nth` of the processors that the process was allowed to use
/// at the first call; false if there are fewer. To be called before the process has other threads. Otherwise the
/// scheduler puts both sides on one processor in one round and on two in the next, which changes round trips
/// tenfold.
pub(super) fn pin(nth: usize) -> bool {
    static ALLOWED: OnceLock<Option<CpuSet>> = OnceLock::new();
    let Some(allowed) = ALLOWED.get_or_init(|| sched_getaffinity(None).ok()) else { return false };
    let processor = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).nth(nth);
    processor.is_some_and(|cpu| {
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only).is_ok()
    })
}

/// Processor time of this process in microseconds.
pub(super) fn cpu_us() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 * 1e6 + used.tv_nsec as f64 / 1e3
}

/// Resident octets of this process.
pub(super) fn resident() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    let field = status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    field.and_then(|kib| kib.trim().parse().ok()).map_or(0, |kib: u64| kib * 1024)
}

/// Processor time that the machine and two processes used since a start.
#[derive(Debug)]
pub(super) struct Usage {
    peer: Option<u32>,
    begin: Times,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    all: u64,
    idle: u64,
    own: u64,
}

impl Usage {
    /// Starts now; `peer` is the second process, if it is on this machine.
    pub(super) fn start(peer: Option<u32>) -> Self {
        Self { peer, begin: Times::now(peer) }
    }

    /// The part of the machine, 0 to 1, that other processes used.
    pub(super) fn foreign(&self) -> f64 {
        let now = Times::now(self.peer);
        let [all, idle, own] = [
            now.all.saturating_sub(self.begin.all),
            now.idle.saturating_sub(self.begin.idle),
            now.own.saturating_sub(self.begin.own),
        ];
        all.saturating_sub(idle + own) as f64 / all.max(1) as f64
    }
}

impl Times {
    fn now(peer: Option<u32>) -> Self {
        let stat = read_to_string("/proc/stat").unwrap_or_default();
        let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
        // user nice system idle iowait irq softirq steal; guest time is part of user's
        let fields: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
        let own = of_process("self") + peer.map_or(0, |peer| of_process(&peer.to_string()));
        Self { all: fields.iter().sum(), idle: fields.iter().skip(3).take(2).sum(), own }
    }
}

/// User and system time; the same unit as `/proc/stat`.
fn of_process(process: &str) -> u64 {
    let stat = read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold anything. Behind it utime and stime are the 12th and 13th.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}
