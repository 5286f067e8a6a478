//! Sources of received datagrams whose completions were not polled.
//!
//! Owner: a CQ. The thread that receives adds a source before it queues the completion; the thread that polls takes it.
//! The ring behind a CQ has no room for sources, so a completion carries a token in a field that completions of
//! datagrams do not use. Full: there are no more sources than completions.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use kal_os::lock;
use vp_api::{DatagramSource, QpId, Stag, WorkCompletion};

#[derive(Default)]
struct Waiting {
    last: u32,
    all: BTreeMap<(QpId, u32), DatagramSource>,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Sources {
    waiting: Mutex<Waiting>,
    /// How many there are, so that completions of connections take no lock.
    count: AtomicUsize,
}

impl Sources {
    /// Stores the source of a completion that will be queued, and marks the completion.
    pub(crate) fn add(&self, completion: &mut WorkCompletion, source: DatagramSource) {
        let mut waiting = lock(&self.waiting);
        waiting.last = waiting.last.wrapping_add(1);
        let token = waiting.last;
        waiting.all.insert((completion.qp, token), source);
        completion.invalidated = Some(Stag(token));
        self.count.store(waiting.all.len(), Ordering::Release);
    }

    /// Takes the source of a completion, and removes the mark.
    pub(crate) fn take(&self, completion: &mut WorkCompletion) -> Option<DatagramSource> {
        let token = completion.invalidated?;
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut waiting = lock(&self.waiting);
        let source = waiting.all.remove(&(completion.qp, token.0))?;
        completion.invalidated = None;
        self.count.store(waiting.all.len(), Ordering::Release);
        Some(source)
    }

    /// Removes the sources of a QP.
    pub(crate) fn remove(&self, qp: QpId) {
        let mut waiting = lock(&self.waiting);
        waiting.all.retain(|(of, _), _| *of != qp);
        self.count.store(waiting.all.len(), Ordering::Release);
    }
}
