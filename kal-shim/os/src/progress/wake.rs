//! Wake-ups of a thread that serves sockets and executes commands, as that of a connection manager: whether
//! it watches ([`Progress`]), and whether a command must signal it.
//!
//! One per thread, without a lock. A caller announces its next step, and gets whether the
//! thread must be signalled; the thread gets how to wait. A command is sent, *then* its sender checks
//! whether the thread is awake; the thread announces that it waits, *then* checks for commands: at least
//! one sees the other.

use super::{Mode, Progress};
use crate::sync::{AtomicBool, Ordering, fence};

/// The wake-up state of one such thread.
#[derive(Default)]
pub struct WakeState {
    /// The thread checks for commands before it waits.
    awake: AtomicBool,
    progress: Progress,
}

impl WakeState {
    /// A command was sent, or the manager stops: true if the thread must be signalled.
    #[must_use]
    pub fn request_wake(&self) -> bool {
        // Against `begin_wait`: the command is sent before the thread is checked.
        fence(Ordering::SeqCst);
        !self.awake.swap(true, Ordering::AcqRel)
    }

    /// A caller serves the sockets itself.
    pub fn mark_polled(&self) {
        self.progress.mark_polled();
    }

    /// A caller goes to sleep: true if the thread must be signalled.
    #[must_use]
    pub fn rely(&self) -> bool {
        self.progress.rely()
    }

    /// The caller is awake again.
    pub fn withdraw(&self) {
        self.progress.withdraw();
    }

    /// For the thread: how to wait; `None` if there is work. [`WakeState::end_wait`] follows.
    pub fn begin_wait(&self, is_busy: impl Fn() -> bool) -> Option<Mode> {
        // A swap: what the last sender did before its own is seen from here on.
        self.awake.swap(false, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        // No caller is a leader: those that sleep rely on the thread.
        (!is_busy()).then(|| self.progress.decide(|| false))
    }

    /// For the thread, when it is awake.
    pub fn end_wait(&self) {
        self.progress.end_wait();
        self.awake.store(true, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
#[path = "wake_loom_tests.rs"]
mod loom_tests;
