//! How a dispatcher is made, and what it says of itself. Values only.

use std::os::fd::RawFd;
use std::sync::Arc;

use super::{Evd, Event, Overflow, Stream};

/// For creating an [`Evd`] (IT-API `it_evd_create`).
#[derive(Clone, Debug)]
pub struct EvdInit {
    /// What it carries.
    pub stream: Stream,
    /// Events it can hold. Connection events are never lost, whatever the depth. Means nothing for
    /// an aggregate dispatcher.
    pub depth: u32,
    /// Notification events that must be there before waiters, the descriptor, the callback and the
    /// aggregate dispatcher are told; 0: never, 1: every one. Means nothing for an aggregate
    /// dispatcher: each that feeds it counts.
    pub threshold: u32,
    /// The aggregate dispatcher that it feeds.
    pub aggregate: Option<Arc<Evd>>,
    /// What happens without room.
    pub overflow: Overflow,
    /// Aggregate only: hands out the events themselves instead of notifications.
    pub underlying: bool,
    /// Events, other than completions, for which it says no are not queued: the face above would drop
    /// them, after they had woken somebody and been counted.
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

/// A dispatcher as it is (IT-API `it_evd_query`).
#[derive(Clone, Debug)]
pub struct EvdInfo {
    /// What it carries.
    pub stream: Stream,
    /// Events it can hold.
    pub depth: u32,
    /// Notification events that make it notify.
    pub threshold: u32,
    /// The aggregate dispatcher that it feeds.
    pub aggregate: Option<Arc<Evd>>,
    /// Its descriptor, once [`Evd::fd`] was called.
    pub fd: Option<RawFd>,
    /// Endpoints, listeners or other dispatchers use it.
    pub bound: bool,
    /// It notifies; else it only queues.
    pub enabled: bool,
    /// Events were lost, and no room appeared since ([`Overflow::auto_reset`]), or nobody called
    /// [`Evd::clear_overflow`].
    pub overflowed: bool,
    /// A callback is attached.
    pub callback: bool,
    /// Aggregate only: hands out the events themselves.
    pub underlying: bool,
    /// What happens without room.
    pub overflow: Overflow,
}
