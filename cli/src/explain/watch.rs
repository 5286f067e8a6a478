//! Samples a process for a while: its page many times, its socket and /proc at the beginning and at the end.

use std::time::{Duration, Instant};

use state_page::layout::state;
use state_page::read::QueuePair;
use ual::observe::questions::{RoundTrip, Tcp};

use super::args::{ExplainArgs, Which};
use super::ask::{self, VerbCounts};
use super::evidence::{Evidence, Samples};
use super::find::{self, Chosen};
use super::glance::Glance;
use super::peer::Watched;
use super::processor::Threads;
use crate::error::CliResult;
use crate::signals;
use crate::stat::pages::Seen;

/// Time between two samples of the page; longer where sampling takes long, because there are thousands of connections.
const STEP: Duration = Duration::from_millis(10);
/// The pause after a sample, as a multiple of the time that it took.
const PAUSE: u32 = 4;
/// How long to search for the busiest connection.
const SEARCH: Duration = Duration::from_millis(100);

/// The figures of the connection that the arguments name.
pub(super) fn watch(args: &ExplainArgs) -> CliResult<Evidence> {
    let first = find::pages(args.which)?;
    std::thread::sleep(SEARCH);
    let (seen, qp) = find::chosen(args.which, &first)?;
    Ok(watch_one(args.which, seen, qp, args.seconds))
}

/// The figures of this connection, which is one of the process in `which`.
pub(super) fn watch_one(which: Which, seen: Seen, qp: QueuePair, seconds: Duration) -> Evidence {
    let chosen = Chosen::new(&seen, &qp);
    let begin = Moment::take(&seen, qp);
    let mut samples = Samples::default();
    let mut last = begin.clone();
    last.notes.clear();
    let (mut glance, mut peer) = (Glance::default(), Watched::find(&last.queue_pair));
    let (began, mut pause) = (Instant::now(), STEP);
    while began.elapsed() < seconds && !signals::caught() {
        std::thread::sleep(pause);
        let begun = Instant::now();
        let found = chosen.again(which);
        pause = STEP.max(PAUSE * begun.elapsed());
        let Some((seen, now)) = found else {
            last.notes.push("the connection or its process has ended meanwhile".to_owned());
            break;
        };
        glance = Glance::take(glance, &seen, &now, || chosen.again(which));
        if let Some(peer) = &mut peer {
            peer.sample();
        }
        samples.add(&last.queue_pair, &now, glance);
        let ended = now.state != state::RTS;
        last.sample(&seen, now);
        // What has ended does not change any more.
        if ended {
            break;
        }
    }
    last.ask(&seen);
    Evidence { peer: peer.map(Watched::end), ..Evidence::between(&begin, &last, samples) }
}

/// One moment of a connection.
#[derive(Clone)]
pub(super) struct Moment {
    pub(super) at: Instant,
    pub(super) pid: u32,
    pub(super) exe: String,
    pub(super) queue_pair: QueuePair,
    /// Of all connections of its adapter.
    pub(super) visits: u64,
    /// Of its adapter.
    pub(super) sleeps: u64,
    pub(super) engine_served: u64,
    pub(super) vain_polls: u64,
    pub(super) arms: u64,
    pub(super) tcp: Option<Tcp>,
    pub(super) round_trip: Option<RoundTrip>,
    pub(super) verbs: Option<VerbCounts>,
    pub(super) threads: Option<Threads>,
    pub(super) notes: Vec<String>,
}

impl Moment {
    fn take(seen: &Seen, queue_pair: QueuePair) -> Self {
        let mut moment = Self {
            at: Instant::now(),
            pid: seen.page.process.pid,
            exe: seen.page.process.exe.clone(),
            queue_pair: queue_pair.clone(),
            visits: 0,
            sleeps: 0,
            engine_served: 0,
            vain_polls: 0,
            arms: 0,
            tcp: None,
            round_trip: None,
            verbs: None,
            threads: None,
            notes: Vec::new(),
        };
        // First, because the process may take its time.
        moment.ask(seen);
        moment.sample(seen, queue_pair);
        moment
    }

    fn sample(&mut self, seen: &Seen, queue_pair: QueuePair) {
        let of_adapter = |of: &&QueuePair| of.device == queue_pair.device;
        let all = seen.page.queue_pairs.iter().filter(of_adapter);
        self.visits = all.fold(0, |sum, of| sum.wrapping_add(of.visits));
        let mut devices = seen.page.devices.iter();
        if let Some((_, device)) = devices.find(|(index, _)| *index == queue_pair.device) {
            (self.sleeps, self.engine_served) = (device.sleeps, device.engine_served);
            (self.vain_polls, self.arms) = (device.vain_polls, device.arms);
        }
        self.queue_pair = queue_pair;
        self.at = Instant::now();
    }

    fn ask(&mut self, seen: &Seen) {
        match ask::path(seen, self.queue_pair.device, self.queue_pair.qp) {
            Ok((tcp, round_trip)) => {
                (self.tcp, self.round_trip) = (tcp, round_trip);
                self.verbs = ask::verbs(seen);
            }
            Err(why) => self.notes.push(why),
        }
        self.threads = Threads::of(self.pid);
    }
}
