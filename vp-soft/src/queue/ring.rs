//! Lock-free, bounded, multi-producer, multi-consumer queue with a sequence number per slot (after Dmitry Vyukov's
//! design). Its tail can be closed permanently.
//!
//! Owner: a [`crate::queue::cq_ring::CqRing`], for as long as its CQ lives.

use crossbeam_utils::CachePadded;
use vp_api::{VpResult, WorkCompletion, room};

use crate::sync::{AtomicPtr, AtomicUsize, Ordering, Patience, UnsafeCell, fence};

/// Lowest bit of `Ring::tail`: the ring accepts no more completions. Positions are counted above it.
const CLOSED: usize = 1;
const STEP: usize = 2;
/// Highest bit of `Ring::head`: only one thread pops. No position ever has this bit.
const HELD: usize = 1 << (usize::BITS - 1);

/// The queue; positions only count up.
pub(crate) struct Ring {
    /// Number of rings before it in its CQ.
    generation: u32,
    /// Position of pushers, times `STEP`, and `CLOSED`.
    tail: CachePadded<AtomicUsize>,
    /// Position of poppers, and `HELD`.
    head: CachePadded<AtomicUsize>,
    /// Set before the tail is closed.
    next: AtomicPtr<Ring>,
    slots: Box<[Slot]>,
}

struct Slot {
    /// Position that may be written here next; position + 1 once that was written.
    sequence: AtomicUsize,
    completion: UnsafeCell<WorkCompletion>,
}

// SAFETY: `completion` is written only by the pusher that won the slot's position and read only by
// the popper that won it after the pusher's Release of `sequence`.
unsafe impl Sync for Slot {}

/// The result of a push.
pub(crate) enum Offer {
    /// It can be popped.
    Taken {
        /// The position where it is.
        position: usize,
    },
    Full,
    /// A popper won the slot one lap ago and has not finished with it.
    Stuck,
    Closed,
}

/// Number of bits of a position in a CQ that count within one ring; the bits above are the ring's generation.
const WITHIN: u32 = 48;

impl Ring {
    /// Creates an empty ring; `capacity` is a power of two, at least 2.
    pub(crate) fn new(capacity: usize, generation: u32) -> VpResult<Self> {
        let slot = |position| Slot {
            sequence: AtomicUsize::new(position),
            completion: UnsafeCell::new(WorkCompletion::BLANK),
        };
        let mut slots = room::list("entries of the completion queue", capacity)?;
        slots.extend((0..capacity).map(slot));
        Ok(Self {
            generation,
            tail: CachePadded::new(AtomicUsize::new(0)),
            head: CachePadded::new(AtomicUsize::new(0)),
            next: AtomicPtr::default(),
            slots: slots.into_boxed_slice(),
        })
    }

    fn slot(&self, position: usize) -> &Slot {
        &self.slots[position & (self.slots.len() - 1)]
    }

    /// Converts to a position among those of all rings of the CQ: later completions have greater positions.
    #[inline]
    pub(crate) fn place(&self, position: usize) -> u64 {
        u64::from(self.generation) << WITHIN | position as u64
    }

    /// The position before which everything was popped.
    pub(crate) fn popped(&self) -> u64 {
        self.place(self.head())
    }

    /// The position before which everything is that was pushed.
    pub(crate) fn pushed(&self) -> u64 {
        self.place(self.tail.load(Ordering::Acquire) / STEP)
    }

    fn head(&self) -> usize {
        self.head.load(Ordering::Acquire) & !HELD
    }

    /// Number of rings before it in its CQ.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Queues a completion at the tail. Waits only for a popper that was stopped while it copied a completion out,
    /// and only if all other slots have been reused meanwhile. `won` gets the position of the completion before
    /// poppers see it.
    #[inline]
    pub(crate) fn push(&self, completion: &WorkCompletion, won: impl FnOnce(usize)) -> Offer {
        let mut patience = Patience::default();
        let mut tail = self.tail.load(Ordering::Relaxed);
        let position = loop {
            if tail & CLOSED != 0 {
                // The thread that closed the ring has linked the next ring before.
                fence(Ordering::Acquire);
                return Offer::Closed;
            }
            let position = tail / STEP;
            let sequence = self.slot(position).sequence.load(Ordering::Acquire);
            if sequence == position {
                let exchanged = self.tail.compare_exchange_weak(
                    tail,
                    tail.wrapping_add(STEP),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                match exchanged {
                    Ok(_) => break position,
                    Err(now) => tail = now,
                }
            } else {
                let now = self.tail.load(Ordering::Relaxed);
                // Written one lap ago and not popped: the CQ is too small.
                if now == tail && self.is_full(position) {
                    return Offer::Full;
                }
                if now == tail && !patience.wait() {
                    return Offer::Stuck;
                }
                tail = now;
            }
        };
        won(position);
        self.write(position, completion);
        Offer::Taken { position }
    }

    /// Writes the slot of a position that the caller has won, and makes it visible to poppers.
    #[inline]
    fn write(&self, position: usize, completion: &WorkCompletion) {
        let slot = self.slot(position);
        slot.completion.with_mut(|place| {
            // SAFETY: winning the tail from `position` on a slot with this sequence number makes
            // this thread the only one that may touch it until the store below.
            unsafe { *place = *completion }
        });
        slot.sequence.store(position + 1, Ordering::Release);
    }

    /// Whether completions follow the one before this position, or the ring was closed.
    pub(crate) fn has_more_after(&self, place: u64) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        tail & CLOSED != 0 || self.place(tail / STEP) != place
    }

    /// Whether no popper has won the completion one lap behind `position`.
    fn is_full(&self, position: usize) -> bool {
        self.head() + self.slots.len() <= position
    }

    /// Whether it is full at present.
    pub(crate) fn is_full_now(&self) -> bool {
        self.is_full(self.tail.load(Ordering::Acquire) / STEP)
    }

    /// Moves up to `out.len()` completions to `out`, and returns how many. `None` if the ring is held.
    #[inline]
    pub(crate) fn pop(&self, out: &mut [WorkCompletion]) -> Option<usize> {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let ready = self.ready(head, out.len());
            if ready == 0 {
                let now = self.head.load(Ordering::Relaxed);
                if now == head {
                    return (head & HELD == 0).then_some(0);
                }
                head = now;
                continue;
            }
            let won = self.head.compare_exchange_weak(
                head,
                head + ready,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match won {
                Ok(_) => {
                    self.take(head, &mut out[..ready]);
                    return Some(ready);
                }
                Err(now) => head = now,
            }
        }
    }

    /// Holds the ring until it is [released](Ring::release): only the caller pops, by [`Ring::pop_held`], one
    /// thread at a time, under the CQ's lock for this.
    pub(crate) fn hold(&self) {
        // Completions that other threads have won are before the head. A thread that is about to win one finds that
        // the head has changed.
        self.head.fetch_or(HELD, Ordering::AcqRel);
    }

    pub(crate) fn release(&self) {
        self.head.fetch_and(!HELD, Ordering::AcqRel);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.head.load(Ordering::Acquire) & HELD != 0
    }

    /// The oldest completion, with its position.
    pub(crate) fn pop_held(&self) -> Option<(u64, WorkCompletion)> {
        let head = self.head();
        let mut one = [WorkCompletion::BLANK];
        (self.ready(head, 1) == 1).then(|| {
            self.head.store((head + 1) | HELD, Ordering::Release);
            self.take(head, &mut one);
            (self.place(head), one[0])
        })
    }

    /// The number of completions that can be read from `head` on, up to `limit`.
    fn ready(&self, head: usize, limit: usize) -> usize {
        let limit = limit.min(self.slots.len());
        let is_ready =
            |&n: &usize| self.slot(head + n).sequence.load(Ordering::Acquire) == head + n + 1;
        (0..limit).take_while(is_ready).count()
    }

    /// The position before which all completions were written, at or after `from`, popped or not; and whether no
    /// more are written in this ring. All before `from` were written.
    pub(crate) fn written(&self, from: u64) -> (u64, bool) {
        let known = from.saturating_sub(self.place(0)) as usize;
        let tail = self.tail.load(Ordering::Acquire);
        let end = tail / STEP;
        let is_written = |n: &usize| self.slot(*n).sequence.load(Ordering::Acquire) > *n;
        let start = self.head().max(known);
        let first = (start..end).find(|n| !is_written(n)).unwrap_or(end.max(start));
        (self.place(first.min(end)), tail & CLOSED != 0 && first >= end)
    }

    /// Reads the slots from `head` on, which the caller has won, and frees them for pushers.
    fn take(&self, head: usize, out: &mut [WorkCompletion]) {
        for (n, out) in out.iter_mut().enumerate() {
            let slot = self.slot(head + n);
            *out = slot.completion.with(|completion| {
                // SAFETY: `ready` saw the pusher's Release of this position; moving the head over
                // it, by exchange or in a ring that is held, made this thread its only reader; no
                // pusher writes before the store below.
                unsafe { *completion }
            });
            slot.sequence.store(head + n + self.slots.len(), Ordering::Release);
        }
    }

    /// The approximate number of entries pushed and not popped, and whether the ring was held when they
    /// were counted: popped entries may then be in the side list of its CQ.
    pub(crate) fn content(&self) -> (usize, bool) {
        let head = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Acquire) / STEP;
        (tail.saturating_sub(head & !HELD), head & HELD != 0)
    }

    /// Whether no more completions are added and everything was popped. Never true for a ring that is held: only
    /// the holder moves to the next ring.
    pub(crate) fn is_finished(&self) -> bool {
        let tail = self.tail.load(Ordering::Acquire);
        tail & CLOSED != 0 && tail / STEP == self.head.load(Ordering::Acquire)
    }

    /// The same for the holder.
    pub(crate) fn is_finished_held(&self) -> bool {
        let tail = self.tail.load(Ordering::Acquire);
        tail & CLOSED != 0 && tail / STEP == self.head()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// The ring that pushers went to when this one was closed.
    pub(crate) fn next(&self) -> *mut Ring {
        self.next.load(Ordering::Acquire)
    }

    /// Sends pushers to `next` from now on. Called once, under the CQ's lock for growing.
    pub(crate) fn close(&self, next: *mut Ring) {
        self.next.store(next, Ordering::Release);
        // Closed last, so that a thread that finds the ring closed also finds the next one.
        self.tail.fetch_or(CLOSED, Ordering::AcqRel);
    }
}

/// Simulates threads that are stopped half way, for tests.
#[cfg(test)]
#[cfg(not(loom))]
impl Ring {
    /// A pusher that has won a position and has not written it.
    pub(crate) fn begin_push(&self) -> usize {
        self.tail.fetch_add(STEP, Ordering::Relaxed) / STEP
    }

    /// Continues the pusher.
    pub(crate) fn end_push(&self, position: usize, completion: &WorkCompletion) {
        self.write(position, completion);
    }

    /// A popper that has won a completion and has not read it.
    pub(crate) fn begin_pop(&self) -> usize {
        self.head.fetch_add(1, Ordering::Relaxed)
    }

    /// Continues the popper.
    pub(crate) fn end_pop(&self, position: usize) {
        self.take(position, &mut [WorkCompletion::BLANK]);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "ring_tests.rs"]
mod tests;
