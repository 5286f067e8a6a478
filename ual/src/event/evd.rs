//! The event dispatcher (IT-API SEVD and AEVD): one stream of events, taken by polling, waiting,
//! through a descriptor or from a callback.
//!
//! An Evd owns its queue, and for completions the provider's completion queue. Any number of
//! threads may take events; each event goes to one of them. It notifies (ends waits, makes the
//! descriptor readable, tells its aggregate dispatcher, runs its callback) while its criteria are
//! met: it is enabled, and as many notification events wait as its threshold says.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use vp_api::{AsyncEvent, Cq, VpStatus, WorkCompletion};

use super::callback::Callback;
use super::completion::Completions;
use super::core::{Control, Core};
use super::dispatch::{CALL, PUMP, Ring};
use super::state::{Push, State};
use super::{AsyncSource, EvdInit, Event, Stream};
use crate::error::{Error, Object, Result};
use crate::life::{Hold, Life, Living};
use crate::resource::Ia;
use crate::sync::{AtomicU32, Mutex, Ordering, lock};
use crate::tag::Tag;

/// Event dispatcher.
pub struct Evd {
    stream: Stream,
    source: Source,
    pub(super) underlying: bool,
    spin: Duration,
    pub(super) callback: Callback,
    pub(super) ring: Arc<Ring>,
    /// The aggregate dispatcher that it feeds.
    pub(super) aggregate: Mutex<Option<Hold<Self>>>,
    /// Threads inside a wait.
    waiting: AtomicU32,
    pub(super) me: Weak<Self>,
    life: Life,
    tag: Tag,
    ia: Hold<Ia>,
}

pub(super) enum Source {
    Queue(Core<Event>),
    /// The second is the staging queue of the first.
    Completions(Completions, Arc<Core<Event>>),
    /// Dispatchers whose criteria are met.
    Children(Arc<Core<Weak<Evd>>>),
}

impl Source {
    fn new(ia: &Ia, init: &EvdInit) -> Result<Self> {
        let (depth, threshold) = (init.depth as usize, init.threshold as usize);
        let source = match init.stream {
            Stream::Completion => {
                let core = Arc::new(Core::new(depth, threshold));
                let plain = init.threshold == 1;
                let queue = Completions::new(ia.rnic(), init.depth, core.clone(), plain)?;
                Self::Completions(queue, core)
            }
            Stream::Aggregate => Self::Children(Arc::new(Core::new(usize::MAX, 1))),
            _ => Self::Queue(Core::new(depth, threshold)),
        };
        source.control().configure(&mut |settings| settings.overflow = init.overflow);
        Ok(source)
    }

    fn control(&self) -> &dyn Control {
        match self {
            Self::Queue(core) => core,
            Self::Completions(_, core) => &**core,
            Self::Children(core) => &**core,
        }
    }
}

/// One thread inside a wait.
struct Waiting<'a>(&'a AtomicU32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Evd {
    pub(crate) fn new(ia: &Arc<Ia>, init: EvdInit) -> Result<Arc<Self>> {
        if init.depth == 0 && init.stream != Stream::Aggregate {
            return Err(Error::InvalidArgument("an event dispatcher needs a depth above 0".into()));
        }
        let ia = Hold::new(ia)?;
        let source = Source::new(&ia, &init)?;
        let evd = Arc::new_cyclic(|me| Self {
            stream: init.stream,
            source,
            underlying: init.underlying,
            spin: ia.policy().spin,
            callback: Callback::default(),
            ring: ia.dispatch().bell(me.clone()),
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

    pub(super) fn control(&self) -> &dyn Control {
        self.source.control()
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// Completions only: moves up to `out.len()` of them to `out`, oldest first. Directly, no lock
    /// of the access layer and no copy is in between.
    #[inline]
    pub fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize> {
        match &self.source {
            Source::Completions(completions, _) => completions.poll(out),
            _ => Err(self.wrong_stream(Stream::Completion)),
        }
    }

    /// The oldest event, if there is one, whatever the criteria (IT-API `it_evd_dequeue`). An
    /// aggregate dispatcher's are the notifications of those that feed it, or their events
    /// ([`EvdInit::underlying`]).
    pub fn dequeue(self: &Arc<Self>) -> Result<Option<Event>> {
        match &self.source {
            Source::Queue(core) => core.take(),
            Source::Completions(completions, _) => Ok(completions.pop()?.map(Event::Completion)),
            Source::Children(core) => loop {
                let Some(child) = core.take_with(next_child) else { return Ok(None) };
                if let Some(event) = self.pass_on(child)? {
                    return Ok(Some(event));
                }
            },
        }
    }

    /// Waits until the criteria are met and takes the oldest event (IT-API `it_evd_wait`); `None`:
    /// for ever. Errors: [`Error::Timeout`], [`Error::Interrupted`], [`Error::Signal`],
    /// [`Error::Aborted`].
    pub fn wait(self: &Arc<Self>, timeout: Option<Duration>) -> Result<Event> {
        let _waiting = self.enter()?;
        match &self.source {
            Source::Queue(core) => core.wait(&core.begin(timeout), State::take),
            Source::Completions(completions, core) => {
                let wait = core.begin(timeout);
                if let Some(completion) = completions.wait(&wait, self.spin)? {
                    return Ok(Event::Completion(completion));
                }
                self.prepare(completions)?;
                let event = core.wait(&wait, State::take);
                completions.made_room();
                event
            }
            Source::Children(core) => {
                let wait = core.begin(timeout);
                loop {
                    let child = core.wait(&wait, |state| Ok(next_child(state)))?;
                    if let Some(event) = self.pass_on(child)? {
                        return Ok(event);
                    }
                }
            }
        }
    }

    /// Waits until the criteria are met; false after the time-out. Errors as [`Evd::wait`].
    pub fn wait_ready(self: &Arc<Self>, timeout: Option<Duration>) -> Result<bool> {
        let _waiting = self.enter()?;
        let ready = match &self.source {
            Source::Queue(core) => core.wait(&core.begin(timeout), |_| Ok(Some(()))),
            Source::Children(core) => core.wait(&core.begin(timeout), |_| Ok(Some(()))),
            Source::Completions(completions, core) => {
                let wait = core.begin(timeout);
                if let Some(ready) = completions.ready(&wait, self.spin)? {
                    return Ok(ready);
                }
                self.prepare(completions)?;
                core.wait(&wait, |_| Ok(Some(())))
            }
        };
        match ready {
            Ok(()) => Ok(true),
            Err(Error::Timeout(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn enter(&self) -> Result<Waiting<'_>> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let waiting = Waiting(&self.waiting);
        self.control().check_aborted()?;
        match self.is_open() {
            true => Ok(waiting),
            false => Err(Error::Closed(Object::Evd)),
        }
    }

    /// Before a wait on the staging queue.
    fn prepare(&self, completions: &Completions) -> Result<()> {
        self.stage()?;
        completions.fill();
        Ok(())
    }

    /// What a dispatcher that feeds this one has for the application.
    fn pass_on(&self, child: Arc<Self>) -> Result<Option<Event>> {
        if self.underlying {
            return child.dequeue();
        }
        Ok(Some(Event::Notification { evd: child }))
    }

    /// Makes every present wait on this dispatcher return [`Error::Interrupted`] soon.
    pub fn interrupt(&self) {
        self.control().interrupt();
        if let Source::Completions(completions, _) = &self.source {
            completions.expel();
        }
    }

    /// Makes every present and later wait on this dispatcher return [`Error::Aborted`]; it can be
    /// closed at once.
    pub fn abort(&self) {
        self.control().abort();
        if let Source::Completions(completions, _) = &self.source {
            completions.empty();
        }
    }

    /// A descriptor for `poll`, `epoll` and the like: readable while the criteria are met. Take
    /// events until [`Evd::dequeue`] says `None`, then wait for it again. Never read from it.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        if let Source::Completions(completions, _) = &self.source {
            if let Some(fd) = completions.fd()? {
                return Ok(fd);
            }
            self.stage()?;
        }
        self.control().fd()
    }

    /// Events that wait, about. For an aggregate dispatcher: dispatchers whose criteria are met, or
    /// the events in them.
    pub fn queued(&self) -> usize {
        match &self.source {
            Source::Queue(core) => core.len(),
            Source::Completions(completions, _) => completions.queued(),
            Source::Children(core) if !self.underlying => core.len(),
            Source::Children(core) => {
                let children = core.read(|state| state.to_vec());
                children.iter().filter_map(Weak::upgrade).map(|child| child.queued()).sum()
            }
        }
    }

    /// Software dispatchers only: adds an event (IT-API `it_evd_post_se`).
    pub fn post_software(&self, data: u64) -> Result<()> {
        let Source::Queue(core) = &self.source else {
            return Err(self.wrong_stream(Stream::Software));
        };
        self.check_stream(Stream::Software)?;
        match core.change(|state| state.push(Event::Software(data))) {
            Push::Queued => Ok(()),
            Push::Refused { .. } => Err(Error::QueueFull { depth: self.depth() }),
        }
    }

    /// Closes it; refused while endpoints, listeners, other dispatchers or waiters use it. Waits
    /// for a call of its callback to end, unless called from inside. Events in it vanish.
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
        // For one who began to wait in this moment.
        self.abort();
        self.control().set_alarm(None);
        self.callback.detach();
        self.leave_aggregate(&mut lock(&self.aggregate));
        self.ia.directory().remove_evd(self);
        self.ia.release();
        Ok(())
    }

    /// The dispatch thread: does what was rung for.
    pub(super) fn serve(self: &Arc<Self>, wanted: u8) {
        if !self.is_open() {
            return;
        }
        if let Source::Completions(completions, _) = &self.source
            && wanted & PUMP != 0
        {
            completions.fill();
        }
        if wanted & CALL != 0 {
            self.callback.run(self);
        }
    }

    /// The provider's queue of a completion dispatcher.
    pub(crate) fn cq(&self) -> Result<&Arc<dyn Cq>> {
        match &self.source {
            Source::Completions(completions, _) => Ok(completions.cq()),
            _ => Err(self.wrong_stream(Stream::Completion)),
        }
    }

    /// Before a completion that is no notification can exist.
    #[inline]
    pub(crate) fn expect_quiet(&self) -> std::result::Result<(), VpStatus> {
        match &self.source {
            Source::Completions(completions, _) if !completions.is_settled() => {
                self.unsettle().map_err(|_| VpStatus::InsufficientResources)
            }
            _ => Ok(()),
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
        if let Source::Queue(core) = &self.source {
            core.push_always(event);
        }
    }

    /// Adds an event if there is room; else false.
    pub(crate) fn push_bounded(&self, event: Event) -> bool {
        self.push(event, false)
    }

    /// Adds an event, or counts it as lost.
    pub(crate) fn push_lossy(&self, event: Event) {
        self.push(event, true);
    }

    fn push(&self, event: Event, counted: bool) -> bool {
        let Source::Queue(core) = &self.source else { return false };
        let pushed = core.push(event, counted);
        if pushed == (Push::Refused { report: true }) {
            self.report_overflow();
        }
        pushed == Push::Queued
    }

    fn report_overflow(&self) {
        match self.ia.directory().affiliated() {
            Some(evd) if !std::ptr::eq(&*evd, self) => {
                let (source, event) = (AsyncSource::Queue(self.tag.get()), AsyncEvent::CqOverrun);
                evd.push_lossy(Event::Affiliated { source, event });
            }
            _ => tracing::warn!("{self:?} has no room: events are lost"),
        }
    }
}

/// The next dispatcher whose criteria are met; it goes to the end of the list.
fn next_child(state: &mut State<Weak<Evd>>) -> Option<Arc<Evd>> {
    loop {
        let child = state.rotate()?.clone();
        match child.upgrade() {
            Some(evd) => return Some(evd),
            // It is being closed.
            None => state.remove(|gone| gone.ptr_eq(&child)),
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
