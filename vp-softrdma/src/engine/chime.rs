//! What a follower sleeps on: a flag that rings once, on a futex, whose waits end when a signal
//! handler ran in the sleeping thread, as `epoll_wait` does for the leader.
//!
//! Made by the follower for one wait; the station rings it, under its lock. Model-checked as a
//! condition variable, which has no signals.

use std::time::Duration;

/// How a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slept {
    /// Rung, timed out, or for no reason: look.
    Awake,
    /// A signal handler ran.
    Signalled,
}

#[cfg(not(loom))]
pub(super) use futex::Chime;
#[cfg(loom)]
pub(super) use model::Chime;

#[cfg(not(loom))]
mod futex {
    use rustix::io::Errno;
    use rustix::thread::futex::{self, Flags};

    use super::{Duration, Slept};
    use crate::engine::timespec;
    use crate::sync::{AtomicU32, Ordering};

    /// An unbounded sleep wakes this often: only a wait with a time-out tells of a signal whose
    /// handler was installed with `SA_RESTART` (signal(7)).
    const LONG: Duration = Duration::from_secs(3600);

    /// The flag.
    #[derive(Default)]
    pub(in crate::engine) struct Chime(AtomicU32);

    impl Chime {
        /// Ends the present or the next sleep.
        pub(in crate::engine) fn ring(&self) {
            self.0.store(1, Ordering::Release);
            // It cannot fail: the word is aligned and ours.
            let _ = futex::wake(&self.0, Flags::PRIVATE, 1);
        }

        /// Sleeps until it rings or `left` is over.
        pub(in crate::engine) fn sleep(&self, left: Option<Duration>) -> Slept {
            let left = timespec(left.unwrap_or(LONG));
            // Rung already, the word is not 0 and the kernel says so at once.
            let slept = futex::wait(&self.0, Flags::PRIVATE, 0, Some(&left));
            self.0.swap(0, Ordering::Acquire);
            if slept == Err(Errno::INTR) { Slept::Signalled } else { Slept::Awake }
        }
    }
}

#[cfg(loom)]
mod model {
    use super::{Duration, Slept};
    use crate::sync::{Condvar, Mutex, lock};

    /// The flag.
    #[derive(Default)]
    pub(in crate::engine) struct Chime {
        rung: Mutex<bool>,
        bell: Condvar,
    }

    impl Chime {
        pub(in crate::engine) fn ring(&self) {
            *lock(&self.rung) = true;
            self.bell.notify_one();
        }

        /// Models sleep for ever.
        pub(in crate::engine) fn sleep(&self, _: Option<Duration>) -> Slept {
            let mut rung = lock(&self.rung);
            while !*rung {
                rung = self.bell.wait(rung).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            *rung = false;
            Slept::Awake
        }
    }
}
