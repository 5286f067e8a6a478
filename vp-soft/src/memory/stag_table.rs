//! STag table: maps a 32-bit steering tag to memory, in a few nanoseconds and without a lock.
//!
//! Owner: one table per RNIC, shared by all its QPs through an `Arc`. Any thread may resolve an STag. Only the
//! privileged verbs and the local operations of a send queue change a slot, each under that slot's own lock. When a
//! peer dies, its QP drops its [`Use`]s with the call that made them; nothing of it stays in the table.
//!
//! # Where a slot is
//!
//! An index is a random number of 24 bits, so that one STag reveals nothing about another. Slots are dense
//! nevertheless. Segments are numbered from 1, in the order in which they are needed. A level is the segments from
//! a power of two, its width, up to the next power of two. The low bits of an index select its slot in a level, the
//! rest is random, and the slot stores the whole STag. A lookup begins at the widest level, which has half of the
//! segments.
//!
//! # How a slot works
//!
//! One atomic word holds *valid*, the STag and a use count. Resolving adds one to the count and examines the old
//! word: if it was valid and held the right STag, the grant cannot change until the count is decremented. Revoking
//! clears *valid* and waits until the count is 0. A thread that finds *valid* cleared decrements the count at once,
//! so the wait is as short as one placement.
//!
//! # The rule for holders
//!
//! A [`Use`] is held across at most one non-blocking system call, or one call into the protocol core. Its holder
//! must not wait: not for a lock, and not for a revocation (which would wait for the holder itself). Because a
//! `Use` borrows the table, it cannot be stored in a QP.
//!
//! Incrementing and decrementing the count are two locked instructions, most of the cost of a check. A thread that
//! checks segment after segment therefore keeps its `Use` from one segment to the next
//! ([`StagTable::resolve_next`]) and only checks that the STag is still valid.

use vp_api::{RefusedRegion, Stag, VpResult, room};

use crate::memory::AccessError;
use crate::memory::grant::Grant;
pub use crate::memory::grant::{Caller, Need};
use crate::memory::meta::Meta;
use crate::memory::random::Random;
use crate::memory::segments::{Segment, Segments};
use crate::sync::{
    AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, Patience, UnsafeCell, lock, yield_now,
};

// How many of the 24 bits of an index are used. Model checkers and interpreters get a small table.
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
pub(super) const SEGMENTS: usize = 1 << (INDEX_BITS - SEGMENT_BITS);
pub(super) const SEGMENT_SLOTS: usize = 1 << SEGMENT_BITS;

/// STags are handed out until half of the index space is used, so that it stays sparse. [SEC-07]
pub(crate) const MAX_STAGS: u32 = (SEGMENTS * SEGMENT_SLOTS / 2) as u32;

// The control word: use count, flags, STag.
const USES: u64 = 0x1fff_ffff;
/// The grant is being written.
const PUBLISHING: u64 = 1 << 29;
const VALID: u64 = 1 << 30;
const ALLOCATED: u64 = 1 << 31;
const STAG_SHIFT: u32 = 32;

/// The kind of object that an STag names. Each kind may use half of `MAX_STAGS`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Region = 0,
    Window = 1,
}

/// A revocation gave up after about a second: a holder broke the rule for holders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Busy;

/// The slot of one STag index.
#[repr(align(64))]
pub(crate) struct Slot {
    control: AtomicU64,
    grant: UnsafeCell<Grant>,
    /// The attributes for the verbs. Never locked by a holder of a [`Use`].
    pub(crate) meta: Mutex<Meta>,
}

// A power of two: a lookup finds its slot by a shift. 192 octets cost 3 % of a check.
#[cfg(not(any(loom, miri)))]
const _: () = assert!(size_of::<Slot>() == 128);

// SAFETY: `grant` is written only by `publish`, under the lock of `meta`, while the slot is not
// valid and its use count has been 0 since; it is read only by a thread that has entered the use count and saw
// *valid*, or another use and not *publishing*. The pointer inside is an address that any thread may use by the invariant
// of `MemRange`.
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

    /// Increments the use count, if the slot is valid under `stag`.
    #[inline]
    fn enter(&self, stag: Stag) -> Option<SlotUse<'_>> {
        // Checked before the increment, so that a peer that guesses STags does not disturb a revocation.
        if !fits(self.control.load(Ordering::Relaxed), stag) {
            return None;
        }
        let found = self.control.fetch_add(1, Ordering::Acquire);
        let hold = SlotUse { slot: self };
        fits(found, stag).then_some(hold)
    }

    /// The key under which the slot is valid, if it is valid.
    pub(crate) fn valid_key(&self) -> Option<u8> {
        let control = self.control.load(Ordering::Acquire);
        (control & VALID != 0).then(|| stag_of(control).key())
    }

    /// Makes the slot invalid and waits until it is no longer used. The caller holds `meta`'s lock. After [`Busy`]
    /// the slot is invalid, but a thread may still be using the memory.
    /// RFC 5040 8.1.1(6) [SEC-05]
    pub(crate) fn revoke(&self) -> Result<(), Busy> {
        self.control.fetch_and(!VALID, Ordering::AcqRel);
        let mut patience = Patience::default();
        while self.control.load(Ordering::Acquire) & USES != 0 {
            if !patience.wait() {
                return Err(Busy);
            }
        }
        Ok(())
    }

    /// Makes the slot valid. The caller holds `meta`'s lock, and `revoke` succeeded (or the slot was
    /// never valid).
    pub(crate) fn publish(&self, key: u8, grant: Grant) {
        debug_assert!(self.valid_key().is_none());
        self.begin_publishing();
        self.grant.with_mut(|place| {
            // SAFETY: the slot is not valid, had no use when *publishing* was set, and is entered by no thread
            // meanwhile that reads `grant`; the caller holds the lock of `meta`, so no other thread writes it.
            unsafe { *place = grant }
        });
        let published = |old| with_stag(old, Stag::new(stag_of(old).index(), key)) | VALID;
        self.change(|old| published(old) & !PUBLISHING);
    }

    /// Sets *publishing* when the use count is 0. Threads that find the slot not valid count for a moment.
    fn begin_publishing(&self) {
        let unused = || self.control.load(Ordering::Relaxed) & !USES;
        let set = |unused| {
            let (to, order) = (unused | PUBLISHING, Ordering::Acquire);
            self.control.compare_exchange_weak(unused, to, order, Ordering::Relaxed)
        };
        while set(unused()).is_err() {
            yield_now();
        }
    }

    /// Whether a thread uses the slot's memory now, and `addr` is in it. Takes no lock: a signal handler calls it.
    pub(super) fn is_used_at(&self, addr: usize) -> bool {
        // Also after a revocation has begun: it waits for that thread.
        if self.control.load(Ordering::Relaxed) & USES == 0 {
            return false;
        }
        let found = self.control.fetch_add(1, Ordering::Acquire);
        let hold = SlotUse { slot: self };
        found & USES != 0 && found & PUBLISHING == 0 && hold.grant(|grant| grant.contains(addr))
    }

    /// The index of the STag that has the slot, or that had it last.
    fn index(&self) -> u32 {
        stag_of(self.control.load(Ordering::Relaxed)).index()
    }

    fn is_allocated(&self) -> bool {
        self.control.load(Ordering::Relaxed) & ALLOCATED != 0
    }

    /// Whether the slot belongs to this index.
    fn is(&self, index: u32) -> bool {
        let control = self.control.load(Ordering::Acquire);
        control & ALLOCATED != 0 && stag_of(control).index() == index
    }

    /// Assigns the slot to an index. For the allocator; the slot must be free.
    fn take(&self, index: u32) {
        self.change(|old| with_stag(old, Stag::new(index, 0)) | ALLOCATED);
    }

    fn free(&self) {
        self.control.fetch_and(!ALLOCATED, Ordering::Relaxed);
    }

    /// Changes all bits except the use count, which peers that guess STags may change meanwhile.
    fn change(&self, new: impl Fn(u64) -> u64) {
        let mut old = self.control.load(Ordering::Relaxed);
        while let Err(now) =
            self.control.compare_exchange_weak(old, new(old), Ordering::Release, Ordering::Relaxed)
        {
            old = now;
        }
    }
}

fn stag_of(control: u64) -> Stag {
    Stag((control >> STAG_SHIFT) as u32)
}

fn with_stag(control: u64, stag: Stag) -> u64 {
    control & ((1 << STAG_SHIFT) - 1) | u64::from(stag.0) << STAG_SHIFT
}

/// Whether the slot is valid under `stag`, including its key.
#[inline]
fn fits(control: u64, stag: Stag) -> bool {
    control & VALID != 0 && stag_of(control) == stag // [VERBS-22]
}

/// One count in a slot's use count; released when dropped.
struct SlotUse<'t> {
    slot: &'t Slot,
}

impl SlotUse<'_> {
    #[inline]
    fn grant<R>(&self, read: impl FnOnce(&Grant) -> R) -> R {
        self.slot.grant.with(|grant| {
            // SAFETY: `enter` saw *valid* when it entered the use count, or `is_used_at` another use and not
            // *publishing*. So the last `publish` happened before (Release to Acquire), and the next one waits for
            // this count.
            read(unsafe { &*grant })
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

    /// True if no revocation has begun since. The key is unchanged: publishing a new key waits for this count.
    #[inline]
    fn is_valid(&self) -> bool {
        self.slot.control.load(Ordering::Relaxed) & VALID != 0
    }
}

impl Drop for SlotUse<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.control.fetch_sub(1, Ordering::Release);
    }
}

/// Checked access to octets of registered memory; see the rule for holders in the module's text.
///
/// # Invariants
///
/// While it lives, `len` octets at `addr` are live memory, and writable if `writable`. With a hold, this follows
/// from the grant's invariant; without one (STag 0), the privileged consumer promises it.
pub struct Use<'t> {
    slot_use: Option<SlotUse<'t>>,
    stag: Stag,
    addr: *mut u8,
    len: u32,
    writable: bool,
}

impl Use<'_> {
    /// True if it holds the memory of `stag`, and `stag` is still valid.
    #[inline]
    fn holds(&self, stag: Stag) -> bool {
        self.stag == stag && self.slot_use.as_ref().is_some_and(SlotUse::is_valid)
    }

    /// Moves to other octets of the same memory.
    #[inline(always)]
    fn move_to(
        &mut self,
        need: Need,
        caller: &Caller,
        to: u64,
        len: u32,
    ) -> Result<(), AccessError> {
        // Zero octets, until the check has passed.
        self.len = 0;
        let hold = self.slot_use.as_ref().ok_or(AccessError::InvalidStag)?;
        self.addr = hold.check(need, caller, to, len)?;
        (self.len, self.writable) = (len, need.writes());
        Ok(())
    }

    /// The number of octets.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // the caller has chosen the length
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Address of `len` octets at `offset`, for scatter/gather system calls, which read and write through raw
    /// pointers. Never make a reference from it: a peer may write there.
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

/// The STag table of an RNIC.
pub struct StagTable {
    segments: Segments,
    /// Width of the widest level that has a segment; 0 if there is none.
    width: AtomicUsize,
    allocator: Mutex<Allocator>,
}

struct Allocator {
    random: Random,
    /// Number of the next segment.
    next: usize,
    /// STags in use, by kind.
    used: [u32; 2],
}

impl StagTable {
    /// A table without a valid STag.
    pub fn new() -> VpResult<Self> {
        Ok(Self {
            segments: Segments::new()?,
            width: AtomicUsize::new(0),
            allocator: Mutex::new(Allocator { random: Random::new(), next: 1, used: [0; 2] }),
        })
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
        let Some(hold) = self.enter(stag) else {
            return Self::resolve_privileged(stag, need, caller, to, len);
        };
        let addr = hold.check(need, caller, to, len)?;
        Ok(Use { slot_use: Some(hold), stag, addr, len, writable: need.writes() })
    }

    /// Describes, for messages, the memory that an STag names now. `caller`: decides whether access is allowed.
    #[cold]
    pub fn describe(&self, stag: Stag, caller: &Caller) -> Option<RefusedRegion> {
        let hold = self.enter(stag)?;
        Some(hold.grant(|grant| grant.describe(caller)))
    }

    /// As [`StagTable::resolve`], with every check, but stores the result in `kept`. The use in `kept` is reused if
    /// it is for the same STag, and released otherwise. After an error it may still be held; the caller need not
    /// release it.
    /// Always inlined: `need` is known at compile time, which removes most of the check.
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
            // Released first, so that a revocation of the old STag need not wait for the lookup of the new one.
            *kept = None;
            return Ok(kept.insert(self.resolve(stag, need, caller, to, len)?));
        }
        let next = kept.as_mut().ok_or(AccessError::InvalidStag)?;
        next.move_to(need, caller, to, len)?;
        Ok(next)
    }

    /// STag 0: the whole process, for local buffers of privileged QPs only; TO = address. The privileged consumer
    /// promises that the memory exists (RDMAC 7.2.1).
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
        Ok(Use { slot_use: None, stag, addr, len, writable: need.writes() })
    }

    /// Increments the use count of the slot that is valid under `stag`.
    #[inline]
    fn enter(&self, stag: Stag) -> Option<SlotUse<'_>> {
        let width = self.width.load(Ordering::Acquire);
        match self.place(width, stag.index()).and_then(|slot| slot.enter(stag)) {
            Some(hold) => Some(hold),
            None => self.enter_below(width, stag),
        }
    }

    /// The same in the narrower levels.
    #[cold]
    fn enter_below(&self, width: usize, stag: Stag) -> Option<SlotUse<'_>> {
        below(width).find_map(|width| self.place(width, stag.index())?.enter(stag))
    }

    /// The slot of an index in the level with this width, if its segment exists.
    #[inline]
    fn place(&self, width: usize, index: u32) -> Option<&Slot> {
        // The number is less than twice the width. While the width is 0, no segment exists.
        let number = width | ((index >> SEGMENT_BITS) as usize & width.wrapping_sub(1));
        self.segments.get(number % SEGMENTS)?.get(index as usize & (SEGMENT_SLOTS - 1))
    }

    /// The slot of an index that is allocated.
    fn slot(&self, index: u32) -> Option<&Slot> {
        let width = self.width.load(Ordering::Acquire);
        let mut levels = std::iter::once(width).chain(below(width));
        levels.find_map(|width| self.place(width, index).filter(|slot| slot.is(index)))
    }

    /// The slot of an index that is allocated, with its attributes for the verbs.
    pub(crate) fn open(&self, index: u32) -> Option<(&Slot, MutexGuard<'_, Meta>)> {
        let slot = self.slot(index)?;
        let meta = lock(&slot.meta);
        // The slot may have been given to another index before the lock was taken. While it is locked, its index
        // changes only if it is free.
        slot.is(index).then_some((slot, meta))
    }

    /// Takes a free index at random; `Ok(None)` if half of `MAX_STAGS` are in use for that kind.
    // RFC 5040 8.1.1(8) [SEC-07]; never 0 [VERBS-23]
    pub(crate) fn allocate(&self, kind: Kind) -> VpResult<Option<u32>> {
        let mut allocator = lock(&self.allocator);
        let allocator = &mut *allocator;
        if allocator.used[kind as usize] >= MAX_STAGS / 2 {
            return Ok(None);
        }
        let used: u32 = allocator.used.iter().sum();
        if used as usize * 2 >= (allocator.next - 1) * SEGMENT_SLOTS {
            self.grow(allocator)?;
        }
        Ok(self.pick(allocator, kind))
    }

    fn pick(&self, allocator: &mut Allocator, kind: Kind) -> Option<u32> {
        // At most about half of the slots are in use: two attempts on average.
        loop {
            let random = &mut allocator.random;
            let place = random.below((allocator.next - 1) * SEGMENT_SLOTS);
            let number = (place >> SEGMENT_BITS) + 1;
            let slot = self.segments.get(number)?.get(place & (SEGMENT_SLOTS - 1))?;
            let index = index_of(number, place & (SEGMENT_SLOTS - 1), random);
            // A slot's next index differs from its last one, so that the old STag does not name it.
            let is_new = index != 0 && index != slot.index() && self.slot(index).is_none();
            if is_new && !slot.is_allocated() {
                slot.take(index);
                allocator.used[kind as usize] += 1;
                return Some(index);
            }
        }
    }

    /// Frees an index. Its slot has been revoked and its meta is `Free`.
    pub(crate) fn release(&self, index: u32, kind: Kind) {
        let mut allocator = lock(&self.allocator);
        if let Some(slot) = self.slot(index) {
            slot.free();
            allocator.used[kind as usize] -= 1;
        }
    }

    /// Adds the next segment, unless all exist.
    fn grow(&self, allocator: &mut Allocator) -> VpResult<()> {
        let number = allocator.next;
        let mut slots = room::list("slots of the STag table", SEGMENT_SLOTS)?;
        slots.resize_with(SEGMENT_SLOTS, Slot::new);
        if let Ok(segment) = Box::<Segment>::try_from(slots.into_boxed_slice())
            && self.segments.put(number, segment)
        {
            self.width.store(width_of(number), Ordering::Release);
            allocator.next += 1;
        }
        Ok(())
    }
}

/// Width of the level of a segment.
fn width_of(number: usize) -> usize {
    1 << number.ilog2()
}

/// Widths of the narrower levels.
fn below(width: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(width >> 1), |width| Some(width >> 1)).take_while(|&width| width > 0)
}

/// An index for a slot: the bits that do not select the slot are random.
fn index_of(number: usize, slot: usize, random: &mut Random) -> u32 {
    let width = width_of(number);
    let fixed = ((number - width) << SEGMENT_BITS) | slot;
    let rest = random.below(SEGMENTS / width);
    ((rest * width * SEGMENT_SLOTS) | fixed) as u32
}

#[cfg(test)]
#[path = "stag_table_tests.rs"]
mod tests;
