//! A bounded queue with a sequence number per slot (after Dmitry Vyukov's): many pushers, many
//! poppers, no lock; and a tail that can be closed for good.
//!
//! Owner: a [`crate::cq_ring::CqRing`], for as long as its CQ lives.

use crossbeam_utils::CachePadded;
use vp_api::WorkCompletion;

use crate::sync::{AtomicPtr, AtomicUsize, Ordering, Patience, UnsafeCell, fence};

/// Lowest bit of `Ring::tail`: the ring takes nothing more. Positions count above it.
const CLOSED: usize = 1;
const STEP: usize = 2;

/// The queue; positions count up for ever.
pub(crate) struct Ring {
    /// Where pushers are, times `STEP`, and `CLOSED`.
    tail: CachePadded<AtomicUsize>,
    /// Where poppers are.
    head: CachePadded<AtomicUsize>,
    /// Set before the tail is closed.
    next: AtomicPtr<Ring>,
    slots: Box<[Slot]>,
}

struct Slot {
    /// Position that may be written here next; position + 1 once it was written.
    sequence: AtomicUsize,
    completion: UnsafeCell<WorkCompletion>,
}

// SAFETY: `completion` is written only by the pusher that won the slot's position and read only by
// the popper that won it after the pusher's Release of `sequence`.
unsafe impl Sync for Slot {}

/// What became of a push.
pub(crate) enum Offer {
    /// It can be popped.
    Taken {
        /// Where it is.
        position: usize,
    },
    Full,
    Closed,
}

impl Ring {
    /// An empty ring; `capacity` is a power of two, at least 2.
    pub(crate) fn new(capacity: usize) -> Self {
        let slot = |position| Slot {
            sequence: AtomicUsize::new(position),
            completion: UnsafeCell::new(WorkCompletion::BLANK),
        };
        Self {
            tail: CachePadded::new(AtomicUsize::new(0)),
            head: CachePadded::new(AtomicUsize::new(0)),
            next: AtomicPtr::default(),
            slots: (0..capacity).map(slot).collect(),
        }
    }

    fn slot(&self, position: usize) -> &Slot {
        &self.slots[position & (self.slots.len() - 1)]
    }

    /// Queues a completion at the tail. Waits only for a popper that was stopped while it copied a
    /// completion out, when all slots but its own have gone round meanwhile.
    pub(crate) fn push(&self, completion: &WorkCompletion) -> Offer {
        let mut patience = Patience::new();
        let mut tail = self.tail.load(Ordering::Relaxed);
        let position = loop {
            if tail & CLOSED != 0 {
                // Whoever closed it linked the next ring before.
                fence(Ordering::Acquire);
                return Offer::Closed;
            }
            let position = tail / STEP;
            let sequence = self.slot(position).sequence.load(Ordering::Acquire);
            if sequence == position {
                let won = self.tail.compare_exchange_weak(
                    tail,
                    tail.wrapping_add(STEP),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                match won {
                    Ok(_) => break position,
                    Err(now) => tail = now,
                }
            } else {
                let now = self.tail.load(Ordering::Relaxed);
                // Written a lap ago. Nobody has taken it yet: it is what a CQ too small looks like.
                if now == tail && (self.is_full(position) || !patience.wait()) {
                    return Offer::Full;
                }
                tail = now;
            }
        };
        let slot = self.slot(position);
        slot.completion.with_mut(|place| {
            // SAFETY: winning the tail from `position` on a slot with this sequence number makes
            // this thread the only one that may touch it until the store below.
            unsafe { *place = *completion }
        });
        slot.sequence.store(position + 1, Ordering::Release);
        Offer::Taken { position }
    }

    /// Others have come behind `position`, or the ring was closed.
    pub(crate) fn is_overtaken(&self, position: usize) -> bool {
        self.tail.load(Ordering::Relaxed) != (position + 1) * STEP
    }

    /// No popper has won the completion that is a lap behind `position`.
    fn is_full(&self, position: usize) -> bool {
        self.head.load(Ordering::Acquire) + self.slots.len() <= position
    }

    /// Moves up to `out.len()` completions to `out`; answers how many.
    pub(crate) fn pop(&self, out: &mut [WorkCompletion]) -> usize {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let ready = self.ready(head, out.len());
            if ready == 0 {
                let now = self.head.load(Ordering::Relaxed);
                if now == head {
                    return 0;
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
                    return ready;
                }
                Err(now) => head = now,
            }
        }
    }

    /// Completions that can be read from `head` on, up to `limit`.
    fn ready(&self, head: usize, limit: usize) -> usize {
        let limit = limit.min(self.slots.len());
        let is_ready =
            |&n: &usize| self.slot(head + n).sequence.load(Ordering::Acquire) == head + n + 1;
        (0..limit).take_while(is_ready).count()
    }

    /// Reads the slots from `head` on, which the caller has won, and gives them back to pushers.
    fn take(&self, head: usize, out: &mut [WorkCompletion]) {
        for (n, out) in out.iter_mut().enumerate() {
            let slot = self.slot(head + n);
            *out = slot.completion.with(|completion| {
                // SAFETY: `ready` saw the pusher's Release of this position; moving the head over
                // it made this thread its only reader; no pusher writes before the store below.
                unsafe { *completion }
            });
            slot.sequence.store(head + n + self.slots.len(), Ordering::Release);
        }
    }

    /// Entries pushed and not popped, roughly.
    pub(crate) fn len(&self) -> usize {
        let head = self.head.load(Ordering::Acquire);
        (self.tail.load(Ordering::Acquire) / STEP).saturating_sub(head)
    }

    /// Nothing more comes, and everything was popped.
    pub(crate) fn is_finished(&self) -> bool {
        let tail = self.tail.load(Ordering::Acquire);
        tail & CLOSED != 0 && tail / STEP == self.head.load(Ordering::Acquire)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// The ring that pushers went to when this one was closed.
    pub(crate) fn next(&self) -> *mut Ring {
        self.next.load(Ordering::Acquire)
    }

    /// Sends pushers to `next` from now on. Once, under the CQ's lock for growing.
    pub(crate) fn close(&self, next: *mut Ring) {
        self.next.store(next, Ordering::Release);
        // Last: whoever finds the ring closed finds the next one, too.
        self.tail.fetch_or(CLOSED, Ordering::AcqRel);
    }
}
