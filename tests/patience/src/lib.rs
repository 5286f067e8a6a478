//! Waits of tests, with a time-out and a message that names the awaited event.
//!
//! Many faults show as an event that never comes. A test that hangs does not name the event; these functions do. The
//! time-out only prevents hangs: no test asserts a time.
//!
//! Owner of the state: the caller's stack; a [`Guard`] also has a thread, which ends with it.

#![forbid(unsafe_code)]

mod copied;
pub mod seeds;
mod side_by_side;

pub use copied::copy_program;
pub use side_by_side::side_by_side;

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The time-out, longer than any wait on a busy machine.
pub const HANG: Duration = Duration::from_secs(60);

/// Waits until `done`; panics after [`HANG`] with `what` did not come.
#[track_caller]
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let bound = Bound::new(what);
    while !done() {
        bound.check();
        std::thread::yield_now();
    }
}

/// The bound of a loop: call [`Bound::check`] in each round.
#[derive(Debug)]
pub struct Bound<'a> {
    what: &'a str,
    begun: Instant,
    limit: Duration,
}

impl<'a> Bound<'a> {
    /// With a time-out of [`HANG`] from now on.
    pub fn new(what: &'a str) -> Self {
        Self { what, begun: Instant::now(), limit: HANG }
    }

    /// Panics when the time is over.
    #[track_caller]
    pub fn check(&self) {
        assert!(self.begun.elapsed() < self.limit, "waited {:?} for {}", self.limit, self.what);
    }
}

/// For a call that blocks, such as joining a thread or a read: if the guard is not dropped in time, it ends the
/// process with a message.
#[derive(Debug)]
pub struct Guard {
    _alive: Sender<()>,
}

impl Guard {
    /// With a time-out of [`HANG`] from now on.
    pub fn new(what: &'static str) -> Self {
        let (alive, watch) = channel();
        std::thread::spawn(move || {
            if watch.recv_timeout(HANG) == Err(RecvTimeoutError::Timeout) {
                eprintln!("waited {HANG:?} for {what}; ending the test program");
                std::process::abort();
            }
        });
        Self { _alive: alive }
    }
}

/// Runs `wait` under a [`Guard`] with the message `what`, and returns its result.
pub fn within<T>(what: &'static str, wait: impl FnOnce() -> T) -> T {
    let _guard = Guard::new(what);
    wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_done_or_reports_what_was_missing() {
        let mut rounds = 0;
        until("three rounds", || {
            rounds += 1;
            rounds == 3
        });
        let over = Bound { limit: Duration::ZERO, ..Bound::new("a bus") };
        let missing = std::panic::catch_unwind(|| over.check()).expect_err("the time is over");
        let text = missing.downcast::<String>().expect("a text");
        assert!(text.ends_with("for a bus"), "{text}");
        assert_eq!(within("nothing", || 7), 7);
    }
}
