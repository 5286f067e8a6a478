//! The boundary between C and Rust: no panic crosses it, and each thread's last failure is stored.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::failure::{Failure, Outcome};
use super::fork;
use super::reserve;
use super::status::{self, Status};

thread_local! {
    /// The long text of the calling thread's last failure, unless it is in [`MADE`]. Setting it allocates
    /// nothing, not even for the thread's end.
    static CONSTANT: Cell<Option<&'static str>> = const { Cell::new(Some("")) };
    /// The same if it was formatted for the failure.
    static MADE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs the body of an entry point.
#[inline]
pub(crate) fn call(body: impl FnOnce() -> Outcome) -> Status {
    // After a panic the library uses only state that locks and atomics keep consistent.
    match catch_unwind(AssertUnwindSafe(|| guarded(body))) {
        Ok(Ok(())) => status::IT_SUCCESS,
        Ok(Err(failure)) => failed(failure),
        Err(_) => failed(Failure::new(
            status::IT_ERR_IA_CATASTROPHE,
            "internal error: the library panicked; please report the message on standard error",
        )),
    }
}

/// Runs the body of an entry point that creates an object, or begins to: refused while memory is short.
#[inline]
pub(crate) fn create(body: impl FnOnce() -> Outcome) -> Status {
    call(|| if reserve::fill() { body() } else { Err(Failure::SHORT_OF_MEMORY) })
}

fn guarded(body: impl FnOnce() -> Outcome) -> Outcome {
    if fork::is_child() {
        return Err(Failure::new(
            status::IT_ERR_IA_CATASTROPHE,
            "this process was forked from one that uses IT-API: the library's threads are not here; \
             fork before the first it_ia_create, or exec in the child",
        ));
    }
    body()
}

#[cold]
fn failed(failure: Failure) -> Status {
    match failure.text {
        Cow::Borrowed(text) => CONSTANT.set(Some(text)),
        Cow::Owned(text) => set_last_failure(text),
    }
    failure.status
}

/// Stores why a work request failed whose completion was dequeued, though the dequeue succeeded.
#[cold]
pub(crate) fn set_last_failure(text: String) {
    CONSTANT.set(None);
    // A thread that ends has no last failure any more.
    let _ = MADE.try_with(|last| *last.borrow_mut() = text);
}

/// Passes the calling thread's last failure to `reader`.
pub(crate) fn with_last<R>(reader: impl FnOnce(&str) -> R) -> Option<R> {
    match CONSTANT.get() {
        Some(text) => Some(reader(text)),
        None => MADE.try_with(|last| reader(&last.borrow())).ok(),
    }
}

/// Runs the body of an entry point that returns a text and no status.
pub(crate) fn text(body: impl FnOnce() -> String) -> String {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| "internal error".into())
}
