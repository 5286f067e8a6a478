//! The event queue of a dispatcher: events, waiting threads, and what is notified.
//!
//! The state is under one mutex, held for a few instructions. A thread that changes it calls `propagate`
//! before unlocking: descriptor, aggregate dispatcher and callback then agree with the state. Waiters,
//! who drew their tickets under the lock, are woken after it. So no wake-up is lost and none is left
//! over. Lock order: a queue, the queue of the aggregate dispatcher that it feeds, the dispatch thread's
//! jobs.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use kal_shim::clock::after;

use kal_shim::Notifier;
use vp_api::VpStatus;

use super::lead::Lead;
use super::state::{Feed, Settings, State};
use crate::error::{Error, Result};
use crate::sync::{AtomicBool, AtomicU64, Gate, Mutex, MutexGuard, Ordering, Slept, lock};

/// One wait: its deadline, and the interrupts that would end it.
pub(super) struct Wait {
    timeout: Option<Duration>,
    deadline: Option<Instant>,
    interrupts: u64,
}

impl Wait {
    /// The time left; `None`: no limit.
    pub(super) fn left(&self) -> Option<Duration> {
        self.deadline.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Refused once the time has passed.
    pub(super) fn check_time(&self) -> Result<()> {
        match self.left() {
            Some(Duration::ZERO) => Err(Error::Timeout(self.timeout.unwrap_or_default())),
            _ => Ok(()),
        }
    }
}

/// An event queue with notification criteria.
pub(super) struct EventQueue<T> {
    state: Mutex<State<T>>,
    gate: Gate,
    interrupts: AtomicU64,
    aborted: AtomicBool,
    notifier: OnceLock<Notifier>,
}

impl<T> EventQueue<T> {
    pub(super) fn new(depth: usize, threshold: usize) -> Self {
        Self {
            state: Mutex::new(State::new(depth, threshold)),
            gate: Gate::default(),
            interrupts: AtomicU64::new(0),
            aborted: AtomicBool::new(false),
            notifier: OnceLock::new(),
        }
    }

    /// Reads the state.
    pub(super) fn read<R>(&self, read: impl FnOnce(&State<T>) -> R) -> R {
        read(&lock(&self.state))
    }

    /// Changes the state; if that meets the criteria, notifies.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut State<T>) -> R) -> R {
        let mut state = lock(&self.state);
        let changed = change(&mut state);
        self.propagate(&mut state);
        self.announce(state);
        changed
    }

    /// Changes the state; `add` returns whether it added something that notifies.
    pub(super) fn add(&self, add: impl FnOnce(&mut State<T>) -> bool) {
        let mut state = lock(&self.state);
        let notifies = add(&mut state);
        self.propagate(&mut state);
        if notifies {
            self.announce(state);
        }
    }

    /// Makes descriptor, aggregate dispatcher and callback agree with the state.
    fn propagate(&self, state: &mut State<T>) {
        let met = state.met();
        if let Some(notifier) = self.notifier.get()
            && met != state.raised
        {
            state.raised = met;
            show(notifier, met);
        }
        state.update_aggregate();
    }

    /// Something new may meet the criteria.
    fn announce(&self, state: MutexGuard<'_, State<T>>) {
        if state.met()
            && let Some(trigger) = &state.trigger
        {
            trigger();
        }
        let wake = state.is_ready() && state.waiters > 0;
        self.unlock(state, wake);
    }

    /// Waiters are woken without the lock, so that they find it free.
    fn unlock(&self, state: MutexGuard<'_, State<T>>, wake: bool) {
        let leader = state.leader.clone().filter(|_| wake);
        drop(state);
        if wake {
            self.gate.open();
        }
        leader.inspect(|leader| leader.signal());
    }

    /// Adds an event whatever the depth: for events whose number is bounded by other means.
    pub(super) fn push_always(&self, event: T) {
        self.change(|state| state.push_always(event, true));
    }

    /// The completion queue behind this queue is unusable.
    pub(super) fn fail(&self, status: VpStatus) {
        self.change(|state| state.fail(status));
    }

    /// The oldest event. [`Error::Overflow`], once, after events were lost and all before were taken.
    pub(super) fn take(&self) -> Result<Option<T>> {
        self.take_with(State::take)
    }

    /// Takes something by `take`.
    pub(super) fn take_with<R>(&self, take: impl FnOnce(&mut State<T>) -> R) -> R {
        let mut state = lock(&self.state);
        let taken = take(&mut state);
        self.propagate(&mut state);
        taken
    }

    /// Up to `most` events; errors as for [`EventQueue::take`].
    pub(super) fn take_many(&self, most: usize, mut each: impl FnMut(T)) -> Result<usize> {
        self.take_with(|state| {
            for taken in 0..most {
                // An error is returned when nothing is left.
                if taken > 0 && state.len() == 0 {
                    return Ok(taken);
                }
                let Some(event) = state.take()? else { return Ok(taken) };
                each(event);
            }
            Ok(most)
        })
    }

    /// Begins a wait.
    pub(super) fn begin(&self, timeout: Option<Duration>) -> Wait {
        let deadline = timeout.map(after);
        Wait { timeout, deadline, interrupts: self.interrupts.load(Ordering::SeqCst) }
    }

    /// Refused after an interrupt or abort.
    pub(super) fn check(&self, wait: &Wait) -> Result<()> {
        self.check_aborted()?;
        match self.interrupts.load(Ordering::SeqCst) == wait.interrupts {
            true => Ok(()),
            false => Err(Error::Interrupted),
        }
    }

    /// Waits until the criteria are met and `pick` returns something.
    pub(super) fn wait<R>(
        &self,
        wait: &Wait,
        pick: impl FnMut(&mut State<T>) -> Result<Option<R>>,
    ) -> Result<R> {
        self.wait_leading(wait, None, pick)
    }

    /// The same; `lead` sleeps instead of the gate while it can.
    pub(super) fn wait_leading<R>(
        &self,
        wait: &Wait,
        mut lead: Option<Lead<'_>>,
        mut pick: impl FnMut(&mut State<T>) -> Result<Option<R>>,
    ) -> Result<R> {
        let mut slept = Slept::Woken;
        loop {
            let ticket = {
                let mut state = lock(&self.state);
                self.check_aborted()?;
                if let Some(picked) = self.attempt(&mut state, &mut pick)? {
                    return Ok(picked);
                }
                self.check(wait)?;
                if slept == Slept::Signal {
                    return Err(Error::Signal);
                }
                wait.check_time()?;
                state.waiters += 1;
                if let Some(lead) = &lead {
                    state.leader = Some(lead.notifier().clone());
                }
                self.gate.ticket()
            };
            let led = match &lead {
                Some(lead) => lead.sleep(wait.left()),
                None => Some(self.gate.wait(ticket, wait.left())),
            };
            {
                let mut state = lock(&self.state);
                state.waiters -= 1;
                if lead.is_some() {
                    state.leader = None;
                }
            }
            match led {
                Some(woken) => {
                    slept = woken;
                    lead.iter().for_each(Lead::work);
                }
                // It cannot. Completions are the dispatch thread's again before this thread sleeps: while it
                // leads, that thread is not woken for them.
                None => lead = None,
            }
        }
    }

    fn attempt<R>(
        &self,
        state: &mut MutexGuard<'_, State<T>>,
        pick: impl FnOnce(&mut State<T>) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        if !state.is_ready() {
            return Ok(None);
        }
        let picked = pick(state);
        self.propagate(state);
        picked
    }

    /// Takes over the descriptor, which may be set or not.
    pub(super) fn take_over_fd(&self) {
        let mut state = lock(&self.state);
        state.raised = false;
        if let Some(notifier) = self.notifier.get() {
            notifier.clear();
        }
        self.propagate(&mut state);
    }
}

/// Operations on a queue that do not depend on the type of its events.
pub(super) trait Control {
    /// The settings as they are.
    fn settings(&self) -> Settings;
    /// Changes the settings; if that meets the criteria, notifies.
    fn configure(&self, change: &mut dyn FnMut(&mut Settings));
    /// Events in the queue.
    fn len(&self) -> usize;
    /// Makes every present wait return [`Error::Interrupted`].
    fn interrupt(&self);
    /// Makes every present and later wait return [`Error::Aborted`].
    fn abort(&self);
    /// Refused after an abort.
    fn check_aborted(&self) -> Result<()>;
    /// The descriptor, created by the first call.
    fn fd(&self) -> Result<BorrowedFd<'_>>;
    /// The descriptor, if there is one.
    fn notifier(&self) -> Option<&Notifier>;
    /// Sets the aggregate dispatcher that it feeds, or none; leaves the one before.
    fn set_feed(&self, feed: Option<Feed>);
    /// Calls `trigger` whenever something new meets the criteria, and now if they are met.
    fn set_trigger(&self, trigger: Option<Box<dyn Fn() + Send>>);
}

impl<T> Control for EventQueue<T> {
    fn settings(&self) -> Settings {
        self.read(|state| state.settings)
    }

    fn configure(&self, change: &mut dyn FnMut(&mut Settings)) {
        self.change(|state| change(&mut state.settings));
    }

    fn len(&self) -> usize {
        self.read(State::len)
    }

    fn interrupt(&self) {
        let state = lock(&self.state);
        self.interrupts.fetch_add(1, Ordering::SeqCst);
        let waited = state.waiters > 0;
        self.unlock(state, waited);
    }

    fn abort(&self) {
        let state = lock(&self.state);
        self.aborted.store(true, Ordering::SeqCst);
        let waited = state.waiters > 0;
        self.unlock(state, waited);
    }

    fn check_aborted(&self) -> Result<()> {
        match self.aborted.load(Ordering::SeqCst) {
            true => Err(Error::Aborted),
            false => Ok(()),
        }
    }

    fn fd(&self) -> Result<BorrowedFd<'_>> {
        if self.notifier.get().is_none() {
            let notifier = Notifier::new()
                .map_err(Error::os("create the descriptor of an event dispatcher"))?;
            // Two threads may come here at once; the first notifier stays.
            let _ = self.notifier.set(notifier);
            self.propagate(&mut lock(&self.state));
        }
        self.notifier().map(AsFd::as_fd).ok_or(Error::Aborted)
    }

    fn notifier(&self) -> Option<&Notifier> {
        self.notifier.get()
    }

    fn set_feed(&self, feed: Option<Feed>) {
        let mut state = lock(&self.state);
        if let Some(Feed { set_listed, listed: true, .. }) =
            std::mem::replace(&mut state.feed, feed)
        {
            set_listed(false);
        }
        self.propagate(&mut state);
    }

    fn set_trigger(&self, trigger: Option<Box<dyn Fn() + Send>>) {
        self.change(|state| state.trigger = trigger);
    }
}

fn show(notifier: &Notifier, met: bool) {
    if met {
        notifier.signal();
    } else {
        notifier.clear();
    }
}

#[cfg(all(test, loom))]
#[path = "loom_tests.rs"]
mod loom_tests;
#[cfg(all(test, not(loom)))]
#[path = "event_queue_tests.rs"]
mod tests;
