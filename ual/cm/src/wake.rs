//! Whether the connection thread watches ([`Progress`]), and whether a command must wake it.
//!
//! One per adapter, without a lock. Callers say what they are about to do, and are told if the thread
//! must be signalled; the thread asks how to rest. A command is sent, *then* its sender looks whether the
//! thread is awake; the thread says that it rests, *then* looks for commands: at least one sees the other.

use kal_os::progress::{Mode, Progress};
use kal_os::sync::{AtomicBool, Ordering, fence};

/// See the module.
#[derive(Default)]
pub(crate) struct WakeState {
    /// The thread looks for commands before it rests.
    awake: AtomicBool,
    progress: Progress,
}

impl WakeState {
    /// A command was sent, or it is over: true if the thread must be signalled.
    #[must_use]
    pub(crate) fn rouse(&self) -> bool {
        // Against `rest`: the command before the look at the thread.
        fence(Ordering::SeqCst);
        !self.awake.swap(true, Ordering::AcqRel)
    }

    /// A caller looks after the sockets itself.
    pub(crate) fn attend(&self) {
        self.progress.note_poll();
    }

    /// A caller goes to sleep: true if the thread must be signalled.
    #[must_use]
    pub(crate) fn rely(&self) -> bool {
        self.progress.rely()
    }

    /// It is awake again.
    pub(crate) fn withdraw(&self) {
        self.progress.withdraw();
    }

    /// For the thread: how to rest; `None` if there is something to see to first. [`WakeState::rise`]
    /// follows.
    pub(crate) fn rest(&self, is_busy: impl Fn() -> bool) -> Option<Mode> {
        self.awake.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        // No caller leads: those that sleep rely on the thread.
        (!is_busy()).then(|| self.progress.decide(|| false))
    }

    /// For the thread, when it is awake.
    pub(crate) fn rise(&self) {
        self.progress.rise();
        self.awake.store(true, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
#[path = "wake_loom_tests.rs"]
mod loom_tests;
