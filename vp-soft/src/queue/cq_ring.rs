//! Lock-free ring of completions behind a CQ: any QP's thread pushes, any poller pops.
//!
//! Owner: one CQ. When a peer dies its QP pushes flushed completions like any others.
//!
//! # Ring
//!
//! To grow, the bounded ring's tail is closed for good and a ring of at least twice the size is linked
//! after it. Pushers continue there at once, poppers when the old ring is empty, so the order is kept.
//! Old rings are freed with the CQ: together they are smaller than the newest. (A ring of the same size
//! is linked where a popper keeps a slot for a second because its thread does not run.)
//!
//! # Arm rule
//!
//! Arming asks for one notification: for the next completion, or for the next solicited one (which
//! includes errors). Completions that could be popped before do not fire it. So: poll until empty, arm,
//! poll once more, then sleep. A pusher publishes, then looks at the arm state; the armer sets the
//! state, then looks at the ring; with a sequentially consistent fence between the two steps on
//! each side, one of them sees the other. Each request that a completion met gets its notification, even
//! if the next request comes before the pusher has looked (`arm`).
//!
//! A poller cannot pass a slot whose pusher was stopped half way, so a solicited completion after it
//! may fire while it cannot be polled yet. The slower pusher then sees that others came after it and
//! fires for them: one notification too many is allowed, one too few is not.

mod arm;
mod removal;

use vp_api::{VpError, VpResult, VpStatus, WcStatus, WorkCompletion};

use self::arm::ArmState;
use self::removal::SideList;
use crate::queue::ring::{Offer, Ring};
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, Mutex, Ordering, fence, lock};

/// Entries that a CQ may have.
pub const MAX_CQE: u32 = 1 << 20;

/// Completions that were put into the ring, and that consumers must still be notified of.
#[derive(Clone, Copy, Default, Debug)]
pub struct Put {
    /// The place after the last one; 0 is after none.
    end: u64,
    solicited: bool,
    /// Other pushers' completions came between.
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
    /// Armed notifications that fired: call the handler for each.
    pub notify: u32,
    /// Threads sleep in `Cq::wait`: wake them.
    pub wake: bool,
}

/// No room: the completion is lost and the CQ is overrun for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overrun {
    /// It is the first one: raise the event.
    pub first: bool,
}

/// Ring, arm state and overrun mark of a CQ.
pub struct CqRing {
    /// The ring that pushers use.
    newest: AtomicPtr<Ring>,
    /// The ring that poppers use.
    oldest: AtomicPtr<Ring>,
    arm: ArmState,
    /// Threads asleep, or about to be.
    sleepers: AtomicU32,
    overrun: AtomicBool,
    /// All rings there ever were; the lock serialises growing.
    rings: Mutex<Vec<*mut Ring>>,
    /// Completions that poppers take first while the oldest ring is held.
    side: Mutex<SideList>,
}

// SAFETY: the pointers in `rings` own boxes that live until the CQ is dropped; everything behind
// them is `Sync`.
unsafe impl Send for CqRing {}
// SAFETY: as for `Send`.
unsafe impl Sync for CqRing {}

impl CqRing {
    /// A ring for at least `depth` entries.
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

    /// Queues a completion, which can be popped from then on. Returns its place, to be compared with
    /// [`CqRing::taken`]. The caller must call [`CqRing::notify`] soon after, once for any number of them. Takes
    /// no lock; waits only for a popper that was stopped half way, for a bounded time.
    pub fn put(&self, completion: &WorkCompletion, put: &mut Put) -> Result<u64, Overrun> {
        let mut ring = self.newest();
        let solicited = completion.solicited || completion.status != WcStatus::Success;
        // An overrun is permanent: no completion follows a lost one, even if there is room by now.
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
                // There is room, but a thread that does not run keeps the slot: no completion may be
                // lost for that.
                Offer::Stuck => {
                    // Without memory for another ring it has to wait longer.
                    let _ = self.link_next(ring);
                }
                Offer::Full if self.keeps_destroyed() && self.link_next(ring).is_ok() => {}
                // RFC 5042 6.4.6: only this CQ suffers. [SEC-09]
                Offer::Full => {
                    return Err(Overrun { first: !self.overrun.swap(true, Ordering::AcqRel) });
                }
            }
        }
        Err(Overrun { first: false })
    }

    /// The consumers to be notified of what was put; none if nothing was.
    pub fn notify(&self, put: Put) -> WakeActions {
        if put.is_empty() {
            return WakeActions { notify: 0, wake: false };
        }
        // After the slots are visible and before the arm state is read: see the arm rule.
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

    /// A ring is finished: poppers use the next one from here on.
    fn advance<'a>(&self, ring: &Ring, next: &'a Ring) -> &'a Ring {
        let _ = self.oldest.compare_exchange(
            std::ptr::from_ref(ring).cast_mut(),
            std::ptr::from_ref(next).cast_mut(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        next
    }

    /// Requests one notification, see the arm rule; poll once more afterwards.
    pub fn arm(&self, solicited_only: bool) {
        self.arm.arm(solicited_only, |from| self.visible(from));
    }

    /// The place after the completions, from `from` on, that can be popped or were. All before `from` can,
    /// or were.
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

    /// Announces a thread that is going to sleep until a push says `wake`. The thread looks for
    /// completions once more afterwards, and calls [`CqRing::leave_sleep`] when it is awake.
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

    /// A completion can be popped, or will be in a moment.
    pub fn has_any(&self) -> bool {
        self.queued() != 0
    }

    /// The approximate number of completions.
    pub fn queued(&self) -> usize {
        let (len, held) = self.in_rings();
        if held { len + self.side_len() } else { len }
    }

    /// Completions in the rings, and whether one of them is held.
    fn in_rings(&self) -> (usize, bool) {
        self.chain().fold((0, false), |(sum, any), ring| {
            let (len, held) = ring.content();
            (sum + len, any || held)
        })
    }

    fn chain(&self) -> impl Iterator<Item = &Ring> {
        std::iter::successors(Some(self.oldest()), |ring| self.next_after(ring))
    }

    /// Entries that it can hold.
    pub fn depth(&self) -> u32 {
        self.newest().capacity() as u32
    }

    /// Makes room for at least `depth` entries, keeping all completions; returns the depth now. A
    /// smaller depth is granted by keeping the present one, unless the entries would not fit.
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

    /// Links another ring of the same size after a ring, unless that was done already.
    #[cold]
    fn link_next(&self, ring: &Ring) -> VpResult<()> {
        let mut rings = lock(&self.rings);
        match std::ptr::eq(ring, self.newest()) {
            true => self.extend(&mut rings, ring.capacity()),
            false => Ok(()),
        }
    }

    /// Links a ring after the newest.
    fn extend(&self, rings: &mut Vec<*mut Ring>, capacity: usize) -> VpResult<()> {
        let now = self.newest();
        let pointer = Box::into_raw(Box::new(Ring::new(capacity, now.generation() + 1)?));
        rings.push(pointer);
        // In this order: a completion in a ring that poppers cannot reach yet would have fired and could
        // not be polled.
        now.close(pointer);
        self.newest.store(pointer, Ordering::Release);
        Ok(())
    }

    /// Completions before this place were taken.
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
    if depth == 0 || depth > MAX_CQE {
        return Err(VpError::new(
            VpStatus::InsufficientResources,
            format!("a completion queue holds 1 to {MAX_CQE} entries, {depth} were requested"),
        ));
    }
    // One slot would make "may be written" and "was written" the same number.
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
