//! Attempts that are to be made again later: by a thread that is there only while there are any.
//!
//! One list per adapter. It holds no meeting alive: those that are over drop out.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Instant;

use kal_os::lock;

/// What is tried again.
pub(crate) trait Again: Send + Sync {
    /// The time has come.
    fn again(self: Arc<Self>);
}

/// See the module.
#[derive(Default)]
pub(crate) struct Retries {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    due: Vec<(Instant, Weak<dyn Again>)>,
    running: bool,
}

impl Retries {
    /// Has a meeting tried again at this time. False: there is no thread to be had.
    pub(crate) fn at(self: &Arc<Self>, when: Instant, meeting: Weak<dyn Again>) -> bool {
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
            let ready: Vec<(Instant, Weak<dyn Again>)> = ready;
            ready
                .iter()
                .filter_map(|(_, meeting)| meeting.upgrade())
                .for_each(|meeting| meeting.again());
            state = lock(&self.state);
        }
        state.running = false;
    }
}
