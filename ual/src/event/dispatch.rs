//! The dispatch thread of an Ia: moves completions of staged dispatchers, and runs callbacks.
//!
//! The Ia owns it; it starts with the first dispatcher that needs it and ends with the Ia. It holds
//! dispatchers weakly. A request takes one short lock and never blocks, so providers may make requests
//! from their notifications.
//!
//! One waiting thread moves completions instead of the dispatch thread ([`Leader`]). It runs no
//! callback, which may take long. When it leaves, the rest is left to the dispatch thread.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use kal_shim::Notifier;
use vp_api::room;

use crate::error::{Error, Result};
use crate::sync::{AtomicU8, Ordering};

/// Move completions.
pub(super) const PUMP: u8 = 1;
/// Run the callback.
pub(super) const CALL: u8 = 2;

/// A dispatcher that the thread works for.
pub(super) trait Served: Send + Sync {
    /// Does what was requested.
    fn serve(self: Arc<Self>, wanted: u8);
}

/// The thread, once it runs.
#[derive(Default)]
pub(crate) struct Dispatch {
    shared: Arc<Shared>,
    thread: Mutex<Option<kal_os::Thread>>,
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<Jobs>,
    arrived: Condvar,
    /// Signalled for the leader. Created by the first one.
    leader: OnceLock<Arc<Notifier>>,
}

#[derive(Default)]
struct Jobs {
    requested: VecDeque<Arc<Job>>,
    /// Callbacks that a leader left.
    calls: VecDeque<Arc<Job>>,
    /// A thread leads.
    led: bool,
    stopped: bool,
}

impl Jobs {
    /// The dispatch thread's next job.
    fn pop(&mut self) -> Option<Arc<Job>> {
        self.calls.pop_front().or_else(|| if self.led { None } else { self.requested.pop_front() })
    }
}

/// A waiting thread that moves completions meanwhile.
pub(super) struct Leader<'a> {
    shared: &'a Shared,
    notifier: &'a Arc<Notifier>,
}

/// A dispatcher's job at the thread. Requested again before the thread looked, it is done once.
pub(super) struct Job {
    wanted: AtomicU8,
    of: Weak<dyn Served>,
    shared: Arc<Shared>,
}

impl Job {
    /// Has the thread do `what` from now on.
    pub(super) fn request(self: &Arc<Self>, what: u8) {
        if self.wanted.fetch_or(what, Ordering::AcqRel) == 0 {
            self.shared.add(self.clone());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Jobs> {
        // Nothing panics while the lock is held.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, job: Arc<Job>) {
        let mut jobs = self.lock();
        if jobs.stopped {
            return;
        }
        jobs.requested.push_back(job);
        match self.leader.get().filter(|_| jobs.led) {
            Some(leader) => leader.signal(),
            None => self.arrived.notify_one(),
        }
    }

    fn add_call(&self, job: Arc<Job>) {
        let mut jobs = self.lock();
        if !jobs.stopped {
            jobs.calls.push_back(job);
            self.arrived.notify_one();
        }
    }

    /// The next job; `None` when the thread is to end.
    fn next(&self) -> Option<Arc<Job>> {
        let mut jobs = self.lock();
        loop {
            if jobs.stopped {
                return None;
            }
            if let Some(job) = jobs.pop() {
                return Some(job);
            }
            jobs = self.arrived.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run(&self) {
        while let Some(job) = self.next() {
            let wanted = job.wanted.swap(0, Ordering::AcqRel);
            if let Some(served) = job.of.upgrade() {
                served.serve(wanted);
            }
        }
    }
}

impl Leader<'_> {
    /// Signalled when there is something to do.
    pub(super) fn notifier(&self) -> &Arc<Notifier> {
        self.notifier
    }

    /// Moves the completions that were requested.
    pub(super) fn work(&self) {
        self.notifier.clear();
        loop {
            let Some(job) = self.shared.lock().requested.pop_front() else { return };
            let wanted = job.wanted.swap(0, Ordering::AcqRel);
            if let Some(served) = job.of.upgrade()
                && wanted & PUMP != 0
            {
                served.serve(PUMP);
            }
            // If it was requested again meanwhile, it is in the list and will be handled again.
            if wanted & CALL != 0 && job.wanted.fetch_or(CALL, Ordering::AcqRel) == 0 {
                self.shared.add_call(job);
            }
        }
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let mut jobs = self.shared.lock();
        jobs.led = false;
        if !jobs.requested.is_empty() {
            self.shared.arrived.notify_one();
        }
    }
}

impl Dispatch {
    /// Makes the calling thread move completions until it drops the leader. `None`: another thread does,
    /// the dispatch thread never started, or there is no descriptor left.
    pub(super) fn try_lead(&self) -> Option<Leader<'_>> {
        if self.shared.leader.get().is_none() {
            // Two threads may come here at once; the first notifier stays.
            let _ = self.shared.leader.set(Arc::new(Notifier::new().ok()?));
        }
        let notifier = self.shared.leader.get()?;
        let started = self.thread.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let mut jobs = self.shared.lock();
        if !started || jobs.stopped || std::mem::replace(&mut jobs.led, true) {
            return None;
        }
        // Jobs requested of the dispatch thread, which may still be asleep.
        if !jobs.requested.is_empty() {
            notifier.signal();
        }
        Some(Leader { shared: &self.shared, notifier })
    }

    /// Reserves memory for the jobs of this many dispatchers: requests allocate nothing.
    pub(super) fn make_room(&self, evds: usize) -> Result<()> {
        let mut jobs = self.shared.lock();
        let requested = jobs.requested.try_reserve(evds);
        requested.and_then(|()| jobs.calls.try_reserve(evds)).map_err(|_| {
            let none = room::none::<Arc<Job>>("event dispatchers", evds);
            Error::verb("create an event dispatcher")(none)
        })
    }

    /// A job for a dispatcher.
    pub(super) fn job(&self, of: Weak<dyn Served>) -> Arc<Job> {
        Arc::new(Job { wanted: AtomicU8::new(0), of, shared: self.shared.clone() })
    }

    /// Starts the thread if it does not run.
    pub(super) fn start(&self) -> Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = self.shared.clone();
            let started = kal_os::spawn("warpline-events", move || shared.run())
                .map_err(Error::os("start the thread of the event dispatchers"))?;
            *thread = Some(started);
        }
        Ok(())
    }

    /// Ends the thread. If the caller is that thread (a callback dropped the last reference), it ends
    /// when the callback returns.
    pub(crate) fn stop(&self) {
        let left = {
            let mut jobs = self.shared.lock();
            jobs.stopped = true;
            (std::mem::take(&mut jobs.requested), std::mem::take(&mut jobs.calls))
        };
        self.shared.arrived.notify_all();
        drop(left);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn there_is_memory_for_every_bell() {
        let dispatch = Dispatch::default();
        dispatch.make_room(100).unwrap();
        assert!(dispatch.shared.lock().requested.capacity() >= 100);
    }

    #[test]
    fn the_thread_has_ended_when_it_was_stopped() {
        let dispatch = Dispatch::default();
        dispatch.start().unwrap();
        let shared = Arc::downgrade(&dispatch.shared);
        warpline_patience::within("the dispatch thread to end", || dispatch.stop());
        drop(dispatch);
        assert_eq!(shared.strong_count(), 0);
    }
}
