//! Runs the rounds of a measurement: cases and their references in turn. Owns the control connection; if the
//! server dies, the run fails.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use itapi::{Ia, RemoteRange};

use super::case::{Case, Mode, Reference};
use super::client::{self, Client};
use super::control::{Answer, Control, Request};
use super::line::{Around, line_round_trip};
use super::machine::cpu_us;
use super::meter::Count;
use super::raw::{FRAME, Raw};
use super::traffic::Traffic;
use super::worker::Worker;
use crate::error::{CliError, CliResult, Exit};
use crate::signals;

/// The first part of a measurement, one in this many, warms up.
const WARM_UP: u32 = 5;

/// Shortest measurement with a meaningful result.
const SHORTEST: Duration = Duration::from_millis(20);

/// One measurement of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    messages_per_second: f64,
    /// Octets of a message.
    octets: f64,
    /// Processor time of a message at either side, in microseconds.
    cpu_us: [f64; 2],
    /// Times of single messages in microseconds: median, 99 %, 99.9 %.
    pub(super) times: Option<[f64; 3]>,
    /// The slowest connection as a part of the mean.
    pub(super) slowest: Option<f64>,
    /// Whether local streams carried it, as far as it is known.
    pub(super) local: Option<bool>,
    /// The line meanwhile.
    pub(super) line: Option<Around>,
}

impl Sample {
    fn new(what: What, count: Count, cpu_us: [f64; 2]) -> Self {
        let messages = count.messages as f64;
        let half = if what.is_halved() { 0.5 } else { 1.0 };
        Self {
            messages_per_second: messages / count.elapsed.as_secs_f64(),
            octets: what.octets(),
            cpu_us: cpu_us.map(|used| used / messages),
            times: count
                .latencies
                .permille([500, 990, 999])
                .map(|times| times.map(|time| time * half)),
            slowest: count.slowest,
            local: None,
            line: None,
        }
    }

    /// The figure of a case: bandwidth, rate, connections or latency.
    pub(super) fn value(&self, case: &Case) -> f64 {
        let octets_per_second = self.messages_per_second * self.octets;
        match case.mode {
            Mode::Bw => octets_per_second / 1e9,
            Mode::Rate => octets_per_second / f64::from(case.size) / 1e6,
            Mode::Connect => self.messages_per_second,
            Mode::Lat => self.times.map_or(f64::NAN, |[median, ..]| median),
        }
    }

    /// Processor time at either side for a message of the case's size.
    pub(super) fn cpu_us(&self, case: &Case) -> [f64; 2] {
        let part = match case.mode {
            Mode::Bw | Mode::Rate => f64::from(case.size) / self.octets,
            Mode::Lat | Mode::Connect => 1.0,
        };
        self.cpu_us.map(|used| used * part)
    }
}

/// A case or a reference.
#[derive(Clone, Copy, PartialEq, Debug)]
enum What {
    Ours(Case),
    Raw(Reference),
}

impl What {
    fn octets(self) -> f64 {
        match self {
            Self::Ours(case) => case.size.into(),
            Self::Raw(Reference::Frames) => FRAME as f64,
            Self::Raw(
                Reference::Messages { size, .. }
                | Reference::Many { size, .. }
                | Reference::Requests { size, .. }
                | Reference::Small { size }
                | Reference::Echo { size, .. }
                | Reference::Evented { size }
                | Reference::Handed { size }
                | Reference::Fetch { size, .. },
            ) => size.into(),
            Self::Raw(Reference::Connect) => 8.0,
        }
    }

    /// Whether the figure is half a round trip.
    fn is_halved(self) -> bool {
        match self {
            Self::Ours(case) => case.mode == Mode::Lat && !case.op.is_answered(),
            Self::Raw(reference) => matches!(
                reference,
                Reference::Echo { .. } | Reference::Evented { .. } | Reference::Handed { .. }
            ),
        }
    }
}

/// All samples of a case.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) case: Case,
    pub(super) samples: Vec<Sample>,
}

/// All samples of all rounds.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) rows: Vec<Row>,
    references: Vec<(Reference, Vec<Sample>)>,
}

impl Figures {
    /// The samples of a reference.
    pub(super) fn of(&self, reference: Reference) -> &[Sample] {
        let found = self.references.iter().find(|(known, _)| *known == reference);
        found.map_or(&[], |(_, samples)| samples)
    }

    /// Adds the samples of another session.
    pub(super) fn extend(&mut self, other: Self) {
        for row in other.rows {
            row.samples.into_iter().for_each(|sample| self.add(What::Ours(row.case), sample));
        }
        for (raw, samples) in other.references {
            samples.into_iter().for_each(|sample| self.add(What::Raw(raw), sample));
        }
    }

    /// Of all measurements.
    pub(super) fn lines(&self) -> impl Iterator<Item = f64> {
        let rows = self.rows.iter().flat_map(|row| &row.samples);
        let all = rows.chain(self.references.iter().flat_map(|(_, samples)| samples));
        all.filter_map(|sample| Some(sample.line?.0)).flatten()
    }

    fn add(&mut self, what: What, sample: Sample) {
        match what {
            What::Ours(case) => match self.rows.iter_mut().find(|row| row.case == case) {
                Some(row) => row.samples.push(sample),
                None => self.rows.push(Row { case, samples: vec![sample] }),
            },
            What::Raw(raw) => match self.references.iter_mut().find(|(known, _)| *known == raw) {
                Some((_, samples)) => samples.push(sample),
                None => self.references.push((raw, vec![sample])),
            },
        }
    }
}

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) rounds: u32,
    /// `time` is for the whole run; else for each measurement.
    pub(super) in_all: bool,
    pub(super) time: Duration,
    /// Whether to measure raw TCP, too.
    pub(super) raw: bool,
    /// The line, too, before and after each measurement.
    pub(super) line: bool,
    /// Whether the connections of the last measurement stay until [`Session::release`].
    pub(super) hold: bool,
}

/// The client's connection to its server.
pub(super) struct Session {
    control: Control,
    device: Option<String>,
    held: Option<Load>,
}

/// One worker and the server's memory, for a measurement that posts its own requests.
pub(super) struct Single {
    pub(super) worker: Worker,
    /// The server's memory, by connection.
    pub(super) remotes: Vec<RemoteRange>,
    _ia: Ia,
}

/// The two kinds of load.
enum Load {
    Ours(Client),
    Raw(Raw),
}

impl Session {
    /// Connects to a server.
    pub(super) fn connect(host: &str, device: Option<&str>) -> CliResult<Self> {
        Ok(Self { control: Control::connect(host)?, device: device.map(Into::into), held: None })
    }

    /// Measures all cases, and what they are compared with; until a signal, which shortens the measurement under way.
    pub(super) fn measure(&mut self, cases: &[Case], plan: Plan) -> CliResult<Figures> {
        let order = order(cases, plan.raw);
        let mut pace = Pace::new(plan, plan.rounds * order.len() as u32);
        let mut figures = Figures::default();
        let all = plan.rounds as usize * order.len();
        for (nth, what) in (0..plan.rounds).flat_map(|_| &order).enumerate() {
            if signals::caught() {
                break;
            }
            let slice = pace.next(*what);
            let line = || plan.line.then(line_round_trip).flatten();
            let before = line();
            let sample = self.one(*what, slice, plan.hold && nth + 1 == all)?;
            let line = before.zip(line()).map(|(before, after)| Around([before, after]));
            if let Some(sample) = sample {
                figures.add(*what, Sample { line, ..sample });
            }
        }
        Ok(figures)
    }

    /// What the connections that stay carried.
    pub(super) fn held(&self) -> CliResult<Vec<Traffic>> {
        match &self.held {
            Some(Load::Ours(client)) => client.traffic(),
            _ => Ok(Vec::new()),
        }
    }

    /// Ends the connections that stayed.
    pub(super) fn release(&mut self) -> CliResult<()> {
        match self.held.take() {
            Some(load) => load.close().and_then(|()| self.end()),
            None => Ok(()),
        }
    }

    /// Makes the server serve a case; returns the address.
    pub(super) fn serve(&mut self, case: Case) -> CliResult<SocketAddr> {
        self.ready(&Request::Case(case))
    }

    /// All connections of a case.
    pub(super) fn client(&mut self, case: Case) -> CliResult<Client> {
        let address = self.serve(case)?;
        Client::connect(case, self.device.as_deref(), address)
    }

    /// The connections of a case on one worker; [`Session::leave`] ends them.
    pub(super) fn single(&mut self, case: Case) -> CliResult<Single> {
        let address = self.serve(case)?;
        let (ia, worker, remotes) = client::single(case, self.device.as_deref(), address)?;
        Ok(Single { worker, remotes, _ia: ia })
    }

    /// Ends them.
    pub(super) fn leave(&mut self, single: Single) -> CliResult<()> {
        single.worker.eps.iter().try_for_each(|ep| ep.disconnect())?;
        self.end()
    }

    /// One measurement. If it fails because the server's part did, the error has the server's reason.
    fn one(&mut self, what: What, slice: Duration, hold: bool) -> CliResult<Option<Sample>> {
        self.sample(what, slice, hold).map_err(|error| match self.control.why_ended() {
            Some(why) => error.because(why),
            None => error,
        })
    }

    /// `None`: a signal ended it before there was anything to measure.
    fn sample(&mut self, what: What, slice: Duration, hold: bool) -> CliResult<Option<Sample>> {
        let begin = Instant::now();
        let mut load = self.start(what)?;
        load.phase(slice / WARM_UP)?;
        let is_warm = !signals::caught();
        let before = [cpu_us(), self.server()?.0];
        let rest = slice.saturating_sub(begin.elapsed()).max(slice / 2);
        let count = load.phase(rest)?;
        let after = [cpu_us(), self.server()?.0];
        let local = load.is_local();
        if hold {
            self.held = Some(load);
        } else {
            load.close()?;
            self.end()?;
        }
        let used = [after[0] - before[0], after[1] - before[1]];
        let is_measured = is_warm && count.messages > 0;
        Ok(is_measured.then(|| Sample { local, ..Sample::new(what, count, used) }))
    }

    fn start(&mut self, what: What) -> CliResult<Load> {
        Ok(match what {
            What::Ours(case) => {
                Load::Ours(self.client(case).map_err(|error| error.at(format!("perf, {case}")))?)
            }
            What::Raw(reference) => {
                let address = self.ready(&Request::Raw(reference))?;
                Load::Raw(Raw::connect(reference, address).map_err(raw_failed)?)
            }
        })
    }

    /// Sends a request to serve; returns the address.
    fn ready(&mut self, request: &Request) -> CliResult<SocketAddr> {
        match self.control.ask(request)? {
            Answer::Ready { port } => Ok(SocketAddr::new(self.control.peer().ip(), port)),
            other => Err(self.control.confused(&other)),
        }
    }

    /// The server's processor time in microseconds, and its octets in memory.
    pub(super) fn server(&mut self) -> CliResult<(f64, f64)> {
        match self.control.ask(&Request::Used)? {
            Answer::Used { cpu_us, resident } => Ok((cpu_us, resident as f64)),
            other => Err(self.control.confused(&other)),
        }
    }

    /// Tells the server that the measurement is over.
    pub(super) fn end(&mut self) -> CliResult<()> {
        match self.control.ask(&Request::End)? {
            Answer::Done => Ok(()),
            other => Err(self.control.confused(&other)),
        }
    }
}

impl Load {
    fn is_local(&self) -> Option<bool> {
        match self {
            Self::Ours(client) => client.is_local(),
            Self::Raw(_) => None,
        }
    }

    fn phase(&mut self, length: Duration) -> CliResult<Count> {
        match self {
            Self::Ours(client) => client.phase(length),
            Self::Raw(raw) => raw.phase(length).map_err(raw_failed),
        }
    }

    fn close(self) -> CliResult<()> {
        match self {
            Self::Ours(client) => client.close(),
            Self::Raw(raw) => raw.close().map_err(raw_failed),
        }
    }
}

fn raw_failed(error: std::io::Error) -> CliError {
    CliError::new(Exit::Network, format!("raw TCP: {error}")).at("perf")
}

/// The order of a round: each reference once, next to its cases; the best stream, which belongs to many cases,
/// once for each kind of them.
fn order(cases: &[Case], raw: bool) -> Vec<What> {
    let mut order: Vec<What> = Vec::new();
    let mut last = None;
    for case in cases {
        let kind = Some((case.mode, case.size, case.attends()));
        for reference in case.references().into_iter().filter(|_| raw) {
            let new = !order.contains(&What::Raw(reference));
            if new || reference == Reference::Frames && kind != last {
                order.push(What::Raw(reference));
            }
        }
        order.push(What::Ours(*case));
        last = kind;
    }
    order
}

/// Divides the time of a run among its measurements, and shows the progress on standard error.
struct Pace {
    plan: Plan,
    begin: Instant,
    step: u32,
    steps: u32,
    /// When the last measurement began, and its allotted time.
    last: Option<(Instant, Duration)>,
    /// Time that measurements take beyond the allotted: connecting, ending.
    beyond: Duration,
    shown: bool,
}

impl Pace {
    fn new(plan: Plan, steps: u32) -> Self {
        let (begin, shown) = (Instant::now(), std::io::stderr().is_terminal());
        Self { plan, begin, step: 0, steps, last: None, beyond: Duration::ZERO, shown }
    }

    /// Time for the next measurement.
    fn next(&mut self, what: What) -> Duration {
        let now = Instant::now();
        if let Some((began, given)) = self.last {
            // A moving average, so that one delayed measurement has little effect.
            self.beyond = (7 * self.beyond + (now - began).saturating_sub(given)) / 8;
        }
        let slice = if self.plan.in_all {
            let left = self.plan.time.saturating_sub(now - self.begin) / (self.steps - self.step);
            left.saturating_sub(self.beyond).max(SHORTEST)
        } else {
            self.plan.time
        };
        self.step += 1;
        self.last = Some((now, slice));
        self.show(what);
        slice
    }

    fn show(&self, what: What) {
        if self.shown {
            let what = match what {
                What::Ours(case) => case.to_string(),
                What::Raw(_) => "raw TCP".into(),
            };
            eprint!("\r\x1b[K{} of {}: {what}", self.step, self.steps);
        }
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::case::Op;

    #[test]
    fn each_reference_is_measured_once_per_round() {
        let case = |op, size| Case::new(op, Mode::Bw, size);
        let cases = [case(Op::Write, 4096), case(Op::Send, 4096), case(Op::Write, 65536)];
        let order = order(&cases, true);
        let raw = order.iter().filter(|what| matches!(what, What::Raw(_))).count();
        assert_eq!((raw, order.len()), (4, 7));
        assert_eq!(super::order(&cases, false).len(), 3);
    }
}
