//! STag table: from a 32-bit steering tag to memory, in a few nanoseconds and without a lock.
//!
//! Owner: one table per RNIC, shared by all its QPs through an `Arc`. Any thread may resolve; only
//! the privileged verbs and the local operations of a send queue change a slot, each under that
//! slot's own lock. When a peer dies its QP drops its [`Use`]s with the call that made them;
//! nothing stays behind in the table.
//!
//! # How a slot works
//!
//! One atomic word holds *valid*, the key octet and a use count. Resolving adds one to the count
//! and looks at what it found there: valid and the right key means that the grant cannot
//! change until the count goes down again. Revoking clears *valid* and waits until the count is 0.
//! Whoever saw the cleared bit leaves at once, so that wait is as short as one placement.
//!
//! # The rule for holders
//!
//! A [`Use`] is held across at most one non-blocking system call, or one call into the protocol
//! core, and its holder waits for nothing: no lock, no revocation (which would wait for the holder
//! itself). The borrow of the table keeps a `Use` from being stored in a QP.
//!
//! Counting in and out are two locked instructions, most of what a check costs. Who checks segment
//! after segment therefore keeps what it holds from one to the next ([`StagTable::resolve_next`]),
//! and looks only whether the STag is still valid.

use iwarp_proto::AccessError;
use vp_api::Stag;

use crate::grant::Grant;
pub use crate::grant::{Caller, Need};
use crate::meta::Meta;
use crate::random::Random;
use crate::sync::{AtomicPtr, AtomicU64, Mutex, Ordering, Patience, UnsafeCell, lock};

// Of the 24 bits of an index; model checkers and interpreters get a small table.
const INDEX_BITS: u32 = if cfg!(loom) {
    2
} else if cfg!(miri) {
    10
} else {
    24
};
const SEGMENT_BITS: u32 = if cfg!(loom) {
    1
} else if cfg!(miri) {
    6
} else {
    10
};
const SEGMENTS: usize = 1 << (INDEX_BITS - SEGMENT_BITS);
const SEGMENT_SLOTS: usize = 1 << SEGMENT_BITS;

/// Slots are handed out until half of the index space is used, so that it stays sparse. [SEC-07]
pub(crate) const MAX_STAGS: u32 = (SEGMENTS * SEGMENT_SLOTS / 2) as u32;

// The control word: use count, key, flags.
const USES: u64 = 0xffff_ffff;
const KEY_SHIFT: u32 = 32;
const VALID: u64 = 1 << 40;
const ALLOCATED: u64 = 1 << 41;

/// What an STag is for; each kind may use half of `MAX_STAGS`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Region = 0,
    Window = 1,
}

/// A revocation gave up after about a second: somebody broke the rule for holders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Busy;

/// One STag index.
#[repr(align(64))]
pub(crate) struct Slot {
    control: AtomicU64,
    grant: UnsafeCell<Grant>,
    /// What the verbs know about it. Never locked by a holder of a [`Use`].
    pub(crate) meta: Mutex<Meta>,
}

// SAFETY: `grant` is written only by `publish`, under the lock of `meta`, while the slot is not
// valid and its use count has been 0 since; it is read only by who counted itself in and then saw
// *valid*. The pointer inside is an address that any thread may use by the invariant of `MemRange`.
unsafe impl Sync for Slot {}
// SAFETY: as for `Sync`; nothing in a slot belongs to one thread.
unsafe impl Send for Slot {}

impl Slot {
    pub(crate) fn new() -> Self {
        Self {
            control: AtomicU64::new(0),
            grant: UnsafeCell::new(Grant::NOTHING),
            meta: Mutex::new(Meta::Free),
        }
    }

    /// Counts the caller in, if the slot is valid under `key`.
    #[inline]
    fn hold(&self, key: u8) -> Option<Hold<'_>> {
        // The look before the step keeps a peer that guesses from disturbing a revocation.
        if !fits(self.control.load(Ordering::Relaxed), key) {
            return None;
        }
        let found = self.control.fetch_add(1, Ordering::Acquire);
        let hold = Hold { slot: self };
        fits(found, key).then_some(hold)
    }

    /// Valid under which key, if at all.
    pub(crate) fn valid_key(&self) -> Option<u8> {
        let control = self.control.load(Ordering::Acquire);
        (control & VALID != 0).then_some((control >> KEY_SHIFT) as u8)
    }

    /// Makes the slot invalid and waits until nobody uses it. For the holder of `meta`'s lock.
    /// After [`Busy`] the slot is invalid, and somebody may still be using the memory.
    // RFC 5040 8.1.1(6) [SEC-05]
    pub(crate) fn revoke(&self) -> Result<(), Busy> {
        self.control.fetch_and(!VALID, Ordering::AcqRel);
        let mut patience = Patience::new();
        while self.control.load(Ordering::Acquire) & USES != 0 {
            if !patience.wait() {
                return Err(Busy);
            }
        }
        Ok(())
    }

    /// Makes the slot valid. For the holder of `meta`'s lock, after a successful `revoke` (or on a
    /// slot that was never valid).
    pub(crate) fn publish(&self, key: u8, grant: Grant) {
        debug_assert!(self.valid_key().is_none());
        self.grant.with_mut(|place| {
            // SAFETY: the slot is not valid and was drained by `revoke`, so nobody reads `grant`;
            // the caller holds the lock of `meta`, so nobody else writes it.
            unsafe { *place = grant }
        });
        let bits = VALID | u64::from(key) << KEY_SHIFT;
        let cleared = !(0xff << KEY_SHIFT);
        let mut old = self.control.load(Ordering::Relaxed);
        while let Err(now) = self.control.compare_exchange_weak(
            old,
            (old & cleared) | bits,
            Ordering::Release,
            Ordering::Relaxed,
        ) {
            old = now;
        }
    }

    fn is_allocated(&self) -> bool {
        self.control.load(Ordering::Relaxed) & ALLOCATED != 0
    }

    fn set_allocated(&self, yes: bool) {
        if yes {
            self.control.fetch_or(ALLOCATED, Ordering::Relaxed);
        } else {
            self.control.fetch_and(!ALLOCATED, Ordering::Relaxed);
        }
    }
}

/// Valid under `key`.
#[inline]
fn fits(control: u64, key: u8) -> bool {
    control & VALID != 0 && (control >> KEY_SHIFT) as u8 == key // [VERBS-22]
}

/// A slot's use count held up by one.
struct Hold<'t> {
    slot: &'t Slot,
}

impl Hold<'_> {
    #[inline]
    fn grant<R>(&self, look: impl FnOnce(&Grant) -> R) -> R {
        self.slot.grant.with(|grant| {
            // SAFETY: `hold` saw *valid* after counting itself in, so `publish` for this validity
            // happened before (Release to Acquire), and the next one waits for this count.
            look(unsafe { &*grant })
        })
    }

    #[inline]
    fn check(
        &self,
        need: Need,
        caller: &Caller,
        to: u64,
        len: u32,
    ) -> Result<*mut u8, AccessError> {
        self.grant(|grant| grant.check(need, caller, to, len))
    }

    /// No revocation has begun since. The key is the same: a new one waits for this count.
    #[inline]
    fn is_valid(&self) -> bool {
        self.slot.control.load(Ordering::Relaxed) & VALID != 0
    }
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.control.fetch_sub(1, Ordering::Release);
    }
}

/// Checked access to octets of registered memory; see the rule for holders in the module's text.
///
/// # Invariants
///
/// While it lives, `len` octets at `addr` are live memory, and writable if `writable`. With a hold
/// that follows from the grant's invariant; without one (STag 0) it is the privileged consumer's
/// promise.
pub struct Use<'t> {
    hold: Option<Hold<'t>>,
    stag: Stag,
    addr: *mut u8,
    len: u32,
    writable: bool,
}

impl Use<'_> {
    /// It holds the memory of `stag`, which is still valid.
    #[inline]
    fn holds(&self, stag: Stag) -> bool {
        self.stag == stag && self.hold.as_ref().is_some_and(Hold::is_valid)
    }

    /// To other octets of what it holds.
    #[inline(always)]
    fn move_to(
        &mut self,
        need: Need,
        caller: &Caller,
        to: u64,
        len: u32,
    ) -> Result<(), AccessError> {
        // Of no octets, until the check says otherwise.
        self.len = 0;
        let hold = self.hold.as_ref().ok_or(AccessError::InvalidStag)?;
        self.addr = hold.check(need, caller, to, len)?;
        (self.len, self.writable) = (len, need.writes());
        Ok(())
    }

    /// Octets.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // asked for a length by the caller, who knows it
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Address of `len` octets at `offset`, for scatter/gather system calls, which read and write
    /// through raw pointers. Never make a reference of it: a peer may write there.
    #[inline]
    pub fn raw(&self, offset: u32, len: usize) -> Result<*mut u8, AccessError> {
        if len as u64 + u64::from(offset) > u64::from(self.len) {
            return Err(AccessError::Bounds);
        }
        Ok(self.addr.wrapping_add(offset as usize))
    }

    /// As [`Use::raw`], for writing.
    #[inline]
    pub fn raw_mut(&self, offset: u32, len: usize) -> Result<*mut u8, AccessError> {
        if !self.writable {
            return Err(AccessError::Access);
        }
        self.raw(offset, len)
    }
}

/// The table.
pub struct StagTable {
    /// Segments that exist, by the high bits of the index; each an array of `SEGMENT_SLOTS` slots
    /// that is never moved or freed before the table.
    segments: Box<[AtomicPtr<Segment>]>,
    allocator: Mutex<Allocator>,
}

type Segment = [Slot; SEGMENT_SLOTS];

struct Allocator {
    random: Random,
    /// Numbers of the segments that exist.
    existing: Vec<u16>,
    /// STags in use, by kind.
    used: [u32; 2],
}

impl StagTable {
    /// A table without a valid STag.
    pub fn new() -> Self {
        Self {
            segments: (0..SEGMENTS).map(|_| AtomicPtr::default()).collect(),
            allocator: Mutex::new(Allocator {
                random: Random::new(),
                existing: Vec::new(),
                used: [0; 2],
            }),
        }
    }

    /// Checks an access to `len > 0` octets at `to` of `stag` and holds the memory for it.
    ///
    /// The order of checks: STag and key, association, rights, wrap, bounds, alignment (atomics).
    #[inline]
    pub fn resolve(
        &self,
        stag: Stag,
        need: Need,
        caller: &Caller,
        to: u64,
        len: u32,
    ) -> Result<Use<'_>, AccessError> {
        if stag.index() == 0 {
            return Self::resolve_privileged(stag, need, caller, to, len);
        }
        let slot = self.slot(stag.index()).ok_or(AccessError::InvalidStag)?;
        let hold = slot.hold(stag.key()).ok_or(AccessError::InvalidStag)?;
        let addr = hold.check(need, caller, to, len)?;
        Ok(Use { hold: Some(hold), stag, addr, len, writable: need.writes() })
    }

    /// As [`StagTable::resolve`], with every check, into `kept`: what that holds stays held if it is
    /// for the same STag, and is let go otherwise. After an error it may still be held; there is
    /// nothing to be done with it.
    // Always: what is asked for is known at compile time, and most of the check with it.
    #[inline(always)]
    pub fn resolve_next<'k, 't>(
        &'t self,
        kept: &'k mut Option<Use<'t>>,
        stag: Stag,
        need: Need,
        caller: &Caller,
        to: u64,
        len: u32,
    ) -> Result<&'k Use<'t>, AccessError> {
        if !kept.as_ref().is_some_and(|kept| kept.holds(stag)) {
            // In this order: whoever waits for the old one need not wait for the new one.
            *kept = None;
            return Ok(kept.insert(self.resolve(stag, need, caller, to, len)?));
        }
        let next = kept.as_mut().ok_or(AccessError::InvalidStag)?;
        next.move_to(need, caller, to, len)?;
        Ok(next)
    }

    /// STag 0: the whole process, for local buffers of privileged QPs only; TO = address. That the
    /// memory is there is the privileged consumer's promise (RDMAC 7.2.1).
    // [VERBS-23]
    #[cold]
    fn resolve_privileged(
        stag: Stag,
        need: Need,
        caller: &Caller,
        to: u64,
        len: u32,
    ) -> Result<Use<'static>, AccessError> {
        let local = matches!(need, Need::LocalRead | Need::LocalWrite);
        if stag != Stag::PRIVILEGED || !caller.privileged || !local || to == 0 {
            return Err(AccessError::InvalidStag);
        }
        to.checked_add(u64::from(len)).ok_or(AccessError::Wrap)?;
        let addr = std::ptr::with_exposed_provenance_mut(to as usize);
        Ok(Use { hold: None, stag, addr, len, writable: need.writes() })
    }

    /// The slot of an index, if its segment exists.
    #[inline]
    pub(crate) fn slot(&self, index: u32) -> Option<&Slot> {
        let pointer = self.segments.get((index >> SEGMENT_BITS) as usize)?.load(Ordering::Acquire);
        // SAFETY: a pointer that is not null was stored by `grow`, from a leaked box, with Release;
        // it is freed only by `drop` of the table, which outlives the answer's borrow.
        let segment = unsafe { pointer.as_ref() }?;
        segment.get(index as usize & (SEGMENT_SLOTS - 1))
    }

    /// Takes a free index at random; `None` if half of `MAX_STAGS` are in use for that kind.
    // RFC 5040 8.1.1(8) [SEC-07]; never 0 [VERBS-23]
    pub(crate) fn allocate(&self, kind: Kind) -> Option<u32> {
        let mut allocator = lock(&self.allocator);
        let allocator = &mut *allocator;
        if allocator.used[kind as usize] >= MAX_STAGS / 2 {
            return None;
        }
        let used: u32 = allocator.used.iter().sum();
        if used as usize * 2 >= allocator.existing.len() * SEGMENT_SLOTS {
            self.grow(allocator)?;
        }
        // At most half of the slots are in use: two tries on average.
        loop {
            let place = allocator.random.below(allocator.existing.len() * SEGMENT_SLOTS);
            let number = allocator.existing.get(place >> SEGMENT_BITS)?;
            let index = u32::from(*number) << SEGMENT_BITS | (place & (SEGMENT_SLOTS - 1)) as u32;
            let slot = self.slot(index)?;
            if index != 0 && !slot.is_allocated() {
                slot.set_allocated(true);
                allocator.used[kind as usize] += 1;
                return Some(index);
            }
        }
    }

    /// Gives an index back. Its slot has been revoked and its meta is `Free`.
    pub(crate) fn release(&self, index: u32, kind: Kind) {
        let mut allocator = lock(&self.allocator);
        if let Some(slot) = self.slot(index).filter(|slot| slot.is_allocated()) {
            slot.set_allocated(false);
            allocator.used[kind as usize] -= 1;
        }
    }

    /// Adds a segment at a random free place of the index space, unless all are there.
    fn grow(&self, allocator: &mut Allocator) -> Option<()> {
        if allocator.existing.len() == SEGMENTS {
            return Some(());
        }
        let number = loop {
            let number = allocator.random.below(SEGMENTS);
            if !allocator.existing.contains(&(number as u16)) {
                break number;
            }
        };
        let slots: Box<[Slot]> = (0..SEGMENT_SLOTS).map(|_| Slot::new()).collect();
        let segment: Box<Segment> = slots.try_into().ok()?;
        self.segments.get(number)?.store(Box::into_raw(segment), Ordering::Release);
        allocator.existing.push(number as u16);
        Some(())
    }
}

impl Default for StagTable {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for StagTable {
    fn drop(&mut self) {
        for segment in &self.segments {
            let pointer = segment.load(Ordering::Relaxed);
            if !pointer.is_null() {
                // SAFETY: it came from `Box::into_raw` in `grow`, once; with `&mut self` no borrow
                // of a slot is left.
                drop(unsafe { Box::from_raw(pointer) });
            }
        }
    }
}

#[cfg(test)]
#[path = "stag_table_tests.rs"]
mod tests;
