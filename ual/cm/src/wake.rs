//! Whether the connection thread watches, and who must wake it.
//!
//! One per adapter, without a lock. Callers say what they are about to do, and are told if the thread
//! must be signalled; the thread asks how to rest. No wake-up is lost: who relies on the thread says
//! so, *then* looks whether it rests; the thread says that it rests, *then* looks for who relies on
//! it. Both put a sequentially consistent fence between, so at least one sees the other. Peers have
//! no part in it.

use kal_os::sync::{AtomicBool, AtomicU32, Ordering, fence};

/// How the thread rests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    /// Watching the sockets.
    Sleep,
    /// Watching nothing but its waker, and not for long.
    BackOff,
}

/// See the module.
#[derive(Default)]
pub(crate) struct WakeState {
    /// The thread looks for commands before it rests.
    awake: AtomicBool,
    /// A caller has looked after the sockets since the thread last asked.
    attended: AtomicBool,
    /// Callers that sleep, and rely on the thread.
    relying: AtomicU32,
    /// The thread does not watch the sockets, or is about to leave them.
    backing_off: AtomicBool,
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
        self.attended.store(true, Ordering::Relaxed);
    }

    /// A caller goes to sleep: true if the thread must be signalled.
    #[must_use]
    pub(crate) fn rely(&self) -> bool {
        self.relying.fetch_add(1, Ordering::Relaxed);
        // Against `rest`: one of us sees the other.
        fence(Ordering::SeqCst);
        self.backing_off.load(Ordering::Relaxed)
    }

    /// It is awake again.
    pub(crate) fn withdraw(&self) {
        self.relying.fetch_sub(1, Ordering::Relaxed);
    }

    /// For the thread: how to rest; `None` if there is something to see to first. [`WakeState::rise`]
    /// follows.
    pub(crate) fn rest(&self, is_busy: impl Fn() -> bool) -> Option<Rest> {
        self.awake.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        if is_busy() {
            return None;
        }
        if !self.attended.swap(false, Ordering::Relaxed) {
            return Some(Rest::Sleep);
        }
        self.backing_off.store(true, Ordering::Relaxed);
        // Against `rely`.
        fence(Ordering::SeqCst);
        if self.relying.load(Ordering::Relaxed) == 0 {
            return Some(Rest::BackOff);
        }
        self.backing_off.store(false, Ordering::Relaxed);
        Some(Rest::Sleep)
    }

    /// For the thread, when it is awake.
    pub(crate) fn rise(&self) {
        self.backing_off.store(false, Ordering::Relaxed);
        self.awake.store(true, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
#[path = "wake_loom_tests.rs"]
mod loom_tests;
