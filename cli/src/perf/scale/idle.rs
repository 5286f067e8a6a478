//! Measures idle connections: memory of each, processor time of all. The connections belong to this thread and
//! to the second process.

use std::io::Write;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::SLICE;
use crate::error::CliResult;
use crate::perf::case::{Case, Mode, Op};
use crate::perf::machine::{cpu_us, resident};
use crate::perf::report::number;
use crate::perf::rounds::Session;
use crate::perf::worker::BARE;
use crate::signals;

/// A new connection sends zero-length kicks for less than this.
const KICK_TIME: Duration = Duration::from_secs(6);

/// The result.
#[derive(Debug, Serialize)]
pub(super) struct Idle {
    connections: u32,
    depth: u32,
    /// Connections made one after the other, with both sides' objects and an RDMA Write.
    set_up_per_second: f64,
    octets_each_local: f64,
    octets_each_remote: f64,
    cpu_us_per_second_local: f64,
    cpu_us_per_second_remote: f64,
}

pub(super) fn measure(session: &mut Session, connections: u32, mpa: bool) -> CliResult<Idle> {
    // One more, which is made repeatedly.
    let case = Case::new(Op::Write, Mode::Connect, 8);
    let crc = mpa.then_some(true);
    let case = Case { conns: connections + 1, wait: true, crc, ..case };
    let before = [resident() as f64, session.server()?.1];
    let begin = Instant::now();
    let client = session.client(case)?;
    let set_up = begin.elapsed().as_secs_f64();
    let after = [resident() as f64, session.server()?.1];
    // A new connection is not idle: an end that has received nothing sends zero-length kicks.
    signals::sleep(KICK_TIME);
    let used = [cpu_us(), session.server()?.0];
    let begin = Instant::now();
    signals::sleep(2 * SLICE);
    let used = [cpu_us() - used[0], session.server()?.0 - used[1]];
    let seconds = begin.elapsed().as_secs_f64();
    client.close()?;
    session.end()?;
    let each = f64::from(connections);
    Ok(Idle {
        connections,
        depth: BARE,
        set_up_per_second: each / set_up,
        octets_each_local: (after[0] - before[0]) / each,
        octets_each_remote: (after[1] - before[1]) / each,
        cpu_us_per_second_local: used[0] / seconds,
        cpu_us_per_second_remote: used[1] / seconds,
    })
}

impl Idle {
    pub(super) fn print(&self, out: &mut dyn Write) -> CliResult<()> {
        writeln!(out, "\n{} idle connections, queues of {}:", self.connections, self.depth)?;
        writeln!(out, "  set up           {} per second", number(self.set_up_per_second))?;
        let both = |local, remote| format!("{} here, {} there", number(local), number(remote));
        let octets = both(self.octets_each_local, self.octets_each_remote);
        writeln!(out, "  octets of each   {octets}")?;
        let used = both(self.cpu_us_per_second_local, self.cpu_us_per_second_remote);
        Ok(writeln!(out, "  CPU, all of them {used} us per second")?)
    }
}
