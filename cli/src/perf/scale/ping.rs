//! Measures round trips of small messages during RDMA Reads, large and small: on the same connection, and on
//! another. An empty Send is the ping; the server replies to each. One thread of this process posts everything.

use std::io::Write;
use std::time::Instant;

use itapi::Work;
use serde::Serialize;

use crate::error::CliResult;
use crate::output::table;
use crate::perf::case::{Case, Mode, Op, octets};
use crate::perf::meter::Latencies;
use crate::perf::report::number;
use crate::perf::rounds::{Session, Single};
use crate::perf::worker::is_receive;
use crate::signals;

/// Octets of a small read.
const SMALL: u32 = 1 << 20;
/// Outstanding reads.
const DEPTH: u32 = 16;
/// Depth of the send queue: each ping completes after the reads that were posted before it.
const QUEUE: u32 = 1 << 14;
/// Number of pings without reads.
const ALONE: usize = 2_000;

/// Round trips of pings during reads.
#[derive(Debug, Serialize)]
pub(super) struct PingTimes {
    what: String,
    pings: usize,
    round_trip_p50_us: f64,
    round_trip_p99_us: f64,
    /// Bandwidth of the reads.
    gigabytes_per_second: Option<f64>,
}

/// `all`: octets to read in each measurement; `large`: octets of a large read.
pub(super) fn measure(
    session: &mut Session,
    all: u64,
    large: u32,
    mpa: bool,
) -> CliResult<Vec<PingTimes>> {
    let size = large.max(SMALL);
    let crc = mpa.then_some(false);
    let case = Case { conns: 2, depth: QUEUE, crc, ..Case::new(Op::Read, Mode::Bw, size) };
    let single = session.single(case)?;
    let mut results = vec![pings(&single, "nothing".into(), 0, None, 0)?];
    for (at, where_) in [(1, "another"), (0, "the same")] {
        for read in [large, SMALL].into_iter().take_while(|_| !signals::caught()) {
            let what = format!("reads of {} on {where_} connection", octets(read));
            results.push(pings(&single, what, all, Some(read), at)?);
        }
    }
    session.leave(single)?;
    Ok(results)
}

/// Pings over connection 0 while connection `at` reads `all` octets in pieces of `read`.
fn pings(
    single: &Single,
    what: String,
    all: u64,
    read: Option<u32>,
    at: usize,
) -> CliResult<PingTimes> {
    let reads = read.map_or(0, |octets| all.div_ceil(octets.into()) as u32);
    let mut load = ReadLoad { single, at, read: read.unwrap_or(1), unposted: reads, unread: reads };
    let (mut latencies, mut pings) = (Latencies::default(), 0);
    let begin = Instant::now();
    for _ in 0..DEPTH {
        load.post()?;
    }
    while load.unread > 0 || reads == 0 && pings < ALONE {
        let sent = Instant::now();
        load.ping()?;
        latencies.add(sent.elapsed());
        pings += 1;
    }
    let rate = (u64::from(reads) * u64::from(read.unwrap_or(0))) as f64
        / begin.elapsed().as_secs_f64()
        / 1e9;
    let [p50, p99] = latencies.permille([500, 990]).unwrap_or([f64::NAN; 2]);
    Ok(PingTimes {
        what,
        pings,
        round_trip_p50_us: p50,
        round_trip_p99_us: p99,
        gigabytes_per_second: read.map(|_| rate),
    })
}

/// Keeps reads outstanding during the pings.
struct ReadLoad<'a> {
    single: &'a Single,
    /// The connection of the reads.
    at: usize,
    /// Octets of a read.
    read: u32,
    unposted: u32,
    unread: u32,
}

impl ReadLoad<'_> {
    /// Posts the next read, if one is left.
    fn post(&mut self) -> CliResult<()> {
        if self.unposted > 0 {
            let sink = self.single.worker.region.range(0..self.read as usize)?;
            let remote = self.single.remotes[self.at].slice(0..self.read.into())?;
            let ep = &self.single.worker.eps[self.at];
            ep.post(Work::read(remote, sink))?;
            self.unposted -= 1;
        }
        Ok(())
    }

    fn ping(&mut self) -> CliResult<()> {
        let worker = &self.single.worker;
        worker.eps[0].post(Work::send(&[]))?;
        loop {
            let Some(completion) = worker.evd.poll()? else { continue };
            worker.check(&completion)?;
            if is_receive(completion.operation) {
                return Ok(worker.post_recv(&worker.eps[0], completion.local)?);
            }
            if completion.operation == itapi::Operation::Read {
                self.unread -= 1;
                self.post()?;
            }
        }
    }
}

pub(super) fn print(results: &[PingTimes], mpa: bool, out: &mut dyn Write) -> CliResult<()> {
    let crc = if mpa { " CRC off," } else { "" };
    writeln!(out, "\nEmpty Sends, answered,{crc} polling, beside")?;
    let header = ["", "pings", "p50 us", "p99 us", "reads GB/s"].map(String::from).to_vec();
    let row = |one: &PingTimes| {
        let rate = one.gigabytes_per_second.map_or_else(|| "-".into(), number);
        let times = [one.round_trip_p50_us, one.round_trip_p99_us].map(number);
        let [p50, p99] = times;
        vec![one.what.clone(), one.pings.to_string(), p50, p99, rate]
    };
    let rows: Vec<_> = std::iter::once(header).chain(results.iter().map(row)).collect();
    Ok(write!(out, "{}", table(&rows))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_is_named_where_there_is_one() {
        let title = |mpa| {
            let mut out = Vec::new();
            print(&[], mpa, &mut out).map(|()| String::from_utf8_lossy(&out).into_owned())
        };
        assert!(title(true).is_ok_and(|text| text.contains("answered, CRC off, polling")));
        assert!(title(false).is_ok_and(|text| text.contains("answered, polling")));
    }
}
