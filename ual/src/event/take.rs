//! Taking events from a dispatcher: polling, waiting, the descriptor, and what ends a wait.
//!
//! Any number of threads at once. A wait counts itself in the dispatcher, so that the dispatcher is not
//! closed under the waiter; after an abort it may be.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use vp_api::WorkCompletion;

use super::completion::Completions;
use super::evd::{Evd, Source};
use super::event_queue::{Control, EventQueue, Wait};
use super::lead::Lead;
use super::state::State;
use super::{Event, Stream};
use crate::error::{Error, Object, Result};
use crate::sync::{AtomicU32, Ordering};
use crate::tuning::CONNECTION_SPINS;
use ual_cm::Asleep;

/// An event, and the dispatcher that it was added to first, if that is another one.
type Origin = (Event, Option<Arc<Evd>>);

/// One thread inside a wait.
struct Waiting<'a>(&'a AtomicU32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Evd {
    /// Completions only: moves up to `out.len()` of them to `out`, oldest first. In direct mode there is
    /// no lock of the access layer and no copy in between.
    #[inline]
    pub fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize> {
        match self.source() {
            Source::Completions(completions, _) => {
                completions.poll(out).map_err(|error| self.explained(error))
            }
            _ => Err(self.wrong_stream(Stream::Completion)),
        }
    }

    /// The oldest event, if there is one, whatever the criteria (IT-API `it_evd_dequeue`). An aggregate
    /// dispatcher returns notifications of those that feed it, or their events
    /// ([`crate::EvdInit::underlying`]).
    pub fn dequeue(self: &Arc<Self>) -> Result<Option<Event>> {
        Ok(self.dequeue_from()?.map(|(event, _)| event))
    }

    /// As [`Evd::dequeue`], with the dispatcher that the event was added to first, if not this one.
    pub fn dequeue_from(self: &Arc<Self>) -> Result<Option<(Event, Option<Arc<Self>>)>> {
        match self.source() {
            Source::Queue(queue) => Ok(queue.take()?.map(own)),
            Source::Completions(completions, _) => {
                let popped = completions.pop().map_err(|error| self.explained(error))?;
                Ok(popped.map(Event::Completion).map(own))
            }
            Source::Children(queue) => loop {
                let Some(child) = queue.take_with(next_child) else { return Ok(None) };
                if let Some(passed) = self.pass_on(child)? {
                    return Ok(Some(passed));
                }
            },
        }
    }

    /// Waits until the criteria are met and takes the oldest event (IT-API `it_evd_wait`); `None`: no
    /// limit. Errors: [`Error::Timeout`], [`Error::Interrupted`], [`Error::Signal`], [`Error::Aborted`].
    pub fn wait(self: &Arc<Self>, timeout: Option<Duration>) -> Result<Event> {
        self.wait_for(timeout, |event, _| Some(event))
    }

    /// As [`Evd::wait`], for the first event for which `pick` returns something; those before it are
    /// dropped. `pick` also gets the dispatcher that the event was added to first, if not this one. The
    /// time-out bounds the whole wait; when it is over, events that are there are still examined.
    pub fn wait_for<R>(
        self: &Arc<Self>,
        timeout: Option<Duration>,
        pick: impl FnMut(Event, Option<Arc<Self>>) -> Option<R>,
    ) -> Result<R> {
        let _waiting = self.enter()?;
        match self.source() {
            Source::Queue(queue) => {
                let wait = queue.begin(timeout);
                let _asleep = self.attend(queue, &wait);
                self.until(&wait, || queue.wait(&wait, State::take).map(own), pick)
            }
            Source::Completions(completions, queue) => {
                let wait = queue.begin(timeout);
                let next = || self.wait_completion(completions, queue, &wait).map(own);
                self.until(&wait, next, pick).map_err(|error| self.explained(error))
            }
            Source::Children(queue) => {
                let wait = queue.begin(timeout);
                self.until(&wait, || self.wait_child(queue, &wait), pick)
            }
        }
    }

    /// Waits again by `next` until `pick` returns something for an event.
    fn until<R>(
        &self,
        wait: &Wait,
        mut next: impl FnMut() -> Result<Origin>,
        mut pick: impl FnMut(Event, Option<Arc<Self>>) -> Option<R>,
    ) -> Result<R> {
        let mut there = None;
        loop {
            let (event, origin) = next()?;
            if let Some(picked) = pick(event, origin) {
                return Ok(picked);
            }
            if let Err(over) = wait.check_time() {
                let more: &mut usize = there.get_or_insert_with(|| self.queued());
                *more = more.checked_sub(1).ok_or(over)?;
            }
        }
    }

    fn wait_completion(
        &self,
        completions: &Completions,
        queue: &EventQueue<Event>,
        wait: &Wait,
    ) -> Result<Event> {
        if let Some(completion) = completions.wait(wait, self.spin)? {
            return Ok(Event::Completion(completion));
        }
        self.prepare(completions)?;
        let event = queue.wait_leading(wait, self.lead(), State::take);
        completions.made_room();
        event
    }

    fn wait_child(&self, queue: &EventQueue<Weak<Self>>, wait: &Wait) -> Result<Origin> {
        loop {
            let child = queue.wait_leading(wait, self.lead(), |state| Ok(next_child(state)))?;
            if let Some(passed) = self.pass_on(child)? {
                return Ok(passed);
            }
        }
    }

    /// Waits until the criteria are met; false after the time-out. Errors as [`Evd::wait`].
    pub fn wait_ready(self: &Arc<Self>, timeout: Option<Duration>) -> Result<bool> {
        let _waiting = self.enter()?;
        let ready = match self.source() {
            Source::Queue(queue) => {
                let wait = queue.begin(timeout);
                let _asleep = self.attend(queue, &wait);
                queue.wait(&wait, |_| Ok(Some(())))
            }
            Source::Children(queue) => {
                queue.wait_leading(&queue.begin(timeout), self.lead(), |_| Ok(Some(())))
            }
            Source::Completions(completions, queue) => {
                let wait = queue.begin(timeout);
                if let Some(ready) = completions.ready(&wait, self.spin)? {
                    return Ok(ready);
                }
                self.prepare(completions)?;
                queue.wait_leading(&wait, self.lead(), |_| Ok(Some(())))
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

    /// Before a wait for connection events: serves the connections in this thread for a while.
    fn attend(&self, queue: &EventQueue<Event>, wait: &Wait) -> Option<Asleep<'_>> {
        if !matches!(self.stream(), Stream::Connection | Stream::Request) {
            return None;
        }
        let most = self.spin.saturating_mul(CONNECTION_SPINS);
        let spin = wait.left().map_or(most, |left| left.min(most));
        self.ia().cm().attend(spin, || queue.read(State::is_ready) || queue.check(wait).is_err())
    }

    /// Makes the waiting thread the leader, unless the Ia has one.
    fn lead(&self) -> Option<Lead<'_>> {
        Lead::begin(self.ia().rnic(), self.ia().dispatch())
    }

    /// Before a wait on the staging queue.
    fn prepare(&self, completions: &Completions) -> Result<()> {
        self.stage()?;
        completions.fill();
        Ok(())
    }

    /// An event of a dispatcher that feeds this one.
    fn pass_on(&self, child: Arc<Self>) -> Result<Option<Origin>> {
        if self.underlying {
            return Ok(child.dequeue()?.map(|event| (event, Some(child))));
        }
        Ok(Some(own(Event::Notification { evd: child })))
    }

    /// Makes every present wait on this dispatcher return [`Error::Interrupted`] soon.
    pub fn interrupt(&self) {
        self.control().interrupt();
        if let Source::Completions(completions, _) = self.source() {
            completions.wake_waiters();
        }
    }

    /// Makes every present and later wait on this dispatcher return [`Error::Aborted`]; it can be
    /// closed at once.
    pub fn abort(&self) {
        self.control().abort();
        if let Source::Completions(completions, _) = self.source() {
            completions.empty();
        }
    }

    /// A descriptor for `poll`, `epoll` and the like: readable while the criteria are met. Take events
    /// until [`Evd::dequeue`] returns `None`, then wait for it again. Never read from it.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        if let Source::Completions(completions, _) = self.source() {
            if let Some(fd) = completions.fd()? {
                return Ok(fd);
            }
            self.stage()?;
        }
        self.control().fd()
    }

    /// The approximate number of events that wait. For an aggregate dispatcher: the dispatchers whose
    /// criteria are met, or the events in them.
    pub fn queued(&self) -> usize {
        match self.source() {
            Source::Queue(queue) => queue.len(),
            Source::Completions(completions, _) => completions.queued(),
            Source::Children(queue) if !self.underlying => queue.len(),
            Source::Children(queue) => {
                // One at a time, because the lock of each comes before that of the list.
                let children = (0..).map_while(|place| queue.read(|state| state.peek(place)));
                children.filter_map(|child| child.upgrade()).map(|child| child.queued()).sum()
            }
        }
    }
}

/// The next dispatcher whose criteria are met; it moves to the end of the list.
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

/// An event of the dispatcher itself.
fn own(event: Event) -> Origin {
    (event, None)
}
