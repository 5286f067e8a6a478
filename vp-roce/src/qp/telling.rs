//! Events of a connection's end that the consumer has not been told yet: a queue pair begins anew only behind them, because the
//! consumer would take one for an event of the next connection.
//!
//! Owner: the queue pair. Any thread that settles it tells; a handler that blocks delays only who begins anew.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{ThreadId, current};

use kal_os::lock;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Telling {
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Default)]
struct State {
    /// Events that are due, or being told.
    due: u32,
    /// Who has one that it tells.
    by: Option<ThreadId>,
}

impl Telling {
    /// An event is due.
    pub(super) fn add(&self) {
        lock(&self.state).due += 1;
    }

    /// The calling thread has one, and tells it soon: [`Telling::told`].
    pub(super) fn begin(&self) {
        lock(&self.state).by = Some(current().id());
    }

    /// It was told.
    pub(super) fn told(&self) {
        let mut state = lock(&self.state);
        (state.due, state.by) = (state.due.saturating_sub(1), None);
        self.over.notify_all();
    }

    /// Waits until none is due; false if the calling thread has one, from whose handler this is called.
    pub(super) fn wait(&self) -> bool {
        let mut state = lock(&self.state);
        while state.due != 0 {
            if state.by == Some(current().id()) {
                return false;
            }
            state = self.over.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}
