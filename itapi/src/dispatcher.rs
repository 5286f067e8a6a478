//! What all event dispatchers share: thresholds, overflow, descriptors to watch, and their builder. The access
//! layer owns the queues; any thread.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ual::{EvdInit, Event, Overflow, Stream};

use crate::error::Result;
use crate::ia::Ia;
use crate::ids::EvdId;

/// The calls that every event dispatcher has: [`crate::Evd`] and all [`crate::Events`] dereference to it.
///
/// An event that *notifies* counts towards the threshold; all do, except completions of
/// [quiet](crate::Work::quiet) work. When as many as the threshold are queued, the dispatcher wakes the threads
/// that wait, its descriptor becomes readable, its callback runs, and it notifies the aggregate dispatcher that
/// it feeds.
///
/// ```
/// # use std::os::fd::AsRawFd;
/// # fn main() -> itapi::Result<()> {
/// # let ia = itapi::Ia::open()?;
/// let evd = ia.evd(64)?;
/// evd.set_threshold(8)?; // wake me for eight
/// let watch = evd.fd()?.as_raw_fd(); // for poll, epoll and the like
/// assert_eq!(evd.info().threshold, 8);
/// # assert!(watch >= 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Dispatcher(Arc<ual::Evd>);

/// State and settings of a dispatcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EvdInfo {
    /// The stream that it carries.
    pub stream: Stream,
    /// Events that it can hold.
    pub depth: u32,
    /// Notification events that must be queued before waiters are woken; 0: they never are.
    pub threshold: u32,
    /// The aggregate dispatcher that it feeds.
    pub aggregate: Option<EvdId>,
    /// True: it notifies. False: it only queues.
    pub enabled: bool,
    /// True while events are lost, see [`Overflow`].
    pub overflowed: bool,
    /// What happens when it is full.
    pub overflow: Overflow,
    /// A callback is attached.
    pub callback: bool,
    /// Endpoints, listeners or other dispatchers use it.
    pub bound: bool,
}

impl Dispatcher {
    pub(crate) fn new(evd: Arc<ual::Evd>) -> Self {
        Self(evd)
    }

    /// Its id in what aggregate dispatchers return and in asynchronous events.
    pub fn id(&self) -> EvdId {
        EvdId::of(&self.0)
    }

    /// Events that it can hold. [`Overflow`] determines what happens to more; connection events are never lost.
    pub fn depth(&self) -> u32 {
        self.0.depth()
    }

    /// About how many events are queued.
    pub fn queued(&self) -> usize {
        self.0.queued()
    }

    /// State and settings (`it_evd_query`).
    pub fn info(&self) -> EvdInfo {
        let info = self.0.info();
        EvdInfo {
            stream: info.stream,
            depth: info.depth,
            threshold: info.threshold,
            aggregate: info.aggregate.as_deref().map(EvdId::of),
            enabled: info.enabled,
            overflowed: info.overflowed,
            overflow: info.overflow,
            callback: info.callback,
            bound: info.bound,
        }
    }

    /// Changes the depth, also while events arrive; none is lost (`it_evd_modify`). Returns the new depth.
    pub fn resize(&self, depth: u32) -> Result<u32> {
        Ok(self.0.resize(depth)?)
    }

    /// Notification events that must be queued before waiters are woken: 1 by default, 0 for never.
    pub fn set_threshold(&self, events: u32) -> Result<()> {
        Ok(self.0.set_threshold(events)?)
    }

    /// A disabled dispatcher queues events and does not notify; enabled again, it notifies of what is queued.
    pub fn set_enabled(&self, enabled: bool) -> Result<()> {
        Ok(self.0.set_enabled(enabled)?)
    }

    /// Makes it feed an aggregate dispatcher, or none.
    pub fn set_aggregate(&self, aggregate: Option<&dyn Aggregate>) -> Result<()> {
        Ok(self.0.set_aggregate(aggregate.map(|to| to.dispatcher().ual()))?)
    }

    /// Changes what happens when it is full.
    pub fn set_overflow(&self, overflow: Overflow) {
        self.0.set_overflow(overflow);
    }

    /// Queues events again after an overflow without automatic reset.
    pub fn clear_overflow(&self) {
        self.0.clear_overflow();
    }

    /// Makes every present wait end with [`ual::Error::Interrupted`].
    pub fn interrupt(&self) {
        self.0.interrupt();
    }

    /// Makes every present and later wait end with [`ual::Error::Aborted`]: for shutting down.
    pub fn abort(&self) {
        self.0.abort();
    }

    /// A descriptor for `poll`, `epoll` and the like: readable while the dispatcher would notify. Take events
    /// until there is none, then wait for the descriptor again. Never read from it.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.0.fd()?)
    }

    /// Removes the callback (`it_evd_callback_detach`). When this returns, the callback is not running, unless
    /// it made this call itself.
    pub fn detach_callback(&self) -> Result<()> {
        Ok(self.0.detach_callback()?)
    }

    pub(crate) fn ual(&self) -> &Arc<ual::Evd> {
        &self.0
    }
}

impl std::fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Made from a dispatcher of the access layer.
pub(crate) trait Make {
    const STREAM: Stream;
    fn make(evd: Arc<ual::Evd>) -> Self;
}

/// The next event of `evd` that `pick` accepts; `None` after the time-out. `pick` gets the id of the dispatcher
/// that the event came to first. Signal handlers do not end the wait, nor does SIGCONT behind SIGSTOP, after which the
/// kernel ends a call as after a handler (signal(7)).
pub(crate) fn next<T>(
    evd: &Arc<ual::Evd>,
    timeout: Option<Duration>,
    pick: impl Fn(Event, &Arc<ual::Evd>) -> Option<T>,
) -> Result<Option<T>> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut left = timeout;
    loop {
        match evd.wait_for(left, |event, origin| pick(event, origin.as_ref().unwrap_or(evd))) {
            Ok(event) => return Ok(Some(event)),
            Err(ual::Error::Timeout(_)) => return Ok(None),
            Err(ual::Error::Signal) => {
                let until = |at: Instant| at.saturating_duration_since(Instant::now());
                left = deadline.map(until).or(left);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Dispatchers that other dispatchers can feed: [`crate::Aevd`], [`crate::AnyEvd`].
pub trait Aggregate: sealed::Aggregate {}

pub(crate) mod sealed {
    pub trait Aggregate {
        fn dispatcher(&self) -> &super::Dispatcher;
    }
}

/// Makes an event dispatcher (`it_evd_create`).
///
/// ```
/// # use itapi::{Aevd, ConnEvd, Evd, Overflow};
/// # fn main() -> itapi::Result<()> {
/// # let ia = itapi::Ia::open()?;
/// let all = Aevd::builder(&ia).build()?;
/// let work = Evd::builder(&ia, 256).threshold(4).aggregate(&all).build()?;
/// let events = ConnEvd::builder(&ia, 64).aggregate(&all).build()?;
/// work.set_overflow(Overflow { notify: true, auto_reset: false });
/// assert_eq!(events.info().aggregate, Some(all.id()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EvdBuilder<'a, T> {
    ia: &'a Ia,
    init: EvdInit,
    enabled: bool,
    makes: PhantomData<fn() -> T>,
}

#[allow(private_bounds)] // only this crate implements it
impl<'a, T: Make> EvdBuilder<'a, T> {
    pub(crate) fn new(ia: &'a Ia, depth: u32) -> Self {
        let init = EvdInit::new(T::STREAM, depth);
        Self { ia, init, enabled: true, makes: PhantomData }
    }

    /// See [`Dispatcher::set_threshold`].
    pub fn threshold(mut self, events: u32) -> Self {
        self.init.threshold = events;
        self
    }

    /// The aggregate dispatcher that it feeds.
    pub fn aggregate(mut self, aggregate: &dyn Aggregate) -> Self {
        self.init.aggregate = Some(aggregate.dispatcher().ual().clone());
        self
    }

    /// What happens when it is full: by default [`crate::AsyncEvd`] gets an event, and events are queued again
    /// as soon as there is room.
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.init.overflow = overflow;
        self
    }

    /// Creates it disabled: it only queues until [`Dispatcher::set_enabled`].
    pub fn disabled(mut self) -> Self {
        self.enabled = false;
        self
    }

    /// An aggregate dispatcher that returns events, not ids.
    pub(crate) fn underlying(mut self) -> Self {
        self.init.underlying = true;
        self
    }

    /// Creates it.
    pub fn build(self) -> Result<T> {
        let evd = self.ia.ual().create_evd(self.init)?;
        evd.tag().set(EvdId::new().0);
        if !self.enabled {
            evd.set_enabled(false)?;
        }
        Ok(T::make(evd))
    }
}
