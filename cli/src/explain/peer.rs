//! The process at the other end of a connection, if it is on this host and may be seen: what it did meanwhile.

use state_page::read::QueuePair;

use super::args::Which;
use super::find::{self, Chosen};
use super::glance::Glance;
use super::processor::{Processor, Threads};
use crate::stat::pages::{Seen, Snapshot};

/// What the peer's process did; shares of the samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Peer {
    pub(crate) pid: u32,
    pub(crate) exe: String,
    /// It was stopped.
    pub(crate) stopped: f64,
    /// A thread of it waited for completions, or polled in vain.
    pub(crate) looking: f64,
    /// Seconds that its busiest thread ran.
    pub(crate) ran: f64,
    /// Seconds that this thread was ready to run and had no processor.
    pub(crate) waited: f64,
}

/// The process while it is watched.
pub(super) struct Watched {
    which: Which,
    exe: String,
    chosen: Chosen,
    begin: Option<Threads>,
    last: Glance,
    taken: u32,
    stopped: u32,
    looking: u32,
}

impl Watched {
    /// The other end of this connection; `None`: it is not on this host, or belongs to another user.
    pub(super) fn find(qp: &QueuePair) -> Option<Self> {
        let snapshot = Snapshot::take(None, find::sees_all()).ok()?;
        let ends = |seen: &Seen| Some((seen.clone(), other_end(seen, qp)?.clone()));
        let (seen, of) = snapshot.processes.iter().find_map(ends)?;
        let process = &seen.page.process;
        Some(Self {
            which: Which { pid: process.pid, qp: Some(of.qp) },
            exe: process.exe.clone(),
            chosen: Chosen::new(&seen, &of),
            begin: Threads::of(process.pid),
            last: Glance::default(),
            taken: 0,
            stopped: 0,
            looking: 0,
        })
    }

    /// Takes a sample.
    pub(super) fn sample(&mut self) {
        let again = || self.chosen.again(self.which);
        let Some((seen, of)) = again() else { return };
        self.last = Glance::take(self.last, &seen, &of, again);
        self.taken += 1;
        self.stopped += u32::from(self.last.stopped);
        self.looking += u32::from(self.last.looking);
    }

    /// What it did in all.
    pub(super) fn end(self) -> Peer {
        let part = |of: u32| f64::from(of) / f64::from(self.taken.max(1));
        let threads = self.begin.as_ref().zip(Threads::of(self.which.pid));
        let busiest = threads.map_or_else(Default::default, |(begin, end)| end.since(begin));
        let (stopped, looking) = (part(self.stopped), part(self.looking));
        let Processor { ran, waited, .. } = busiest;
        Peer { pid: self.which.pid, exe: self.exe, stopped, looking, ran, waited }
    }
}

/// The queue pair with the same addresses, and on RoCE the same numbers, the other way round.
fn other_end<'a>(seen: &'a Seen, qp: &QueuePair) -> Option<&'a QueuePair> {
    let known = qp.local.is_some() && qp.remote.is_some();
    let (here, there) = qp.numbers();
    let is_other = |of: &&QueuePair| {
        (of.local, of.remote, of.is_roce()) == (qp.remote, qp.local, qp.is_roce())
            && (!qp.is_roce() || of.numbers() == (there, here))
    };
    seen.page.queue_pairs.iter().filter(|_| known).find(is_other)
}

impl Peer {
    /// What keeps it from serving the connection, and what to do; `None`: it is not known.
    pub(super) fn fault(&self, seconds: f64) -> Option<(String, String)> {
        let Self { pid, exe, .. } = self;
        let ran = self.ran / seconds;
        if self.stopped > 0.5 {
            let shows = format!("its process, {pid} {exe}, is stopped");
            return Some((shows, format!("kill -CONT {pid}")));
        }
        let shows = match ran > 0.9 {
            true => format!(
                "a thread of its process, {pid} {exe}, ran {:.0} % of the time",
                100.0 * ran
            ),
            false if self.looking < 0.5 => {
                format!("its process, {pid} {exe}, does not look for messages")
            }
            false => return None,
        };
        Some((shows, format!("`warpline explain {pid}`, or profile it: perf record -g -p {pid}")))
    }

    /// It looks for messages, too.
    pub(super) fn looks(&self) -> bool {
        self.looking > 0.5
    }
}
