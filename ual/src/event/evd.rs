//! Event dispatcher (IT-API SEVD and AEVD): one stream of events, taken by polling, waiting, through a
//! descriptor or from a callback.
//!
//! An Evd owns its queue, and for completions the provider's completion queue. Any number of threads may take
//! events; each event is taken by one of them. It notifies (ends waits, makes the descriptor readable, notifies
//! its aggregate dispatcher, runs its callback) while its criteria are met: it is enabled, and as many
//! notification events wait as its threshold.

use std::sync::{Arc, Weak};
use std::time::Duration;

use vp_api::{AsyncEvent, Cq, PostFailure, QpId, RecvWr, VpStatus};

use super::callback::Callback;
use super::completion::Completions;
use super::dispatch::{CALL, Job, PUMP, Served};
use super::event_queue::{Control, EventQueue};
use super::state::Push;
use super::{AsyncSource, EvdInit, Event, NOTIFY, Stream};
use crate::error::{Error, Object, Result, unposted};
use crate::life::{InUse, Life, Living};
use crate::resource::{Ia, Resource};
use crate::sync::{AtomicU32, Mutex, Ordering, lock};
use crate::tag::Tag;

/// Events per connection at most: its result, and its end.
const CONNECTION_EVENTS: usize = 2;

/// Event dispatcher.
pub struct Evd {
    stream: Stream,
    source: Source,
    pub(super) underlying: bool,
    wanted: fn(&Event) -> bool,
    pub(super) spin: Duration,
    pub(super) callback: Callback<Self>,
    pub(super) job: Arc<Job>,
    /// The aggregate dispatcher that it feeds.
    pub(super) aggregate: Mutex<Option<InUse<Self>>>,
    /// Threads inside a wait.
    pub(super) waiting: AtomicU32,
    pub(super) me: Weak<Self>,
    life: Life,
    tag: Tag,
    ia: InUse<Ia>,
}

pub(super) enum Source {
    Queue(EventQueue<Event>),
    /// The second is the staging queue of the first.
    Completions(Completions, Arc<EventQueue<Event>>),
    /// Dispatchers whose criteria are met.
    Children(Arc<EventQueue<Weak<Evd>>>),
}

impl Source {
    fn new(ia: &Ia, init: &EvdInit) -> Result<Self> {
        let (depth, threshold) = (init.depth as usize, init.threshold as usize);
        let source = match init.stream {
            Stream::Completion => {
                let queue = Arc::new(EventQueue::new(depth, threshold));
                let plain = init.threshold == 1;
                let senders = ia.datagram_attrs().map(|_| ia.directory().senders().clone());
                let completions =
                    Completions::new(ia.rnic(), senders, init.depth, queue.clone(), plain)?;
                Self::Completions(completions, queue)
            }
            Stream::Aggregate => Self::Children(Arc::new(EventQueue::new(usize::MAX, 1))),
            _ => Self::Queue(EventQueue::new(depth, threshold)),
        };
        source.control().configure(&mut |settings| settings.overflow = init.overflow);
        Ok(source)
    }

    fn control(&self) -> &dyn Control {
        match self {
            Self::Queue(queue) => queue,
            Self::Completions(_, queue) => &**queue,
            Self::Children(queue) => &**queue,
        }
    }
}

impl Evd {
    pub(super) fn new(ia: &Arc<Ia>, init: EvdInit) -> Result<Arc<Self>> {
        if init.depth == 0 && init.stream != Stream::Aggregate {
            return Err(Error::InvalidArgument("an event dispatcher needs a depth above 0".into()));
        }
        let ia = InUse::new(ia)?;
        let source = Source::new(&ia, &init)?;
        ia.dispatch().make_room(ia.life().users() as usize)?;
        let evd = Arc::new_cyclic(|me| Self {
            stream: init.stream,
            source,
            underlying: init.underlying,
            wanted: init.wanted,
            spin: ia.policy().spin,
            callback: Callback::new(),
            job: ia.dispatch().job(me.clone() as Weak<dyn Served>),
            aggregate: Mutex::new(None),
            waiting: AtomicU32::new(0),
            me: me.clone(),
            life: Life::new(Object::Evd),
            tag: Tag::default(),
            ia,
        });
        evd.check_threshold(init.threshold)?;
        evd.set_aggregate(init.aggregate.as_ref())?;
        evd.ia.directory().add_evd(&evd);
        Ok(evd)
    }

    /// The kind of events that it carries.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// The face's number for it.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Its Ia.
    pub fn ia(&self) -> &Arc<Ia> {
        self.ia.arc()
    }

    pub(super) fn control(&self) -> &dyn Control {
        self.source.control()
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// Software dispatchers only: adds an event (IT-API `it_evd_post_se`).
    pub fn post_software(&self, data: u64) -> Result<()> {
        let Source::Queue(queue) = &self.source else {
            return Err(self.wrong_stream(Stream::Software));
        };
        self.check_stream(Stream::Software)?;
        match queue.change(|state| state.push(Event::Software(data))) {
            Push::Queued => Ok(()),
            Push::Refused { .. } => Err(Error::QueueFull { depth: self.depth() }),
        }
    }

    /// Closes it; refused while endpoints, listeners, other dispatchers or waiters use it. Waits for a
    /// call of its callback to end, unless called from inside. Its events are dropped.
    pub fn close(&self) -> Result<()> {
        let waiting = self.waiting.load(Ordering::SeqCst);
        if waiting > 0 && self.is_open() && self.control().check_aborted().is_ok() {
            let users = self.life.users() + waiting;
            return Err(Error::InUse { object: Object::Evd, users });
        }
        self.life.close()?;
        if let Source::Completions(completions, _) = &self.source
            && let Err(error) = self.ia.rnic().destroy_cq(completions.cq().id())
        {
            self.life.reopen();
            return Err(Error::verb("destroy the completion queue")(error));
        }
        // For a thread that began to wait at this moment.
        self.abort();
        self.control().set_trigger(None);
        self.callback.detach();
        self.leave_aggregate(&mut lock(&self.aggregate));
        self.ia.directory().remove_evd(self);
        self.ia.directory().discard(AsyncSource::Queue(self.tag.get()));
        if let Ok(cq) = self.cq() {
            self.ia.directory().discard(AsyncSource::Evd(cq.id()));
        }
        self.ia.release();
        Ok(())
    }

    /// The provider's queue of a completion dispatcher.
    pub(crate) fn cq(&self) -> Result<&Arc<dyn Cq>> {
        match &self.source {
            Source::Completions(completions, _) => Ok(completions.cq()),
            _ => Err(self.wrong_stream(Stream::Completion)),
        }
    }

    /// Before a completion that does not count can exist.
    #[inline]
    pub(crate) fn expect_uncounted(&self) -> std::result::Result<(), VpStatus> {
        match &self.source {
            Source::Completions(completions, _) if !completions.allows_uncounted() => {
                self.allow_uncounted().map_err(|_| VpStatus::InsufficientResources)
            }
            _ => Ok(()),
        }
    }

    /// Before receives are posted that complete here.
    #[inline]
    pub(crate) fn expect_receives(
        &self,
        wrs: &[RecvWr<'_>],
    ) -> std::result::Result<(), PostFailure> {
        if wrs.iter().any(|wr| wr.wr_id & NOTIFY == 0) {
            self.expect_uncounted().map_err(unposted)?;
        }
        Ok(())
    }

    /// A queue pair that completed here was destroyed.
    pub(crate) fn forget(&self, qp: QpId) {
        if let Source::Completions(completions, _) = &self.source {
            completions.forget(qp);
        }
    }

    /// Before a datagram can arrive.
    pub(crate) fn expect_datagrams(&self) {
        if let Source::Completions(completions, _) = &self.source {
            completions.expect_datagrams();
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.life.is_closed()
    }

    /// Refuses another stream than the one needed.
    pub(crate) fn check_stream(&self, needed: Stream) -> Result<()> {
        if self.stream == needed { Ok(()) } else { Err(self.wrong_stream(needed)) }
    }

    pub(super) fn wrong_stream(&self, needed: Stream) -> Error {
        Error::InvalidArgument(format!(
            "the event dispatcher carries {:?} events; this needs one for {needed:?} events",
            self.stream
        ))
    }

    /// The number of endpoints and other objects that use it.
    pub(super) fn users(&self) -> usize {
        self.life.users() as usize
    }

    /// Reserves memory for the events that the connections of its endpoints have still to deliver;
    /// called before one more is begun.
    pub(crate) fn make_room(&self) -> Result<()> {
        let Source::Queue(queue) = &self.source else { return Ok(()) };
        queue.take_with(|state| state.make_room(CONNECTION_EVENTS * self.users()))
    }

    /// Adds a connection event of an object, while that `is_open`; their number is bounded by the number
    /// of endpoints.
    pub(crate) fn push_connection(&self, event: Event, is_open: impl FnOnce() -> bool) {
        if let Source::Queue(queue) = &self.source
            && (self.wanted)(&event)
        {
            queue.change(|state| {
                if is_open() {
                    state.push_always(event, true);
                }
            });
        }
    }

    /// Adds an event if there is room; otherwise returns false.
    pub(crate) fn push_bounded(&self, event: Event) -> bool {
        self.push(event, false, || true)
    }

    /// Adds an event of the device or of a port, or counts it as lost.
    pub(crate) fn push_unaffiliated(&self, port: Option<u32>, event: AsyncEvent) {
        self.push(Event::Unaffiliated { port, event }, true, || true);
    }

    /// The same for an event of an object, while that `is_open`: its close then discards it.
    pub(crate) fn push_affiliated(
        &self,
        source: AsyncSource,
        event: AsyncEvent,
        is_open: impl FnOnce() -> bool,
    ) {
        self.push(Event::Affiliated { source, event }, true, is_open);
    }

    fn push(&self, event: Event, counted: bool, is_open: impl FnOnce() -> bool) -> bool {
        let Source::Queue(queue) = &self.source else { return false };
        if !(self.wanted)(&event) {
            return false;
        }
        let pushed = queue.change(|state| is_open().then(|| state.push_or_lose(event, counted)));
        if pushed == Some(Push::Refused { report: true }) {
            self.report_overflow();
        }
        pushed == Some(Push::Queued)
    }

    /// Removes the events that are `about` an object which is closed, without waking any thread.
    pub(crate) fn discard(&self, about: impl Fn(&Event) -> bool) {
        if let Source::Queue(queue) = &self.source {
            queue.change(|state| state.remove(about));
        }
    }

    /// The same for the events of one object.
    pub(crate) fn discard_affiliated(&self, closed: AsyncSource) {
        self.discard(
            |event| matches!(event, Event::Affiliated { source, .. } if *source == closed),
        );
    }

    fn report_overflow(&self) {
        match self.ia.directory().affiliated() {
            Some(evd) if !std::ptr::eq(&*evd, self) => {
                let (source, event) = (AsyncSource::Queue(self.tag.get()), AsyncEvent::CqOverrun);
                evd.push_affiliated(source, event, || self.is_open());
            }
            _ => tracing::warn!("{self:?} has no room: events are lost"),
        }
    }
}

impl Served for Evd {
    fn serve(self: Arc<Self>, wanted: u8) {
        if !self.is_open() {
            return;
        }
        if let Source::Completions(completions, _) = &self.source
            && wanted & PUMP != 0
        {
            completions.fill();
        }
        if wanted & CALL != 0 {
            self.callback.run(&self);
        }
    }
}

impl Resource for Evd {
    fn deliver(&self, event: AsyncEvent) -> Option<AsyncEvent> {
        (event != AsyncEvent::CqOverrun || self.overran()).then_some(event)
    }
}

impl Living for Evd {
    fn life(&self) -> &Life {
        &self.life
    }
}

impl Drop for Evd {
    fn drop(&mut self) {
        // It is closed already, or can no longer be used; either way the error concerns no one.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Evd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Evd({:?})", self.stream)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::event::state::State;

    #[test]
    fn a_full_dispatcher_of_affiliated_events_does_not_report_itself() {
        let ia = crate::Ual::with_config(Default::default()).open_any().unwrap();
        let evd = ia.create_evd(EvdInit::new(Stream::Affiliated, 1)).unwrap();
        for number in 0..2 {
            evd.push_affiliated(AsyncSource::Queue(number), AsyncEvent::CqOverrun, || true);
        }
        assert!(matches!(evd.dequeue(), Ok(Some(Event::Affiliated { .. }))));
        assert!(matches!(evd.dequeue(), Err(Error::Overflow(1))));
    }

    // Their events are added whatever the depth, and must not need memory then.
    #[test]
    fn memory_for_the_events_of_connections_is_reserved() {
        let ia = crate::Ual::with_config(Default::default()).open_any().unwrap();
        let evd = ia.create_evd(EvdInit::new(Stream::Connection, 1)).unwrap();
        let endpoints: Vec<_> = (0..100).map(|_| InUse::new(&evd).unwrap()).collect();
        evd.make_room().unwrap();
        let Source::Queue(queue) = &evd.source else { panic!("a queue") };
        assert!(queue.read(State::spare) >= CONNECTION_EVENTS * endpoints.len());
    }
}
