//! Finds the connection to explain among the pages of a process, and reports the cause if there is none.

use state_page::layout::state;
use state_page::place;
use state_page::read::QueuePair;

use super::args::Which;
use crate::error::{CliError, CliResult, Exit};
use crate::stat::absent;
use crate::stat::id::Id;
use crate::stat::pages::{Seen, Snapshot, directory, uid};

/// Whether this user sees the pages of all users.
pub(super) fn sees_all() -> bool {
    uid() == 0
}

/// The pages of the process; it has several if it has several copies of the library.
pub(super) fn pages(which: Which) -> CliResult<Vec<Seen>> {
    let page = directory().join(format!("{}.{}", which.pid, place::PAGE));
    let was_there = page.exists();
    let snapshot = Snapshot::take(Some(which.pid), false)?;
    match snapshot.processes.is_empty() {
        true if was_there && !page.exists() => {
            Err(failed(format!("process {} has ended", which.pid))
                .at(snapshot.places())
                .because("it was killed; the state page that it left has been removed")
                .hint(absent::OTHERS))
        }
        true => Err(absent::of(which.pid, &snapshot)),
        false => Ok(snapshot.processes),
    }
}

/// The queue pair with this number, or else the one that has moved most octets since `before`. If none has moved any,
/// a connected one, or else the last that was connected.
pub(super) fn chosen(which: Which, before: &[Seen]) -> CliResult<(Seen, QueuePair)> {
    let now = pages(which)?;
    let moved = |seen: &Seen, of: &QueuePair| {
        let chosen = Chosen::new(seen, of);
        let sum = |of: &QueuePair| of.octets_sent.wrapping_add(of.octets_received);
        chosen.among(before).map_or(0, |(_, before)| sum(of).wrapping_sub(sum(before)))
    };
    let all = now.iter().flat_map(|seen| seen.page.queue_pairs.iter().map(move |qp| (seen, qp)));
    let wanted = all.filter(|(_, qp)| which.qp.is_none_or(|number| number == qp.qp));
    let busiest =
        wanted.max_by_key(|(seen, qp)| (moved(seen, qp), qp.state == state::RTS, qp.began));
    let Some((seen, qp)) = busiest else {
        let what = match which.qp {
            Some(qp) => format!("process {} has no queue pair {qp}", which.pid),
            None => format!("process {} has no queue pair", which.pid),
        };
        return Err(failed(what).hint(format!("`warpline stat {}` shows what it has", which.pid)));
    };
    if !qp.is_written() {
        return Err(failed(format!("queue pair {} has no counters", qp.qp))
            .because("its provider does not publish them: only the built-in ones do"));
    }
    if qp.began == 0 {
        return Err(failed(format!("queue pair {} was never connected", qp.qp))
            .hint(format!("`warpline stat {}` shows the others", which.pid)));
    }
    Ok((seen.clone(), qp.clone()))
}

fn failed(what: String) -> CliError {
    CliError::new(Exit::Failed, what)
}

/// One stream of a queue pair, to find it again.
pub(super) struct Chosen {
    id: Id,
    began: u64,
}

impl Chosen {
    pub(super) fn new(seen: &Seen, of: &QueuePair) -> Self {
        Self { id: Id::queue_pair(seen, of), began: of.began }
    }

    /// The stream in a new sample. `None`: the process, the queue pair or the stream has ended.
    pub(super) fn again(&self, which: Which) -> Option<(Seen, QueuePair)> {
        let all = pages(which).ok()?;
        let (seen, qp) = self.among(&all)?;
        Some((seen.clone(), qp.clone()))
    }

    fn among<'a>(&self, all: &'a [Seen]) -> Option<(&'a Seen, &'a QueuePair)> {
        self.id.find(all).filter(|(_, qp)| qp.began == self.began)
    }
}
