//! The event dispatcher (IT-API SEVD): one stream of events, taken by polling, waiting, or through
//! a descriptor.
//!
//! An Evd owns its queue, or the provider's completion queue. Any number of threads may take
//! events; each event goes to one of them.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use vp_api::{Cq, WorkCompletion};

use super::completion::Completions;
use super::queue::Queue;
use super::{EvdInfo, EvdInit, Event, Overflow, Stream};
use crate::error::{Error, Object, Result};
use crate::life::{Hold, Life, Living};
use crate::resource::Ia;
use crate::tag::Tag;

/// Event dispatcher.
pub struct Evd {
    stream: Stream,
    source: Source,
    spin: Duration,
    life: Life,
    tag: Tag,
    ia: Hold<Ia>,
}

enum Source {
    Queue(Queue),
    Completions(Completions),
}

impl Evd {
    pub(crate) fn new(ia: &Arc<Ia>, init: EvdInit) -> Result<Arc<Self>> {
        if init.depth == 0 {
            return Err(Error::InvalidArgument("an event dispatcher needs a depth above 0".into()));
        }
        let ia = Hold::new(ia)?;
        let source = match init.stream {
            Stream::Completion => Source::Completions(Completions::new(ia.rnic(), init.depth)?),
            _ => Source::Queue(Queue::new(init.depth)?),
        };
        let evd = Arc::new(Self {
            stream: init.stream,
            source,
            spin: ia.policy().spin,
            life: Life::new(Object::Evd),
            tag: Tag::default(),
            ia,
        });
        evd.ia.directory().add_evd(&evd);
        Ok(evd)
    }

    /// What it carries.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// What the face above knows it by.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Its Ia.
    pub fn ia(&self) -> &Arc<Ia> {
        self.ia.arc()
    }

    /// Events it can hold.
    pub fn depth(&self) -> u32 {
        match &self.source {
            Source::Queue(queue) => queue.depth(),
            Source::Completions(completions) => completions.cq().depth(),
        }
    }

    /// Changes the depth; nothing is lost. Answers the new depth.
    pub fn resize(&self, depth: u32) -> Result<u32> {
        match &self.source {
            Source::Queue(queue) => {
                queue.resize(depth.max(1));
                Ok(queue.depth())
            }
            Source::Completions(completions) => {
                let verb = Error::verb("resize the completion queue");
                completions.cq().resize(depth).map_err(verb)
            }
        }
    }

    /// Completions only: moves up to `out.len()` of them to `out`, oldest first. No lock of the
    /// access layer, no copy in between.
    #[inline]
    pub fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize> {
        match &self.source {
            Source::Completions(completions) => completions.poll(out),
            Source::Queue(_) => Err(self.wrong_stream(Stream::Completion)),
        }
    }

    /// The oldest event, if there is one (IT-API `it_evd_dequeue`).
    pub fn dequeue(self: &Arc<Self>) -> Result<Option<Event>> {
        match &self.source {
            Source::Queue(queue) => queue.pop(),
            Source::Completions(completions) => Ok(completions.pop()?.map(Event::Completion)),
        }
    }

    /// The oldest event, waiting until there is one (IT-API `it_evd_wait`); `None`: for ever.
    /// Errors: [`Error::Timeout`], [`Error::Interrupted`].
    pub fn wait(self: &Arc<Self>, timeout: Option<Duration>) -> Result<Event> {
        let _in_use = Hold::new(self)?;
        match &self.source {
            Source::Queue(queue) => queue.wait(timeout),
            Source::Completions(completions) => {
                completions.wait(self.spin, timeout).map(Event::Completion)
            }
        }
    }

    /// Completions only: waits until [`Evd::poll`] may find one; false after the time-out.
    pub fn wait_ready(self: &Arc<Self>, timeout: Option<Duration>) -> Result<bool> {
        let _in_use = Hold::new(self)?;
        match &self.source {
            Source::Completions(completions) => completions.ready(self.spin, timeout),
            Source::Queue(_) => Err(self.wrong_stream(Stream::Completion)),
        }
    }

    /// Makes every present wait on this dispatcher return [`Error::Interrupted`] soon.
    pub fn interrupt(&self) {
        match &self.source {
            Source::Queue(queue) => queue.interrupt(),
            Source::Completions(completions) => completions.interrupt(),
        }
    }

    /// A descriptor for `poll`, `epoll` and the like: readable while there may be an event. Take
    /// events until [`Evd::dequeue`] says `None`, then wait for it again. Never read from it.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        match &self.source {
            Source::Queue(queue) => Ok(queue.notifier().as_fd()),
            Source::Completions(completions) => Ok(completions.notifier()?.as_fd()),
        }
    }

    /// Software dispatchers only: adds an event (IT-API `it_evd_post_se`).
    pub fn post_software(&self, data: u64) -> Result<()> {
        match &self.source {
            Source::Queue(queue) if self.stream == Stream::Software => {
                let depth = queue.depth();
                let added = queue.push(Event::Software(data), false);
                added.then_some(()).ok_or(Error::QueueFull { depth })
            }
            _ => Err(self.wrong_stream(Stream::Software)),
        }
    }

    /// Changes the number of notification events that make it notify; 0: never.
    pub fn set_threshold(&self, threshold: u32) -> Result<()> {
        self.later(threshold == 1)
    }

    /// Disabled, it queues events and tells nobody.
    pub fn set_enabled(&self, enabled: bool) -> Result<()> {
        self.later(enabled)
    }

    /// Makes it feed an aggregate dispatcher, or none.
    pub fn set_aggregate(self: &Arc<Self>, aggregate: Option<&Arc<Self>>) -> Result<()> {
        self.later(aggregate.is_none())
    }

    /// Changes what happens without room.
    pub fn set_overflow(&self, _overflow: Overflow) {}

    /// Takes events again after an overflow.
    pub fn clear_overflow(&self) {}

    /// Attaches a function that is called, on a thread of the Ia, whenever it notifies.
    pub fn attach_callback(
        self: &Arc<Self>,
        _callback: Box<dyn Fn(&Arc<Self>) + Send + Sync>,
    ) -> Result<()> {
        self.later(false)
    }

    /// Takes the callback away. When this returns it is not running, unless called from inside.
    pub fn detach_callback(&self) -> Result<()> {
        self.later(false)
    }

    /// Makes every present and later wait end with [`Error::Aborted`].
    pub fn abort(&self) {
        self.interrupt();
    }

    /// The dispatcher as it is.
    pub fn info(&self) -> EvdInfo {
        EvdInfo {
            stream: self.stream,
            depth: self.depth(),
            threshold: 1,
            aggregate: None,
            fd: None,
            bound: false,
            enabled: true,
            overflowed: false,
            callback: false,
            underlying: false,
            overflow: Overflow::default(),
        }
    }

    fn later(&self, done: bool) -> Result<()> {
        done.then_some(()).ok_or_else(|| Error::InvalidArgument("not supported yet".into()))
    }

    /// Closes it; refused while endpoints, listeners or waiters use it. Events in it vanish.
    pub fn close(&self) -> Result<()> {
        self.life.close()?;
        let destroyed = match &self.source {
            Source::Queue(_) => Ok(()),
            Source::Completions(completions) => self.ia.rnic().destroy_cq(completions.cq().id()),
        };
        if let Err(error) = destroyed {
            self.life.reopen();
            return Err(Error::verb("destroy the completion queue")(error));
        }
        self.ia.directory().remove_evd(self);
        self.ia.release();
        Ok(())
    }

    /// The provider's queue of a completion dispatcher.
    pub(crate) fn cq(&self) -> Result<&Arc<dyn Cq>> {
        match &self.source {
            Source::Completions(completions) => Ok(completions.cq()),
            Source::Queue(_) => Err(self.wrong_stream(Stream::Completion)),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.life.is_closed()
    }

    /// Refuses another stream than the one needed.
    pub(crate) fn check_stream(&self, needed: Stream) -> Result<()> {
        if self.stream == needed { Ok(()) } else { Err(self.wrong_stream(needed)) }
    }

    fn wrong_stream(&self, needed: Stream) -> Error {
        Error::InvalidArgument(format!(
            "the event dispatcher carries {:?} events; this needs one for {needed:?} events",
            self.stream
        ))
    }

    /// Adds a connection event; their number is bounded by the number of endpoints.
    pub(crate) fn push_connection(&self, event: Event) {
        if let Source::Queue(queue) = &self.source {
            queue.push_always(event);
        }
    }

    /// Adds an event if there is room; else false.
    pub(crate) fn push_bounded(&self, event: Event) -> bool {
        matches!(&self.source, Source::Queue(queue) if queue.push(event, false))
    }

    /// Adds an event, or counts it as lost.
    pub(crate) fn push_lossy(&self, event: Event) {
        if let Source::Queue(queue) = &self.source {
            queue.push(event, true);
        }
    }

    /// Events waiting; 0 for a completion dispatcher.
    pub fn queued(&self) -> usize {
        match &self.source {
            Source::Queue(queue) => queue.len(),
            Source::Completions(_) => 0,
        }
    }
}

impl Living for Evd {
    fn life(&self) -> &Life {
        &self.life
    }
}

impl Drop for Evd {
    fn drop(&mut self) {
        // Closed already, or nobody can use it any more; either way there is nobody to tell.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Evd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Evd({:?})", self.stream)
    }
}
