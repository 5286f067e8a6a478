//! Lock-free ring of completions of a CQ: threads of any QP push, and any poller pops.
//!
//! Owner: one CQ. If a peer dies, its QP pushes flushed completions like any others.
//!
//! # Ring
//!
//! To grow, the tail of the bounded ring is closed permanently, and a ring of at least twice the size is linked
//! after it. Pushers continue there at once, poppers when the old ring is empty, so the order is kept. Old rings
//! are freed with the CQ: together they are smaller than the newest. (A ring of the same size is linked if a popper
//! occupies a slot for a second because its thread does not run.)
//!
//! # Rule for arming
//!
//! Arming requests one notification: for the next completion, or for the next solicited one (which includes
//! errors). Completions that could be popped before do not trigger it. So: poll until empty, arm, poll once more,
//! then sleep. A pusher publishes a completion, then reads the arm state; a consumer sets the arm state, then reads
//! the ring. Both have a sequentially consistent fence between the two steps, so at least one sees the other's
//! step. Each request that was met by a completion gets its notification, even if the next request comes before the
//! pusher has read the arm state (`arm`).
//!
//! A poller cannot pass a slot whose pusher was stopped half way, so the notification of a later solicited
//! completion may fire while that completion cannot be polled yet. The slower pusher then sees that others came
//! after it, and fires for them. One notification too many is allowed; one too few is not.

mod arm;
mod removal;

use vp_api::{VpError, VpResult, VpStatus, WcStatus, WorkCompletion};

use self::arm::ArmState;
use self::removal::{Filling, SideList};
use crate::limits;
use crate::queue::ring::{Offer, Ring};
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, Mutex, Ordering, fence, lock};

/// Maximum number of entries of a CQ.
pub const MAX_CQE: u32 = 1 << 20;

/// Completions that were put into the ring and whose consumers must still be notified.
#[derive(Clone, Copy, Default, Debug)]
pub struct Put {
    /// The position after the last completion; 0 if there is none.
    end: u64,
    solicited: bool,
    /// Completions of other pushers came between.
    overtaken: bool,
}

impl Put {
    /// No notification is due.
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }
}

/// What the pusher must do now, outside of its locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WakeActions {
    /// Armed notifications that fired: the handler must be called for each.
    pub notify: u32,
    /// Threads sleep in `Cq::wait` and must be woken.
    pub wake: bool,
}

/// No room: the completion is lost and the CQ stays overrun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overrun {
    /// It is the first lost completion: the event must be raised.
    pub first: bool,
}

/// Ring, arm state and overrun mark of a CQ.
pub struct CqRing {
    /// The ring that pushers use.
    newest: AtomicPtr<Ring>,
    /// The ring that poppers use.
    oldest: AtomicPtr<Ring>,
    arm: ArmState,
    /// Threads that sleep, or are about to sleep.
    sleepers: AtomicU32,
    overrun: AtomicBool,
    /// All rings that were ever linked; the lock serialises growing.
    rings: Mutex<Vec<*mut Ring>>,
    /// Completions that poppers take first, while the oldest ring is held.
    side: Mutex<SideList>,
}

// SAFETY: the pointers in `rings` own boxes that live until the CQ is dropped; everything behind
// them is `Sync`.
unsafe impl Send for CqRing {}
// SAFETY: as for `Send`.
unsafe impl Sync for CqRing {}

impl CqRing {
    /// Creates a ring for at least `depth` entries.
    pub fn new(depth: u32) -> VpResult<Self> {
        let ring = Box::into_raw(Box::new(Ring::new(capacity_for(depth)?, 0)?));
        Ok(Self {
            newest: AtomicPtr::new(ring),
            oldest: AtomicPtr::new(ring),
            arm: ArmState::default(),
            sleepers: AtomicU32::new(0),
            overrun: AtomicBool::new(false),
            rings: Mutex::new(vec![ring]),
            side: Mutex::default(),
        })
    }

    /// Queues a completion, which can be popped from then on. Returns its position, to be compared with
    /// [`CqRing::taken`]. The caller must call [`CqRing::notify`] soon afterwards, once for any number of
    /// completions. Takes no lock; waits only for a popper that was stopped half way, for a bounded time.
    pub fn put(&self, completion: &WorkCompletion, put: &mut Put) -> Result<u64, Overrun> {
        let mut ring = self.newest();
        let solicited = completion.solicited || completion.status != WcStatus::Success;
        // An overrun is permanent: no completion follows a lost one, even if there is room again.
        while !self.is_overrun() {
            let won = |position| {
                if solicited {
                    self.arm.note_solicited(ring.place(position));
                }
            };
            match ring.push(completion, won) {
                Offer::Taken { position } => {
                    let place = ring.place(position);
                    put.overtaken |= put.end != 0 && put.end != place;
                    put.end = place + 1;
                    put.solicited |= solicited;
                    return Ok(place);
                }
                Offer::Closed => ring = self.next_after(ring).unwrap_or(ring),
                // There is room, but a thread that does not run occupies the slot. No completion may be lost
                // because of that.
                Offer::Stuck => {
                    // Without memory for another ring the pusher must wait longer.
                    let _ = self.link_next(ring);
                }
                Offer::Full => match self.filling(ring) {
                    Filling::NoMore => {}
                    Filling::Removed if self.link_next(ring).is_ok() => {}
                    // RFC 5042 6.4.6: only this CQ is affected. [SEC-09]
                    Filling::Removed | Filling::Valid => {
                        let first = !self.overrun.swap(true, Ordering::AcqRel);
                        return Err(Overrun { first });
                    }
                },
            }
        }
        Err(Overrun { first: false })
    }

    /// Which consumers must be notified of the completions that were put; none if there were none.
    pub fn notify(&self, put: Put) -> WakeActions {
        if put.is_empty() {
            return WakeActions { notify: 0, wake: false };
        }
        // After the slots are visible and before the arm state is read: see the rule for arming.
        fence(Ordering::SeqCst);
        let overtaken = || put.overtaken || self.newest().has_more_after(put.end);
        WakeActions {
            notify: self.arm.fire(put.end, || put.solicited || overtaken()),
            wake: self.sleepers.load(Ordering::Relaxed) != 0,
        }
    }

    /// Queues one completion and returns which consumers to notify.
    pub fn push(&self, completion: &WorkCompletion) -> Result<WakeActions, Overrun> {
        let mut put = Put::default();
        self.put(completion, &mut put)?;
        Ok(self.notify(put))
    }

    /// Moves up to `out.len()` completions to `out`, oldest first; returns how many.
    pub fn pop(&self, out: &mut [WorkCompletion]) -> usize {
        if out.is_empty() {
            return 0;
        }
        let mut ring = self.oldest();
        loop {
            match ring.pop(out) {
                None => return self.pop_held(out),
                Some(0) if ring.is_finished() => {}
                Some(popped) => return popped,
            }
            let Some(next) = self.next_after(ring) else { return 0 };
            ring = self.advance(ring, next);
        }
    }

    /// A ring is finished: from here on poppers use the next one.
    fn advance<'a>(&self, ring: &Ring, next: &'a Ring) -> &'a Ring {
        let _ = self.oldest.compare_exchange(
            std::ptr::from_ref(ring).cast_mut(),
            std::ptr::from_ref(next).cast_mut(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        next
    }

    /// Requests one notification, see the rule for arming. The caller must poll once more afterwards.
    pub fn arm(&self, solicited_only: bool) {
        self.arm.arm(solicited_only, |from| self.visible(from));
    }

    /// The position, at or after `from`, before which all completions can be popped or were popped. The
    /// caller knows this of all before `from`.
    fn visible(&self, from: u64) -> u64 {
        let mut ring = self.oldest();
        loop {
            let (end, complete) = ring.written(from);
            match self.next_after(ring).filter(|_| complete) {
                Some(next) => ring = next,
                None => return end,
            }
        }
    }

    /// Announces a thread that is going to sleep until a push says `wake`. The thread must check for completions
    /// once more afterwards, and call [`CqRing::leave_sleep`] when it is awake.
    pub fn enter_sleep(&self) {
        self.sleepers.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// The thread is awake again.
    pub fn leave_sleep(&self) {
        self.sleepers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Completions were lost.
    pub fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Acquire)
    }

    /// Whether a completion can be popped, or will be poppable in a moment.
    pub fn has_any(&self) -> bool {
        self.queued() != 0
    }

    /// Whether a completion may go to a poller without being queued: no other can be popped before it, none was
    /// lost, and no consumer has armed or sleeps.
    pub fn passes_on(&self) -> bool {
        !self.arm.is_armed()
            && self.sleepers.load(Ordering::Relaxed) == 0
            && !self.has_any()
            && !self.is_overrun()
    }

    /// The approximate number of completions.
    pub fn queued(&self) -> usize {
        let (len, held) = self.in_rings();
        if held { len + self.side_len() } else { len }
    }

    /// The number of completions in the rings, and whether one of the rings is held.
    fn in_rings(&self) -> (usize, bool) {
        self.chain().fold((0, false), |(sum, any), ring| {
            let (len, held) = ring.content();
            (sum + len, any || held)
        })
    }

    fn chain(&self) -> impl Iterator<Item = &Ring> {
        std::iter::successors(Some(self.oldest()), |ring| self.next_after(ring))
    }

    /// The number of entries that it can hold.
    pub fn depth(&self) -> u32 {
        self.newest().capacity() as u32
    }

    /// Makes room for at least `depth` entries, and keeps all completions; returns the depth that it has then. If a
    /// smaller depth is requested, the present one stays, and it is an error only if the entries would not fit.
    // RDMAC 9.2.3: Modify CQ
    pub fn resize(&self, depth: u32) -> VpResult<u32> {
        let capacity = capacity_for(depth)?;
        let mut rings = lock(&self.rings);
        let now = self.newest();
        let held = self.queued();
        if held > capacity {
            return Err(VpError::new(
                VpStatus::CqTooSmall,
                format!(
                    "the queue holds {held} completions, {depth} were requested: poll them first"
                ),
            ));
        }
        if capacity > now.capacity() {
            self.extend(&mut rings, capacity)?;
        }
        Ok(self.depth())
    }

    /// Links another ring of the same size after a ring, unless that was already done.
    #[cold]
    fn link_next(&self, ring: &Ring) -> VpResult<()> {
        let mut rings = lock(&self.rings);
        match std::ptr::eq(ring, self.newest()) {
            true => self.extend(&mut rings, ring.capacity()),
            false => Ok(()),
        }
    }

    /// Links a ring after the newest one.
    fn extend(&self, rings: &mut Vec<*mut Ring>, capacity: usize) -> VpResult<()> {
        let now = self.newest();
        let pointer = Box::into_raw(Box::new(Ring::new(capacity, now.generation() + 1)?));
        rings.push(pointer);
        // The order matters: a completion in a ring that poppers cannot reach yet could fire and could not be
        // polled.
        now.close(pointer);
        self.newest.store(pointer, Ordering::Release);
        Ok(())
    }

    /// The position before which all completions were popped.
    pub fn taken(&self) -> u64 {
        let (oldest, held) = (self.oldest().popped(), self.chain().any(Ring::is_held));
        if held { self.taken_held() } else { oldest }
    }

    fn newest(&self) -> &Ring {
        self.at(self.newest.load(Ordering::Acquire))
    }

    fn oldest(&self) -> &Ring {
        self.at(self.oldest.load(Ordering::Acquire))
    }

    fn next_after(&self, ring: &Ring) -> Option<&Ring> {
        let next = ring.next();
        (!next.is_null()).then(|| self.at(next))
    }

    /// The ring at a pointer taken from `newest`, `oldest`, `rings` or a ring's `next`.
    fn at(&self, ring: *mut Ring) -> &Ring {
        // SAFETY: all those pointers came from `Box::into_raw`, are never null here, and are freed
        // only when the CQ is dropped.
        unsafe { &*ring }
    }
}

fn capacity_for(depth: u32) -> VpResult<usize> {
    limits::check("entries of a CQ", depth, 1, MAX_CQE, VpStatus::InsufficientResources)?;
    // With one slot, the sequence numbers for "may be written" and "was written" would be equal.
    Ok(depth.next_power_of_two().max(2) as usize)
}

impl Drop for CqRing {
    fn drop(&mut self) {
        for ring in lock(&self.rings).drain(..) {
            // SAFETY: each pointer came from `Box::into_raw` and is in the list once; with
            // `&mut self` no code borrows a ring any more.
            drop(unsafe { Box::from_raw(ring) });
        }
    }
}

#[cfg(test)]
#[path = "cq_ring_tests.rs"]
mod tests;
