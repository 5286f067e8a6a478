//! The list of the tables whose memory the handler guards. It has no lock: a signal handler reads it, and a child made
//! by fork(2) uses it, whatever another thread did at that moment.
//!
//! Owner: a static. Any thread adds and removes; entries are never freed, and are used again. A reader counts in the
//! entry while it looks at a table. A table that is removed is freed only when no reader counts. If the parent forked
//! while another thread was in the handler, that thread's count stays in the child, which leaks the table.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use vp_api::{VpResult, room};

use crate::memory::segments::{Places, View};
use crate::sync::Patience;

struct Entry {
    /// Null: the entry is free.
    places: AtomicPtr<Places>,
    readers: AtomicUsize,
    /// Set before the entry is in the list.
    next: AtomicPtr<Entry>,
}

static FIRST: AtomicPtr<Entry> = AtomicPtr::new(null_mut());

fn entries() -> impl Iterator<Item = &'static Entry> {
    // SAFETY: null, or an entry of `add`, which is leaked and only shared.
    let entry = |at: &AtomicPtr<Entry>| unsafe { at.load(Ordering::Acquire).as_ref::<'static>() };
    std::iter::successors(entry(&FIRST), move |last| entry(&last.next))
}

/// Adds a table.
///
/// # Errors
/// There is no memory for an entry.
pub(in crate::memory) fn add(view: View) -> VpResult<()> {
    let places = view.places().as_ptr();
    let free = entries().filter(|entry| entry.readers.load(Ordering::Relaxed) == 0);
    let take = |entry: &Entry| {
        let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
        entry.places.compare_exchange(null_mut(), places, success, failure).is_ok()
    };
    if free.into_iter().any(take) {
        return Ok(());
    }
    let mut entry = room::list("entries for STag tables", 1)?;
    let next = AtomicPtr::new(null_mut());
    entry.push(Entry { places: AtomicPtr::new(places), readers: AtomicUsize::new(0), next });
    let [entry] = entry.leak() else { unreachable!("one was pushed") };
    let mut first = FIRST.load(Ordering::Relaxed);
    loop {
        entry.next.store(first, Ordering::Relaxed);
        match FIRST.compare_exchange(first, entry, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return Ok(()),
            Err(now) => first = now,
        }
    }
}

/// Removes a table. False: a reader may still look at it, so that it must not be freed.
pub(in crate::memory) fn remove(view: View) -> bool {
    let places = view.places().as_ptr();
    let Some(entry) = entries().find(|entry| entry.places.load(Ordering::Relaxed) == places) else {
        return true;
    };
    // A reader sees null, or its count is seen here.
    entry.places.store(null_mut(), Ordering::SeqCst);
    let mut patience = Patience::default();
    while entry.readers.load(Ordering::SeqCst) != 0 {
        if !patience.wait() {
            return false;
        }
    }
    true
}

/// Whether a thread uses registered memory with this address now. For the handler of a signal.
pub(super) fn is_used_at(addr: usize) -> bool {
    entries().any(|entry| {
        entry.readers.fetch_add(1, Ordering::SeqCst);
        let places = NonNull::new(entry.places.load(Ordering::SeqCst));
        // SAFETY: it has not been removed, or `remove` waits for this reader.
        let used = places.is_some_and(|places| unsafe { View::new(places).is_used_at(addr) });
        entry.readers.fetch_sub(1, Ordering::SeqCst);
        used
    })
}

/// The number of entries, in use or not.
#[cfg(all(test, not(any(loom, miri))))]
pub(super) fn len() -> usize {
    entries().count()
}
