//! Ids of objects and work requests, and the kinds of work requests. Plain values.

use std::sync::atomic::{AtomicU64, Ordering};

/// Id of an endpoint of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EpId(pub(crate) u32);

/// Id of an event dispatcher in what aggregate dispatchers return and in asynchronous events; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EvdId(pub(crate) u64);

impl EvdId {
    pub(crate) fn of(evd: &ual::Evd) -> Self {
        Self(evd.tag().get())
    }

    /// An id that no dispatcher had before.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Id of a shared receive queue in asynchronous events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SrqId(pub(crate) u32);

/// Id of a posted work request: unique per queue while it is outstanding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkId(pub(crate) u64);

/// Ids of work requests that were posted together, in order.
#[derive(Clone, Debug)]
pub struct WorkIds(pub(crate) std::ops::Range<u64>);

impl Iterator for WorkIds {
    type Item = WorkId;

    fn next(&mut self) -> Option<WorkId> {
        self.0.next().map(WorkId)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

/// What completed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Operation {
    Send,
    Write,
    Immediate,
    Read,
    Atomic,
    /// Of a window.
    Link,
    /// Of a window.
    Unlink,
    LinkLmr,
    UnlinkLmr,
    /// A receive that a Send took.
    Recv,
    /// A receive that Immediate Data took.
    RecvImmediate,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Send => "Send",
            Self::Write => "RDMA Write",
            Self::Immediate => "Immediate Data",
            Self::Read => "RDMA Read",
            Self::Atomic => "atomic operation",
            Self::Link => "window link",
            Self::Unlink => "window unlink",
            Self::LinkLmr => "region link",
            Self::UnlinkLmr => "region unlink",
            Self::Recv | Self::RecvImmediate => "receive",
        })
    }
}
