//! What identifies a process, or one of its queue pairs, in all snapshots. Plain data.

use std::path::Path;
use std::sync::Arc;

use state_page::read::QueuePair;

use super::pages::Seen;

/// A process, or one of its queue pairs; a number that is used again is another one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Id {
    page: Arc<Path>,
    start: u64,
    /// Adapter, number and generation.
    queue_pair: Option<(u32, u32, u64)>,
}

impl Id {
    pub(crate) fn process(seen: &Seen) -> Self {
        Self { page: seen.socket.clone(), start: seen.page.process.start, queue_pair: None }
    }

    pub(crate) fn queue_pair(seen: &Seen, qp: &QueuePair) -> Self {
        let queue_pair = Some((qp.device, qp.qp, qp.generation));
        Self { queue_pair, ..Self::process(seen) }
    }

    /// The queue pair among these processes.
    pub(crate) fn find<'a>(&self, all: &'a [Seen]) -> Option<(&'a Seen, &'a QueuePair)> {
        let is_of =
            |seen: &&Seen| seen.socket == self.page && seen.page.process.start == self.start;
        let seen = all.iter().find(is_of)?;
        let is_it = |qp: &&QueuePair| self.queue_pair == Some((qp.device, qp.qp, qp.generation));
        Some((seen, seen.page.queue_pairs.iter().find(is_it)?))
    }
}
