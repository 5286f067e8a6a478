//! Rings beside another carrier of two octet streams, as a TCP connection: octets go by either, in one order.
//!
//! Each direction has a ring and one word, which both ends change by compare-and-exchange:
//!
//! | part | changed by | meaning |
//! |---|---|---|
//! | tail | producer | octets written to the ring, modulo 2^32 |
//! | marks, `OTHER` | producer | it has sent by the other carrier since it wrote to the ring; how often |
//! | `LOOKS` | consumer | it looks at the ring before it waits for the other carrier |
//! | pins, `FROZEN` | consumer | so many threads wait for the other carrier, or read it; for ever |
//!
//! **Order.** The producer writes to the ring only while `LOOKS` is set. To return to the ring it waits until the ring is
//! empty, and publishes its *base*: octets that it has sent by the other carrier so far. The consumer first takes the
//! other carrier's octets up to the base, then the ring's, then the other carrier's: it takes octets of the ring only if, after
//! it has seen them, no base is open. It reads the other carrier beyond the base only while it has a pin, which clears
//! `LOOKS`: so no octets of the ring can come to be before those.
//!
//! **No wake-up is needed:** who waits, waits for the other carrier, and has cleared `LOOKS` in the one step that showed
//! that the ring is empty. **No lock is waited for:** a producer that finds another at work sends by the other carrier, and
//! consumers restart. So a thread may end, or leave by longjmp(3), anywhere: at worst all octets go by the other carrier
//! from then on.
//!
//! **Owner of the state:** the positions of an end are in a page that only its process and its children by fork(2) share;
//! what the peer can write is checked against them ([`Corrupt`]). The peer's death is the other carrier's to show.

use std::mem::offset_of;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Release, Ordering::SeqCst};

use rustix::mm::{MapFlags, ProtFlags};

use crate::end::{Corrupt, Side};
use crate::memory::{Mapping, Refused};
use crate::page::{Line, PAGE};
use crate::tuning::{NON_TEMPORAL_MIN, STEP};

/// The producer has sent by the other carrier since it wrote to the ring.
const OTHER: u64 = 1 << 52;
/// The consumer looks at the ring.
const LOOKS: u64 = 1 << 53;
/// It never will again.
const FROZEN: u64 = 1 << 54;
/// One who waits for the other carrier.
const PIN: u64 = 1 << 55;
/// One use of the other carrier.
const MARK: u64 = 1 << 32;
const TAIL: u64 = MARK - 1;
const MARKS: u64 = OTHER - MARK;
const PINS: u64 = !(PIN - 1);

/// The words of one direction, which both processes share.
#[repr(C)]
struct Way {
    /// The word, and the base.
    front: Line<[AtomicU64; 2]>,
    /// Octets that the consumer has read, for the producer; and those before the base that it has not.
    head: Line<[AtomicU64; 2]>,
}

impl Way {
    fn word(&self) -> &AtomicU64 {
        &self.front.0[0]
    }

    fn base(&self) -> &AtomicU64 {
        &self.front.0[1]
    }

    fn head(&self) -> &AtomicU64 {
        &self.head.0[0]
    }
}

/// Both directions, behind what says what memory it is.
#[repr(C)]
struct Ways {
    about: Line<[AtomicU64; 16]>,
    ways: [Way; 2],
}

const _: () = assert!(size_of::<Ways>() <= PAGE && offset_of!(Ways, ways) == 128);

/// One end, in a page of its own.
#[repr(C)]
pub struct Companion {
    /// Octets written to the ring.
    tail: Line<AtomicU64>,
    /// Not 0: a thread writes.
    writes: AtomicU32,
    /// Calls that send by the other carrier now.
    sends: AtomicU32,
    /// Octets read from the ring.
    head: Line<AtomicU64>,
    /// The base up to which all octets of the other carrier were read.
    done: AtomicU64,
    /// Not 0: this process reads octets before the base.
    takes: AtomicU32,
    /// The base that `left` is about.
    counted: AtomicU64,
    /// So many octets before it were not read.
    left: AtomicU64,
    /// A program that cannot read the ring has the other carrier.
    passed: AtomicBool,
    memory: Mapping,
    /// The ring that this end writes.
    out: usize,
}

const _: () = assert!(size_of::<Companion>() <= PAGE);

// SAFETY: all parts that change are atomics; octets are copied by raw pointers into memory of the caller.
unsafe impl Sync for Companion {}

impl Companion {
    /// Verifies the memory and maps it. The descriptor is not needed afterwards. Allocates nothing but mappings, which a
    /// child made by fork(2) shares.
    ///
    /// # Errors
    /// The errors of [`crate::verify`], or the reason why the memory cannot be mapped.
    pub fn map(memory: impl AsFd, side: Side) -> Result<NonNull<Self>, Refused> {
        let memory = Mapping::new(&memory)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which overlaps none.
        let at = unsafe { rustix::mm::mmap_anonymous(null_mut(), PAGE, access, MapFlags::SHARED) }?;
        let at = NonNull::new(at.cast::<Self>()).ok_or(Refused::Os(libc::ENOMEM))?;
        let out = match side {
            Side::Maker => 0,
            Side::Other => 1,
        };
        let end = Self {
            tail: Line::default(),
            writes: AtomicU32::new(0),
            sends: AtomicU32::new(0),
            head: Line::default(),
            done: AtomicU64::new(0),
            takes: AtomicU32::new(0),
            counted: AtomicU64::new(0),
            left: AtomicU64::new(0),
            passed: AtomicBool::new(false),
            memory,
            out,
        };
        // SAFETY: a page of this function alone, with room for it.
        unsafe { at.as_ptr().write(end) };
        Ok(at)
    }

    /// Unmaps an end.
    ///
    /// # Safety
    ///
    /// It was made by [`Companion::map`] in this process, or in one of which this is a copy, and is not used any more.
    pub unsafe fn unmap(end: NonNull<Self>) {
        let memory = end.as_ptr().wrapping_byte_add(offset_of!(Self, memory)).cast::<Mapping>();
        // SAFETY: the caller's promise. In a child its parent's page keeps the same octets.
        drop(unsafe { memory.read() });
        // SAFETY: the page made by `map`.
        let _ = unsafe { rustix::mm::munmap(end.as_ptr().cast(), PAGE) };
    }

    fn ways(&self) -> &[Way; 2] {
        let (at, _) = self.memory.range();
        // SAFETY: the first page of the mapping, which lives as long as this. It consists of atomics, for which any octets
        // are a valid value.
        unsafe { &(*at.cast::<Ways>()).ways }
    }

    fn way_out(&self) -> &Way {
        &self.ways()[self.out]
    }

    fn way_in(&self) -> &Way {
        &self.ways()[1 - self.out]
    }

    #[cfg(test)]
    pub(crate) fn memory_for_tests(&self) -> (*mut u8, usize) {
        self.memory.range()
    }

    fn size(&self) -> u64 {
        u64::from(self.memory.ring_octets())
    }

    // ---- producer --------------------------------------------------------------------------

    /// Both directions begin with the other carrier. The maker calls it once, before the peer gets the memory.
    pub fn begin(&self) {
        self.ways().iter().for_each(|way| way.word().store(OTHER, SeqCst));
    }

    /// Octets may be sent by the other carrier from now on.
    pub fn mark(&self) {
        let more = |word: u64| Some(word & !MARKS | word.wrapping_add(MARK) & MARKS | OTHER);
        let _ = self.way_out().word().fetch_update(SeqCst, SeqCst, more);
    }

    /// A call sends by the other carrier, until [`Companion::sent`]; a process that is killed meanwhile always does.
    pub fn sends(&self) {
        self.sends.fetch_add(1, SeqCst);
        self.mark();
    }

    /// It does not any more.
    pub fn sent(&self) {
        self.sends.fetch_sub(1, SeqCst);
    }

    /// Octets in the ring that the peer has not read.
    ///
    /// # Errors
    /// The position of the peer is impossible.
    pub fn unread(&self) -> Result<u64, Corrupt> {
        let unread = self.tail.0.load(SeqCst).wrapping_sub(self.way_out().head().load(SeqCst));
        if unread > self.size() { Err(Corrupt) } else { Ok(unread) }
    }

    /// Two numbers of which one changes whenever the peer reads octets: of the ring, or before the base.
    pub fn progress(&self) -> [u64; 2] {
        self.way_out().head.0.each_ref().map(|word| word.load(SeqCst))
    }

    /// Whether the peer looks at the ring.
    #[inline]
    pub fn is_looked_at(&self) -> bool {
        self.way_out().word().load(SeqCst) & LOOKS != 0
    }

    /// Copies the octets of `pieces` in order, as many as may go by the ring now, and returns how many: the rest goes by the
    /// other carrier, after [`Companion::sends`]. `base` returns how many octets were sent by it so far, or `None` if that
    /// is not certain.
    ///
    /// # Errors
    /// A position is impossible.
    ///
    /// # Safety
    ///
    /// Each piece is an address and a number of octets, which must be readable, and not in the memory of this end.
    pub unsafe fn write(
        &self,
        pieces: impl IntoIterator<Item = (*const u8, usize)>,
        base: impl FnOnce() -> Option<u64>,
    ) -> Result<usize, Corrupt> {
        if !self.is_looked_at() || self.writes.compare_exchange(0, 1, SeqCst, SeqCst).is_err() {
            return Ok(0);
        }
        // SAFETY: the caller's promise.
        let written = unsafe { self.write_alone(pieces, base) };
        self.writes.store(0, Release);
        written
    }

    /// # Safety
    ///
    /// That of [`Companion::write`], which only one thread at a time calls.
    unsafe fn write_alone(
        &self,
        pieces: impl IntoIterator<Item = (*const u8, usize)>,
        base: impl FnOnce() -> Option<u64>,
    ) -> Result<usize, Corrupt> {
        let way = self.way_out();
        let mut word = way.word().load(SeqCst);
        let mut tail = self.tail.0.load(SeqCst);
        if word & TAIL != tail & TAIL {
            return Err(Corrupt);
        }
        let mut room = self.size() - self.unread()?;
        if word & OTHER != 0 {
            let certain = room == self.size() && self.sends.load(SeqCst) == 0;
            let Some(base) = certain.then(base).flatten() else { return Ok(0) };
            way.base().store(base, SeqCst);
        }
        let octets = self.memory.octets(self.out);
        let (mut written, mut ahead) = (0, 0);
        'pieces: for (mut from, mut len) in pieces {
            while len > 0 {
                let now = (len as u64).min(room).min(STEP - ahead) as usize;
                let at = (tail + ahead) as u32;
                // SAFETY: the caller's promise for `now` of the piece's octets; the ring has at least `room`.
                unsafe { octets.write(at, from, now, NON_TEMPORAL_MIN) };
                (from, len) = (from.wrapping_add(now), len - now);
                (ahead, room) = (ahead + now as u64, room - now as u64);
                if ahead == STEP || room == 0 {
                    if !self.publish(&mut word, tail, ahead) {
                        return Ok(written);
                    }
                    (tail, written, ahead) = (tail + ahead, written + ahead as usize, 0);
                    if room == 0 {
                        break 'pieces;
                    }
                }
            }
        }
        let published = ahead > 0 && self.publish(&mut word, tail, ahead);
        Ok(written + if published { ahead as usize } else { 0 })
    }

    /// Lets the peer read so many octets more. False: it does not look, or octets were sent by the other carrier.
    fn publish(&self, word: &mut u64, tail: u64, more: u64) -> bool {
        loop {
            let new = *word & !(TAIL | OTHER) | (tail + more) & TAIL;
            match self.way_out().word().compare_exchange(*word, new, SeqCst, SeqCst) {
                Ok(_) => {
                    self.tail.0.store(tail + more, Release);
                    *word = new;
                    return true;
                }
                Err(now) if now & LOOKS != 0 && (now ^ *word) & (MARKS | TAIL | OTHER) == 0 => {
                    *word = now;
                }
                Err(_) => return false,
            }
        }
    }

    // ---- consumer --------------------------------------------------------------------------

    /// A program that cannot read the ring has the other carrier from now on: the children and the parent of this process, too,
    /// are to know.
    pub fn pass(&self) {
        self.passed.store(true, SeqCst);
    }

    /// Whether one has.
    pub fn is_passed(&self) -> bool {
        self.passed.load(SeqCst)
    }

    /// So many octets of the other carrier come before those of the ring, if not all of them were read as far as is known.
    #[inline]
    pub fn base(&self) -> Option<u64> {
        let base = self.way_in().base().load(SeqCst);
        (base > self.done.load(SeqCst)).then_some(base)
    }

    /// All octets up to this base were read.
    pub fn passed(&self, base: u64) {
        self.done.fetch_max(base, SeqCst);
    }

    /// So many octets before this base were not read, when `count` returned it, less those of [`Companion::took`] since. For who
    /// has the turn.
    pub fn left(&self, base: u64, count: impl FnOnce() -> u64) -> u64 {
        if self.counted.load(SeqCst) != base {
            self.left.store(count(), SeqCst);
            self.counted.store(base, SeqCst);
        }
        self.left.load(SeqCst)
    }

    /// Some of them were read.
    pub fn took(&self, octets: u64) {
        let less = |left: u64| Some(left.saturating_sub(octets));
        let _ = self.left.fetch_update(SeqCst, SeqCst, less);
        self.way_in().head.0[1].store(self.left.load(SeqCst), SeqCst);
    }

    /// The right to read octets before the base, which one thread at a time has: of process `this`, after process `before`, or
    /// 0 if nobody has it. The caller returns it by [`Companion::give_back`].
    ///
    /// # Errors
    /// The process that has it.
    pub fn take_turn(&self, before: u32, this: u32) -> Result<(), u32> {
        self.takes.compare_exchange(before, this, SeqCst, SeqCst).map(drop)
    }

    /// Returns it.
    pub fn give_back(&self) {
        self.takes.store(0, SeqCst);
    }

    /// Whether the peer has sent by the other carrier since it wrote to the ring.
    pub fn has_other(&self) -> bool {
        self.way_in().word().load(SeqCst) & OTHER != 0
    }

    /// Octets in the ring.
    ///
    /// # Errors
    /// The position of the peer is impossible.
    #[inline]
    pub fn octets(&self) -> Result<u32, Corrupt> {
        let head = self.head.0.load(SeqCst);
        self.there(self.way_in().word().load(SeqCst), head)
    }

    #[inline]
    fn there(&self, word: u64, head: u64) -> Result<u32, Corrupt> {
        let there = (word as u32).wrapping_sub(head as u32);
        if u64::from(there) > self.size() { Err(Corrupt) } else { Ok(there) }
    }

    /// Octets in the ring that come next. The producer states its base before it writes behind it, and here it is looked at
    /// after what was written: so none are found before those that precede them.
    fn next(&self, head: u64) -> Result<u64, Corrupt> {
        let there = self.there(self.way_in().word().load(SeqCst), head)?;
        Ok(if self.base().is_some() { 0 } else { u64::from(there) })
    }

    /// Copies octets of the ring into `pieces` in order, as many as come next, and returns how many. With `peek` they stay in
    /// the ring, and it is the caller who knows that they come next.
    ///
    /// # Errors
    /// The position of the peer is impossible; an unknown part was read.
    ///
    /// # Safety
    ///
    /// Each piece is an address, or null for octets that nobody wants, and a number of octets, which must be writable and
    /// not in the memory of this end.
    pub unsafe fn read(
        &self,
        pieces: impl IntoIterator<Item = (*mut u8, usize)>,
        peek: bool,
    ) -> Result<usize, Corrupt> {
        let octets = self.memory.octets(1 - self.out);
        let mut head = self.head.0.load(SeqCst);
        let mut there = if peek { u64::from(self.octets()?) } else { self.next(head)? };
        let (mut read, mut ahead) = (0, 0);
        'pieces: for (mut to, mut len) in pieces {
            while len > 0 {
                if ahead == there {
                    break 'pieces;
                }
                let now = (len as u64).min(there - ahead).min(STEP - ahead % STEP) as usize;
                if !to.is_null() {
                    // SAFETY: the caller's promise; the peer has written so many octets, and the ring has them.
                    unsafe { octets.read((head + ahead) as u32, to, now) };
                    to = to.wrapping_add(now);
                }
                (len, ahead) = (len - now, ahead + now as u64);
                if ahead == STEP && !peek {
                    if !self.consume(head, ahead) {
                        return Ok(read);
                    }
                    (head, read, ahead) = (head + ahead, read + ahead as usize, 0);
                    there = self.next(head)?;
                }
            }
        }
        let whole = ahead == 0 || peek || self.consume(head, ahead);
        Ok(read + if whole { ahead as usize } else { 0 })
    }

    /// Takes octets out of the ring. False: another thread has.
    fn consume(&self, head: u64, octets: u64) -> bool {
        let new = head + octets;
        let taken = self.head.0.compare_exchange(head, new, SeqCst, SeqCst).is_ok();
        if taken {
            self.way_in().head().fetch_max(new, SeqCst);
        }
        taken
    }

    /// From now on this end looks at the ring before it waits, unless another thread waits. Returns whether it does.
    #[inline]
    pub fn look(&self) -> bool {
        let word = self.way_in().word();
        if word.load(SeqCst) & LOOKS != 0 {
            return true;
        }
        let looks = |now: u64| (now & (PINS | FROZEN) == 0).then_some(now | LOOKS);
        word.fetch_update(SeqCst, SeqCst, looks).is_ok()
    }

    /// A thread is about to wait for the other carrier, or to read it: the peer sends by it from now on. False, and nothing
    /// has changed: there are octets in the ring. Each pin ends with [`Companion::unpin`].
    ///
    /// # Errors
    /// The position of the peer is impossible.
    pub fn pin(&self) -> Result<bool, Corrupt> {
        let word = self.way_in().word();
        let mut now = word.load(SeqCst);
        loop {
            if self.there(now, self.head.0.load(SeqCst))? > 0 {
                return Ok(false);
            }
            match word.compare_exchange(now, Self::pinned(now), SeqCst, SeqCst) {
                Ok(_) => return Ok(true),
                Err(other) => now = other,
            }
        }
    }

    /// As [`Companion::pin`], also with octets in the ring.
    pub fn pin_anyway(&self) {
        let _ = self.way_in().word().fetch_update(SeqCst, SeqCst, |now| Some(Self::pinned(now)));
    }

    /// More pins than there is room for are for ever.
    fn pinned(now: u64) -> u64 {
        let now = now & !LOOKS;
        if now & PINS == PINS { now | FROZEN } else { now + PIN }
    }

    /// Takes back a pin.
    pub fn unpin(&self) {
        let less = |now: u64| (now & PINS != 0 && now & PINS != PINS).then(|| now - PIN);
        let _ = self.way_in().word().fetch_update(SeqCst, SeqCst, less);
    }

    /// From now on the peer sends by the other carrier only. What is in the ring can be read.
    pub fn freeze(&self) {
        let _ =
            self.way_in().word().fetch_update(SeqCst, SeqCst, |now| Some(now & !LOOKS | FROZEN));
    }

    /// This end does not look at the ring: the peer sends by the other carrier, until [`Companion::look`]. False, and nothing
    /// has changed: there are octets that the caller has not `seen`, a number as [`Companion::position`] returns it.
    pub fn look_away(&self, seen: u32) -> bool {
        let word = self.way_in().word();
        let mut now = word.load(SeqCst);
        loop {
            if now as u32 != seen {
                return false;
            }
            if now & LOOKS == 0 {
                return true;
            }
            match word.compare_exchange(now, now & !LOOKS, SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
    }

    /// How many octets the peer has written to the ring, modulo 2^32.
    #[inline]
    pub fn position(&self) -> u32 {
        self.way_in().word().load(SeqCst) as u32
    }
}
