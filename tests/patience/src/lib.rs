//! Waits of tests: each has a bound, and says what it waited for.
//!
//! A fault often shows as something that never comes. A test that then hangs says nothing; one that
//! waits by these says what was missing. The bound is a safety net: no test asserts a time.
//!
//! Owner of the state: the caller's stack; a [`Guard`] also has a thread, which ends with it.

#![forbid(unsafe_code)]

pub mod seeds;

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Nothing that a test waits for takes so long, on the busiest machine.
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
    /// Of [`HANG`] from now on.
    pub fn new(what: &'a str) -> Self {
        Self { what, begun: Instant::now(), limit: HANG }
    }

    /// Panics when the time is over.
    #[track_caller]
    pub fn check(&self) {
        assert!(self.begun.elapsed() < self.limit, "waited {:?} for {}", self.limit, self.what);
    }
}

/// For what cannot be asked whether it is done, as the end of a thread or a read: if the guard is not
/// dropped in time, it ends the process with `what` was waited for.
#[derive(Debug)]
pub struct Guard {
    _alive: Sender<()>,
}

impl Guard {
    /// Of [`HANG`] from now on.
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

/// What `wait` returns, under a [`Guard`] that says `what` it waits for.
pub fn within<T>(what: &'static str, wait: impl FnOnce() -> T) -> T {
    let _guard = Guard::new(what);
    wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_it_is_done_or_says_what_was_missing() {
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
