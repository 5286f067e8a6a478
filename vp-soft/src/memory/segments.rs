//! The segments of an STag table: arrays of slots that are never moved, nor freed before the table.
//!
//! Owner: the table, whose allocator adds segments. Any thread looks slots up, without a lock. The handler of
//! [`unmapped`] looks at all of them, so that there is a list of the segments of every table; they leave the list
//! before they are freed. Full: when there are [`SEGMENTS`] of them, less one, no segment is added.

use std::ptr::NonNull;

use vp_api::{VpResult, room};

use crate::memory::stag_table::{SEGMENT_SLOTS, SEGMENTS, Slot};
use crate::memory::unmapped;
use crate::sync::{AtomicPtr, Ordering};

pub(super) type Segment = [Slot; SEGMENT_SLOTS];

/// Pointers to the segments, by number; there is no segment 0.
pub(super) type Places = [AtomicPtr<Segment>; SEGMENTS];

/// The segments of one table.
///
/// # Invariants
///
/// The places are a leaked box, which only `drop` frees. A place that is not null is a leaked box, too.
pub(super) struct Segments(NonNull<Places>);

// SAFETY: atomic pointers to slots, which are `Send` and `Sync`; nothing in them belongs to one thread.
unsafe impl Send for Segments {}
// SAFETY: the same.
unsafe impl Sync for Segments {}

impl Segments {
    /// No segments.
    pub(super) fn new() -> VpResult<Self> {
        let mut all = room::list("segments of the STag table", SEGMENTS)?;
        all.resize_with(SEGMENTS, AtomicPtr::default);
        // A boxed slice of that length is that array.
        let places: Box<Places> = all
            .into_boxed_slice()
            .try_into()
            .unwrap_or_else(|_| unreachable!("as many as there are"));
        let segments = Self(NonNull::from(Box::leak(places)));
        unmapped::tables::add(View(segments.0))?;
        Ok(segments)
    }

    #[inline]
    fn places(&self) -> &Places {
        // SAFETY: by the invariant they exist as long as `self`, and are only read.
        unsafe { self.0.as_ref() }
    }

    /// A segment, if it exists.
    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<&Segment> {
        let pointer = self.places().get(number)?.load(Ordering::Acquire);
        // SAFETY: by the invariant it exists as long as `self`; it was stored with Release.
        unsafe { pointer.as_ref() }
    }

    /// Adds a segment; false if there is no place with this number.
    pub(super) fn put(&self, number: usize, segment: Box<Segment>) -> bool {
        let Some(place) = self.places().get(number) else { return false };
        place.store(Box::into_raw(segment), Ordering::Release);
        true
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        if !unmapped::tables::remove(View(self.0)) {
            return;
        }
        // SAFETY: by the invariant it is a leaked box; no view is left, and no borrow, with `&mut self`.
        let places = unsafe { Box::from_raw(self.0.as_ptr()) };
        for place in places.iter() {
            let pointer = place.load(Ordering::Relaxed);
            if !pointer.is_null() {
                // SAFETY: as for the places.
                drop(unsafe { Box::from_raw(pointer) });
            }
        }
    }
}

/// The segments of one table in the list of `unmapped`.
#[derive(Clone, Copy)]
pub(super) struct View(NonNull<Places>);

impl View {
    pub(super) fn new(places: NonNull<Places>) -> Self {
        Self(places)
    }

    pub(super) fn places(self) -> NonNull<Places> {
        self.0
    }

    /// Whether a thread uses memory of a slot now, and `addr` is in that memory. Takes no lock.
    ///
    /// # Safety
    ///
    /// The [`Segments`] have not been dropped, and are not until this returns.
    pub(super) unsafe fn is_used_at(self, addr: usize) -> bool {
        // SAFETY: the caller's promise.
        let places = unsafe { self.0.as_ref() };
        let segments = places.iter().skip(1).map(|place| place.load(Ordering::Acquire));
        segments.take_while(|segment| !segment.is_null()).any(|segment| {
            // SAFETY: it exists as long as the places, which the caller promises.
            unsafe { &*segment }.iter().any(|slot| slot.is_used_at(addr))
        })
    }
}
