//! One end of a shared-memory connection: the producer of one ring and the consumer of the other.
//!
//! An end belongs to one process. The process keeps this end's positions, and the peer's positions as last read,
//! outside the shared memory. Any thread may call, but only one at a time: an end is not `Sync`. A `bell` may call the same
//! end: it is called when the positions are consistent, and they are read again after it.

use std::cell::Cell;
use std::fmt;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use kal_os::sync::fence;

use crate::memory::{Mapping, Refused};
use crate::page::{SHORT, Way, Written, take};
use crate::tuning::{NON_TEMPORAL_MIN, PUBLISH};

/// The two sides of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The process that made the memory.
    Maker,
    /// The process that received the memory.
    Other,
}

/// The peer wrote an impossible position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupt;

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the peer wrote an impossible position into the shared memory")
    }
}

impl std::error::Error for Corrupt {}

#[cfg(not(all(test, loom)))]
type Memory = Mapping;
#[cfg(all(test, loom))]
type Memory = crate::loom_tests::Model;

/// The ends of this process: device and inode of the memory, and the side. Two of one side would write the same octets.
static ENDS: Mutex<Vec<(u64, u64, Side)>> = Mutex::new(Vec::new());

/// The right to a side of a memory, until it is dropped.
struct Claim((u64, u64, Side));

impl Claim {
    fn new(memory: impl AsFd, side: Side) -> Result<Self, Refused> {
        let stat = rustix::fs::fstat(memory)?;
        let own = (stat.st_dev, stat.st_ino, side);
        let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
        if ends.contains(&own) {
            return Err(Refused::Taken);
        }
        ends.push(own);
        Ok(Self(own))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
        ends.retain(|end| *end != self.0);
    }
}

/// One end.
pub struct End {
    memory: Memory,
    // Behind the memory: it is given back once that is unmapped.
    _claim: Option<Claim>,
    /// The ring that this end writes.
    out: usize,
    /// Octets written.
    tail: Cell<u32>,
    /// Octets that the peer had read at the last check.
    read_by_peer: Cell<u32>,
    /// Octets read.
    head: Cell<u32>,
    /// What the peer had written at the last check: a [`Written`].
    written_by_peer: Cell<u64>,
    /// Octets read when [`End::fall_asleep`] was called last.
    slept_at: Cell<u32>,
    /// Copies into the ring of at least this many octets bypass the caches.
    past_caches_from: usize,
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").field("out", &self.out).finish_non_exhaustive()
    }
}

impl End {
    /// Verifies the memory and maps it. The descriptor is not needed afterwards. A process has one end of a side.
    ///
    /// A child made by fork(2) inherits the mapping. The caller must keep the child from using [`End::range`].
    ///
    /// # Errors
    /// The errors of [`crate::verify`], or the reason why the memory cannot be mapped.
    #[cfg(not(all(test, loom)))]
    pub fn map(memory: impl AsFd, side: Side) -> Result<Self, Refused> {
        let mapping = Mapping::new(&memory)?;
        let claim = Some(Claim::new(memory, side)?);
        Ok(Self { _claim: claim, ..Self::new(mapping, side) })
    }

    /// The same as [`End::map`], but copies of at least the given number of octets bypass the caches, instead of
    /// [`NON_TEMPORAL_MIN`]. For measurements of the best value.
    #[must_use]
    pub fn past_caches_from(self, octets: usize) -> Self {
        Self { past_caches_from: octets, ..self }
    }

    pub(crate) fn new(memory: Memory, side: Side) -> Self {
        Self {
            memory,
            _claim: None,
            out: match side {
                Side::Maker => 0,
                Side::Other => 1,
            },
            tail: Cell::new(0),
            read_by_peer: Cell::new(0),
            head: Cell::new(0),
            written_by_peer: Cell::new(0),
            slept_at: Cell::new(0),
            past_caches_from: NON_TEMPORAL_MIN,
        }
    }

    /// The address of the mapping and its length in octets.
    #[cfg(not(all(test, loom)))]
    pub fn range(&self) -> (*mut u8, usize) {
        self.memory.range()
    }

    /// Octets of each ring.
    pub fn ring_octets(&self) -> u32 {
        self.memory.ring_octets()
    }

    #[cfg(test)]
    #[cfg(not(loom))]
    pub(crate) fn memory_for_tests(&self) -> &Memory {
        &self.memory
    }

    fn way_out(&self) -> &Way {
        &self.memory.page().ways[self.out]
    }

    fn way_in(&self) -> &Way {
        &self.memory.page().ways[1 - self.out]
    }

    // ---- producer --------------------------------------------------------------------------

    /// Octets that can be written now.
    ///
    /// # Errors
    /// The position of the peer is impossible.
    pub fn room(&self) -> Result<u32, Corrupt> {
        let (tail, size) = (self.tail.get(), self.ring_octets());
        let seen = self.read_by_peer.get();
        let head = self.way_out().head.0.load(Ordering::Acquire);
        // The number of octets that the peer has not read only decreases.
        if tail.wrapping_sub(head) > tail.wrapping_sub(seen) {
            return Err(Corrupt);
        }
        self.read_by_peer.set(head);
        Ok(size - tail.wrapping_sub(head))
    }

    /// Whether there is room for [`SHORT`] octets, as far as this end knows without a look at the peer's position.
    #[inline]
    pub fn has_short_room(&self) -> bool {
        self.known_room() as usize >= SHORT
    }

    /// Octets that can be written, according to the peer's position at the last check.
    fn known_room(&self) -> u32 {
        let read = self.read_by_peer.get();
        self.ring_octets() - self.tail.get().wrapping_sub(read)
    }

    /// Copies the octets of `pieces` in order, as many as fit, and returns how many were copied. Calls `bell`,
    /// which wakes the peer, only if the peer sleeps.
    ///
    /// # Errors
    /// The position of the peer is impossible; an unknown part was written.
    ///
    /// # Safety
    ///
    /// Each piece is an address and a number of octets. These octets must be readable during the call, and must not
    /// be in the memory of this end. The iterator must not use this end.
    pub unsafe fn write(
        &self,
        pieces: impl IntoIterator<Item = (*const u8, usize)>,
        bell: impl Fn(),
    ) -> Result<usize, Corrupt> {
        let mut at = self.tail.get();
        let mut written = 0;
        let octets = self.memory.octets(self.out);
        let mut room = self.known_room();
        'pieces: for (mut from, mut len) in pieces {
            while len > 0 {
                if room == 0 {
                    at = self.publish(at, &bell);
                    room = self.room()?;
                    if room == 0 {
                        break 'pieces;
                    }
                }
                let most = room.min(PUBLISH) as usize;
                let now = len.min(most);
                // SAFETY: the caller's promise for `now` of the piece's octets; the ring has at least `room`.
                unsafe { octets.write(at, from, now, self.past_caches_from) };
                at = at.wrapping_add(now as u32);
                (from, len, room) = (from.wrapping_add(now), len - now, room - now as u32);
                written += now;
                if at.wrapping_sub(self.tail.get()) >= PUBLISH {
                    at = self.publish(at, &bell);
                    room = self.known_room();
                }
            }
        }
        self.publish(at, &bell);
        Ok(written)
    }

    /// As [`End::write`], from one slice. The peer gets few octets sooner than by [`End::write`].
    ///
    /// # Errors
    /// The position of the peer is impossible; an unknown part was written.
    #[inline]
    pub fn write_slice(&self, octets: &[u8], bell: impl Fn()) -> Result<usize, Corrupt> {
        let mut short = [0; SHORT];
        if let Some(room) = short.get_mut(..octets.len()).filter(|room| !room.is_empty()) {
            room.copy_from_slice(octets);
            if self.write_short(&short, octets.len(), &bell) {
                return Ok(octets.len());
            }
        }
        // SAFETY: the slice is readable, and no slice is in the memory of an end: only raw pointers to it exist.
        unsafe { self.write([(octets.as_ptr(), octets.len())], bell) }
    }

    /// Writes the first `len` of `octets` next to the position, so that the peer gets both in one cache line, and then
    /// into the ring, where the peer finds them after the next write. False, and nothing written: `len` is not 1 to
    /// [`SHORT`], or the room that was known does not suffice (see [`End::has_short_room`]).
    #[inline]
    pub fn write_short(&self, octets: &[u8; SHORT], len: usize, bell: impl Fn()) -> bool {
        let tail = self.tail.get();
        if len == 0 || len > SHORT.min(self.known_room() as usize) {
            return false;
        }
        let way = self.way_out();
        let published = &way.published.0;
        // The peer takes the octets here for those of the last write until it sees this.
        let before = Written { tail, short: 0 }.word();
        published.written.store(before, Ordering::Release);
        fence(Ordering::Release);
        for (word, octets) in published.short.iter().zip(octets.as_chunks().0) {
            word.store(u64::from_ne_bytes(*octets), Ordering::Relaxed);
        }
        let short = len as u32;
        let after = Written { tail: tail.wrapping_add(short), short };
        self.tail.set(after.tail);
        published.written.store(after.word(), Ordering::Release);
        fence(Ordering::SeqCst);
        let sleeps = take(&way.asleep.0);
        let ring = self.memory.octets(self.out);
        // SAFETY: a live array, not in the ring: only raw pointers to its octets exist. The ring has room.
        unsafe { ring.write(tail, octets.as_ptr(), len, usize::MAX) };
        if sleeps {
            bell();
        }
        true
    }

    /// Lets the peer read the octets up to position `at`; returns the position after the bell.
    fn publish(&self, at: u32, bell: &impl Fn()) -> u32 {
        if at == self.tail.get() {
            return at;
        }
        self.tail.set(at);
        let way = self.way_out();
        way.published.0.written.store(Written { tail: at, short: 0 }.word(), Ordering::Release);
        fence(Ordering::SeqCst);
        if take(&way.asleep.0) {
            bell();
        }
        self.tail.get()
    }

    /// Publishes the end of the stream: no more octets follow.
    pub fn close(&self, bell: impl Fn()) {
        let way = self.way_out();
        way.published.0.closed.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        if take(&way.asleep.0) {
            bell();
        }
    }

    /// Whether the peer has read everything.
    ///
    /// # Errors
    /// The position of the peer is impossible.
    pub fn is_read(&self) -> Result<bool, Corrupt> {
        Ok(self.room()? == self.ring_octets())
    }

    // ---- consumer --------------------------------------------------------------------------

    /// Octets that can be read now.
    ///
    /// # Errors
    /// The position of the peer is impossible.
    #[inline]
    pub fn octets(&self) -> Result<u32, Corrupt> {
        let head = self.head.get();
        let before = self.seen();
        let seen = before.tail;
        let word = self.way_in().published.0.written.load(Ordering::Acquire);
        if word == before.word() {
            if seen == head {
                // The octets of a message are then on their way together with the position that follows them.
                self.memory.octets(1 - self.out).prefetch(head);
            }
            return Ok(seen.wrapping_sub(head));
        }
        let now = Written::of(word);
        let there = now.tail.wrapping_sub(head);
        // The number of octets to read only increases.
        if there > self.ring_octets() || there < seen.wrapping_sub(head) || now.short > SHORT as u32
        {
            return Err(Corrupt);
        }
        self.written_by_peer.set(word);
        Ok(there)
    }

    /// Whether the peer has published its end of the stream and everything was read.
    pub fn is_over(&self) -> bool {
        let published = &self.way_in().published.0;
        // The end is checked first, so that octets published before it are not overlooked.
        published.closed.load(Ordering::Acquire) != 0
            && Written::of(published.written.load(Ordering::Acquire)).tail == self.head.get()
    }

    /// Copies octets into `pieces` in order, as many as there are, and returns how many were copied. Calls `bell`,
    /// which wakes the peer, only if the peer sleeps until there is room.
    ///
    /// Room is published with a delay. A caller that will call neither this function nor [`End::octets`] again must
    /// call [`End::fall_asleep`].
    ///
    /// # Errors
    /// The position of the peer is impossible; an unknown part was read.
    ///
    /// # Safety
    ///
    /// Each piece is an address and a number of octets. These octets must be writable during the call, and must not
    /// be in the memory of this end. The iterator must not use this end.
    pub unsafe fn read(
        &self,
        pieces: impl IntoIterator<Item = (*mut u8, usize)>,
        bell: impl Fn(),
    ) -> Result<usize, Corrupt> {
        let mut at = self.head.get();
        let mut read = 0;
        let mut there = self.seen().tail.wrapping_sub(at);
        'pieces: for (mut to, mut len) in pieces {
            while len > 0 {
                if there == 0 {
                    at = self.give_room(at, &bell);
                    there = self.octets()?;
                    if there == 0 {
                        break 'pieces;
                    }
                }
                let most = len.min(there.min(PUBLISH) as usize);
                // SAFETY: the caller's promise for `most` of the piece's octets; the peer wrote at least `there`.
                let now = unsafe { self.copy(at, there, to, most) };
                at = at.wrapping_add(now as u32);
                (to, len, there) = (to.wrapping_add(now), len - now, there - now as u32);
                read += now;
                if at.wrapping_sub(self.head.get()) >= PUBLISH {
                    at = self.give_room(at, &bell);
                    there = self.seen().tail.wrapping_sub(at);
                }
            }
        }
        self.give_room(at, &bell);
        Ok(read)
    }

    /// Copies at most `most` octets from position `at` on, where the peer wrote `there`, and returns how many.
    ///
    /// # Safety
    ///
    /// `most` octets at `to` can be written, and are not in the memory of this end; `most` is at most `there`, which is
    /// what [`End::octets`] returned, less what was read since.
    #[inline]
    unsafe fn copy(&self, at: u32, there: u32, to: *mut u8, most: usize) -> usize {
        let seen = self.seen();
        let in_ring = there.saturating_sub(seen.short);
        let most = match in_ring {
            0 => most,
            _ => most.min(in_ring as usize),
        };
        if in_ring == 0
            && let Some(short) = self.short(seen)
        {
            let from = &short.as_flattened()[(seen.short - there) as usize..][..most];
            // SAFETY: the caller's promise; `from` is on the stack.
            unsafe { to.copy_from_nonoverlapping(from.as_ptr(), most) };
        } else {
            // SAFETY: the caller's promise; the ring has at least `there`, of which the peer did not yet write those
            // of a short write: then they are not read here.
            unsafe { self.memory.octets(1 - self.out).read(at, to, most) };
        }
        most
    }

    /// Reads what the peer wrote last, if that was short and is all that [`End::octets`] found, and returns how many
    /// octets of `to` it filled. `None`: [`End::read`] reads what is there.
    #[inline]
    pub fn read_short(&self, to: &mut [u8; SHORT], bell: impl Fn()) -> Option<usize> {
        let (head, seen) = (self.head.get(), self.seen());
        if seen.tail.wrapping_sub(head) != seen.short {
            return None;
        }
        to.as_chunks_mut().0.copy_from_slice(&self.short(seen)?);
        self.give_room(seen.tail, &bell);
        Some(seen.short as usize)
    }

    /// The octets of the peer's last write, which was short; `None`: it has written again since, so they are in the ring.
    #[inline]
    fn short(&self, seen: Written) -> Option<[[u8; 8]; SHORT / 8]> {
        if seen.short == 0 {
            return None;
        }
        let published = &self.way_in().published.0;
        let mut octets = [[0; 8]; SHORT / 8];
        for (octets, word) in octets.iter_mut().zip(&published.short) {
            *octets = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        // Octets of a later write are seen only together with the word that the peer changed before them.
        fence(Ordering::Acquire);
        (published.written.load(Ordering::Acquire) == seen.word()).then_some(octets)
    }

    /// What the peer had written at the last check.
    #[inline]
    fn seen(&self) -> Written {
        Written::of(self.written_by_peer.get())
    }

    /// As [`End::read`], to one slice.
    ///
    /// # Errors
    /// The position of the peer is impossible; an unknown part was read.
    pub fn read_slice(&self, to: &mut [u8], bell: impl Fn()) -> Result<usize, Corrupt> {
        // SAFETY: the slice is writable, and no slice is in the memory of an end: only raw pointers to it exist.
        unsafe { self.read([(to.as_mut_ptr(), to.len())], bell) }
    }

    /// Lets the peer overwrite the octets up to position `at`; returns the position after the bell.
    fn give_room(&self, at: u32, bell: &impl Fn()) -> u32 {
        if at != self.head.get() {
            self.head.set(at);
            self.way_in().head.0.store(at, Ordering::Release);
            self.report_room(bell);
        }
        self.head.get()
    }

    /// Wakes a peer that sleeps until there is room, once enough room is free.
    fn report_room(&self, bell: &impl Fn()) {
        let way = self.way_in();
        // Acquire: what the peer had written before. By an earlier position, a ring that is full would have room; then
        // the request would be gone, and the peer would have found none.
        if way.stalled.0.load(Ordering::Acquire) == 0 {
            return;
        }
        let tail = Written::of(way.published.0.written.load(Ordering::Acquire)).tail;
        let there = tail.wrapping_sub(self.head.get());
        if there <= self.ring_octets() / 2 && take(&way.stalled.0) {
            bell();
        }
    }

    // ---- sleep -----------------------------------------------------------------------------

    /// Asks the peer to call its `bell` when there are octets, when the stream ends, and, if `wants_room`, when
    /// there is room. Returns true if one of these is already the case; then the caller must check again before it
    /// sleeps. Call it again after each wake-up.
    ///
    /// # Errors
    /// A position of the peer is impossible.
    pub fn fall_asleep(&self, wants_room: bool, bell: impl Fn()) -> Result<bool, Corrupt> {
        let (way_in, way_out) = (self.way_in(), self.way_out());
        way_in.asleep.0.store(1, Ordering::Relaxed);
        if wants_room {
            way_out.stalled.0.store(1, Ordering::Release);
        }
        self.slept_at.set(self.head.get());
        fence(Ordering::SeqCst);
        // Room may have been published without this fence.
        self.report_room(&bell);
        let closed = way_in.published.0.closed.load(Ordering::Acquire) != 0;
        Ok(self.octets()? > 0 || closed || (wants_room && self.room()? > 0))
    }

    /// Whether the request of [`End::fall_asleep`] for octets is still set, and nothing was read since: the peer has not
    /// yet cleared it, and knows the room that there is.
    pub fn is_asleep(&self) -> bool {
        self.way_in().asleep.0.load(Ordering::Relaxed) != 0
            && self.slept_at.get() == self.head.get()
    }

    /// Whether the request of [`End::fall_asleep`] for room is still set. The peer may clear it and call its `bell`
    /// although there is none.
    pub fn is_stalled(&self) -> bool {
        self.way_out().stalled.0.load(Ordering::Relaxed) != 0
    }

    /// Withdraws the request of [`End::fall_asleep`]: this end polls, and the peer does not wake it.
    pub fn wake(&self) {
        self.way_in().asleep.0.store(0, Ordering::Relaxed);
        self.way_out().stalled.0.store(0, Ordering::Relaxed);
    }
}
