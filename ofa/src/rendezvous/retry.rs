//! Repeated attempts: a thread that exists only while there are any.
//!
//! One list per adapter. It holds meetings weakly: those that are over are dropped from the list.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Instant;

use kal_os::lock;

/// An attempt that can be repeated.
pub(crate) trait Retry: Send + Sync {
    /// Called at the time that was set.
    fn retry(self: Arc<Self>);
}

/// The list of one adapter.
#[derive(Default)]
pub(crate) struct Retries {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    due: Vec<(Instant, Weak<dyn Retry>)>,
    running: bool,
}

impl Retries {
    /// Has `retry` called at this time. False: no thread could be started.
    pub(crate) fn at(self: &Arc<Self>, when: Instant, meeting: Weak<dyn Retry>) -> bool {
        let mut state = lock(&self.state);
        state.due.push((when, meeting));
        if !state.running {
            let this = self.clone();
            state.running = kal_os::spawn("warpline-meet", move || this.run()).is_ok();
        }
        self.changed.notify_one();
        state.running
    }

    fn run(&self) {
        let mut state = lock(&self.state);
        while let Some(first) = state.due.iter().map(|(when, _)| *when).min() {
            let now = Instant::now();
            if first > now {
                let wait = self.changed.wait_timeout(state, first - now);
                state = wait.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let (ready, later) = state.due.drain(..).partition(|(when, _)| *when <= now);
            state.due = later;
            drop(state);
            let ready: Vec<(Instant, Weak<dyn Retry>)> = ready;
            ready
                .iter()
                .filter_map(|(_, meeting)| meeting.upgrade())
                .for_each(|meeting| meeting.retry());
            state = lock(&self.state);
        }
        state.running = false;
    }
}
