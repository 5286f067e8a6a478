//! Wake-ups of the connection thread: whether it watches ([`Progress`]), and whether a command must
//! signal it.
//!
//! One per adapter, without a lock. A caller announces its next step, and gets whether the
//! thread must be signalled; the thread gets how to wait. A command is sent, *then* its sender checks
//! whether the thread is awake; the thread announces that it waits, *then* looks for commands: at least
//! one sees the other.

use kal_os::progress::{Mode, Progress};
use kal_os::sync::{AtomicBool, Ordering, fence};

/// The wake-up state of one connection thread.
#[derive(Default)]
pub(crate) struct WakeState {
    /// The thread looks for commands before it waits.
    awake: AtomicBool,
    progress: Progress,
}

impl WakeState {
    /// A command was sent, or the manager stops: true if the thread must be signalled.
    #[must_use]
    pub(crate) fn request_wake(&self) -> bool {
        // Against `begin_wait`: the command comes before the look at the thread.
        fence(Ordering::SeqCst);
        !self.awake.swap(true, Ordering::AcqRel)
    }

    /// A caller serves the sockets itself.
    pub(crate) fn note_poll(&self) {
        self.progress.note_poll();
    }

    /// A caller goes to sleep: true if the thread must be signalled.
    #[must_use]
    pub(crate) fn rely(&self) -> bool {
        self.progress.rely()
    }

    /// The caller is awake again.
    pub(crate) fn withdraw(&self) {
        self.progress.withdraw();
    }

    /// For the thread: how to wait; `None` if there is work. [`WakeState::end_wait`] follows.
    pub(crate) fn begin_wait(&self, is_busy: impl Fn() -> bool) -> Option<Mode> {
        self.awake.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        // No caller is a leader: those that sleep rely on the thread.
        (!is_busy()).then(|| self.progress.decide(|| false))
    }

    /// For the thread, when it is awake.
    pub(crate) fn end_wait(&self) {
        self.progress.end_wait();
        self.awake.store(true, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
#[path = "wake_loom_tests.rs"]
mod loom_tests;
