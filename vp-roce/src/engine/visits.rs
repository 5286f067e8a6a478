//! Counts the threads that serve sockets and timers, and may hold queue pairs meanwhile.
//!
//! Owner: the engine. A thread that closes an RNIC waits, for a bounded time, until no other thread is in such a
//! visit. Then no thread uses what the application registered. A thread that ends the process waits likewise, so that
//! replies leave. The waiting thread may itself be in a visit, when it runs in a handler.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use kal_os::sync::Patience;

thread_local! {
    /// Nested visits of this thread.
    static OWN: Cell<u32> = const { Cell::new(0) };
}

/// How many threads are in a visit.
#[derive(Default, Debug)]
pub(super) struct Visits(AtomicU32);

/// A visit; it ends when this is dropped.
pub(super) struct Visit<'a>(&'a Visits);

impl Visits {
    /// Begins a visit.
    pub(super) fn begin(&self) -> Visit<'_> {
        self.0.fetch_add(1, Ordering::AcqRel);
        OWN.with(|own| own.set(own.get() + 1));
        Visit(self)
    }

    /// Whether the calling thread is in a visit.
    pub(super) fn is_own(&self) -> bool {
        OWN.with(Cell::get) != 0
    }

    /// Waits until no other thread is in a visit.
    pub(super) fn wait_for_others(&self) {
        let own = OWN.with(Cell::get);
        let mut patience = Patience::default();
        while self.0.load(Ordering::Acquire) != own && patience.wait() {}
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        OWN.with(|own| own.set(own.get() - 1));
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}
