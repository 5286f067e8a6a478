//! Parameters and attributes of an event dispatcher. Plain values.

use std::os::fd::RawFd;
use std::sync::Arc;

use super::{Evd, Event, Overflow, Stream};

/// For creating an [`Evd`] (IT-API `it_evd_create`).
#[derive(Clone, Debug)]
pub struct EvdInit {
    /// The kind of events that it carries.
    pub stream: Stream,
    /// Events it can hold. Connection events are never lost, whatever the depth. Ignored for an
    /// aggregate dispatcher.
    pub depth: u32,
    /// Number of waiting notification events at which waiters, the descriptor, the callback and the
    /// aggregate dispatcher are notified; 0: never, 1: every one. Ignored for an aggregate dispatcher:
    /// each that feeds it counts.
    pub threshold: u32,
    /// The aggregate dispatcher that it feeds.
    pub aggregate: Option<Arc<Evd>>,
    /// What happens if there is no room.
    pub overflow: Overflow,
    /// Aggregate only: hands out the events themselves instead of notifications.
    pub underlying: bool,
    /// Events, except completions, for which this returns false are not queued: the face above would
    /// drop them, after they had woken a thread and been counted.
    pub wanted: fn(&Event) -> bool,
}

impl EvdInit {
    /// Every event notifies, and nothing is aggregated.
    pub fn new(stream: Stream, depth: u32) -> Self {
        let overflow = Overflow::default();
        let (aggregate, underlying) = (None, false);
        Self { stream, depth, threshold: 1, aggregate, overflow, underlying, wanted: |_| true }
    }
}

/// The attributes of a dispatcher (IT-API `it_evd_query`).
#[derive(Clone, Debug)]
pub struct EvdInfo {
    /// The kind of events that it carries.
    pub stream: Stream,
    /// Events it can hold.
    pub depth: u32,
    /// Number of notification events at which it notifies.
    pub threshold: u32,
    /// The aggregate dispatcher that it feeds.
    pub aggregate: Option<Arc<Evd>>,
    /// Its descriptor, once [`Evd::fd`] was called.
    pub fd: Option<RawFd>,
    /// Endpoints, listeners or other dispatchers use it.
    pub bound: bool,
    /// It notifies; otherwise it only queues.
    pub enabled: bool,
    /// Events were lost, and since then neither room appeared ([`Overflow::auto_reset`]) nor was
    /// [`Evd::clear_overflow`] called.
    pub overflowed: bool,
    /// A callback is attached.
    pub callback: bool,
    /// Aggregate only: hands out the events themselves.
    pub underlying: bool,
    /// What happens if there is no room.
    pub overflow: Overflow,
}
