//! A gate at which threads sleep until another thread opens it, a time has passed, or a signal handler
//! ran.
//!
//! A futex, since a condition variable hides signals. The owner of the gate owns its word; any thread
//! waits and opens. The state that is waited for is the owner's, under a lock of the owner's. To wait:
//! draw a ticket and check the state under that lock, then sleep without it. To wake: change the state
//! under it, then open.

use std::time::Duration;

#[cfg(not(loom))]
pub use futex::Gate;
#[cfg(loom)]
pub use modelled::Gate;

/// Why a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slept {
    /// The gate was opened, or spuriously: check again.
    Woken,
    /// The time has passed.
    TimedOut,
    /// A signal handler ran in this thread.
    Signal,
}

#[cfg(not(loom))]
mod futex {
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::io::Errno;
    use rustix::thread::futex::{self, Flags};

    use super::{Duration, Slept};
    use crate::timespec;

    /// The longest single sleep.
    const LONG: Duration = Duration::from_secs(3600);

    /// A gate.
    #[derive(Debug, Default)]
    pub struct Gate(AtomicU32);

    impl Gate {
        /// A ticket to sleep with: the number of times that the gate was opened.
        pub fn ticket(&self) -> u32 {
            self.0.load(Ordering::Acquire)
        }

        /// Sleeps unless the gate was opened since the ticket was drawn; `None`: no limit.
        pub fn wait(&self, ticket: u32, timeout: Option<Duration>) -> Slept {
            // signal(7): with SA_RESTART only a futex wait that has a time ends at a signal handler.
            let time = timeout.map_or(LONG, |timeout| timeout.min(LONG));
            match futex::wait(&self.0, Flags::PRIVATE, ticket, Some(&timespec(time))) {
                Err(Errno::INTR) => Slept::Signal,
                Err(Errno::TIMEDOUT) if timeout == Some(time) => Slept::TimedOut,
                _ => Slept::Woken,
            }
        }

        /// Wakes all threads that sleep here.
        pub fn open(&self) {
            self.0.fetch_add(1, Ordering::Release);
            // This cannot fail: the word exists.
            let _ = futex::wake(&self.0, Flags::PRIVATE, i32::MAX as u32);
        }
    }
}

/// The gate made of loom's primitives. There is no time and there are no signals.
#[cfg(loom)]
mod modelled {
    use loom::sync::{Condvar, Mutex};

    use super::{Duration, Slept};
    use crate::sync::lock;

    /// A gate.
    #[derive(Debug, Default)]
    pub struct Gate {
        opened: Mutex<u32>,
        changed: Condvar,
    }

    impl Gate {
        /// As without loom.
        pub fn ticket(&self) -> u32 {
            *lock(&self.opened)
        }

        /// As without loom.
        pub fn wait(&self, ticket: u32, _timeout: Option<Duration>) -> Slept {
            let mut opened = lock(&self.opened);
            while *opened == ticket {
                opened = self.changed.wait(opened).unwrap_or_else(|e| e.into_inner());
            }
            Slept::Woken
        }

        /// As without loom.
        pub fn open(&self) {
            *lock(&self.opened) += 1;
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn an_old_ticket_does_not_sleep() {
        let gate = Gate::default();
        let ticket = gate.ticket();
        gate.open();
        assert_eq!(gate.wait(ticket, None), Slept::Woken);
    }

    #[test]
    fn sleeps_end_by_time_and_by_opening() {
        let gate = Gate::default();
        let ticket = gate.ticket();
        assert_eq!(gate.wait(ticket, Some(Duration::from_millis(1))), Slept::TimedOut);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| gate.wait(ticket, None));
            gate.open();
            assert_eq!(sleeper.join().unwrap(), Slept::Woken);
        });
    }
}
