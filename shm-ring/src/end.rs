//! One end of a shared-memory connection: the producer of one ring and the consumer of the other.
//!
//! An end belongs to one process. The process keeps this end's positions, and the peer's positions as last read,
//! outside the shared memory. Any thread may call, but only one at a time: two concurrent calls mix their octets,
//! and cause no other harm.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

use kal_os::sync::fence;

use crate::memory::{Mapping, Refused};
use crate::page::{Way, take};
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

/// One end.
pub struct End {
    memory: Memory,
    /// The ring that this end writes.
    out: usize,
    /// Octets written.
    tail: AtomicU32,
    /// Octets that the peer had read at the last check.
    read_by_peer: AtomicU32,
    /// Octets read.
    head: AtomicU32,
    /// Octets that the peer had written at the last check.
    written_by_peer: AtomicU32,
    /// Copies into the ring of at least this many octets bypass the caches.
    past_caches_from: usize,
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").field("out", &self.out).finish_non_exhaustive()
    }
}

impl End {
    /// Verifies the memory and maps it. The descriptor is not needed afterwards.
    ///
    /// A child made by fork(2) inherits the mapping. The caller must keep the child from using [`End::range`].
    ///
    /// # Errors
    /// The errors of [`crate::verify`], or the reason why the memory cannot be mapped.
    #[cfg(not(all(test, loom)))]
    pub fn map(memory: impl AsFd, side: Side) -> Result<Self, Refused> {
        Mapping::new(memory).map(|memory| Self::new(memory, side))
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
            out: match side {
                Side::Maker => 0,
                Side::Other => 1,
            },
            tail: AtomicU32::new(0),
            read_by_peer: AtomicU32::new(0),
            head: AtomicU32::new(0),
            written_by_peer: AtomicU32::new(0),
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
        let (tail, size) = (self.tail.load(Ordering::Relaxed), self.ring_octets());
        let seen = self.read_by_peer.load(Ordering::Relaxed);
        let head = self.way_out().head.0.load(Ordering::Acquire);
        // The number of octets that the peer has not read only decreases.
        if tail.wrapping_sub(head) > tail.wrapping_sub(seen) {
            return Err(Corrupt);
        }
        self.read_by_peer.store(head, Ordering::Relaxed);
        Ok(size - tail.wrapping_sub(head))
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
    /// be in the memory of this end.
    pub unsafe fn write(
        &self,
        pieces: impl IntoIterator<Item = (*const u8, usize)>,
        bell: impl Fn(),
    ) -> Result<usize, Corrupt> {
        let begin = self.tail.load(Ordering::Relaxed);
        let (mut at, mut published) = (begin, begin);
        let octets = self.memory.octets(self.out);
        let used = begin.wrapping_sub(self.read_by_peer.load(Ordering::Relaxed));
        let mut room = self.ring_octets() - used;
        'pieces: for (mut from, mut len) in pieces {
            while len > 0 {
                if room == 0 {
                    self.publish(at, published, &bell);
                    published = at;
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
                if at.wrapping_sub(published) >= PUBLISH {
                    self.publish(at, published, &bell);
                    published = at;
                }
            }
        }
        self.publish(at, published, &bell);
        Ok(at.wrapping_sub(begin) as usize)
    }

    /// As [`End::write`], from one slice.
    ///
    /// # Errors
    /// The position of the peer is impossible; an unknown part was written.
    pub fn write_slice(&self, octets: &[u8], bell: impl Fn()) -> Result<usize, Corrupt> {
        // SAFETY: the slice is readable, and no slice is in the memory of an end: only raw pointers to it exist.
        unsafe { self.write([(octets.as_ptr(), octets.len())], bell) }
    }

    /// Lets the peer read the octets up to position `at`.
    fn publish(&self, at: u32, published: u32, bell: &impl Fn()) {
        if at == published {
            return;
        }
        self.tail.store(at, Ordering::Relaxed);
        let way = self.way_out();
        way.published.0.tail.store(at, Ordering::Release);
        fence(Ordering::SeqCst);
        if take(&way.asleep.0) {
            bell();
        }
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
        let (head, seen) =
            (self.head.load(Ordering::Relaxed), self.written_by_peer.load(Ordering::Relaxed));
        let tail = self.way_in().published.0.tail.load(Ordering::Acquire);
        if tail == seen {
            if seen == head {
                // The octets of a short message are then on their way together with the position that follows them.
                self.memory.octets(1 - self.out).prefetch(head);
            }
            return Ok(seen.wrapping_sub(head));
        }
        let there = tail.wrapping_sub(head);
        // The number of octets to read only increases.
        if there > self.ring_octets() || there < seen.wrapping_sub(head) {
            return Err(Corrupt);
        }
        self.written_by_peer.store(tail, Ordering::Relaxed);
        Ok(there)
    }

    /// Whether the peer has published its end of the stream and everything was read.
    pub fn is_over(&self) -> bool {
        let published = &self.way_in().published.0;
        // The end is checked first, so that octets published before it are not overlooked.
        published.closed.load(Ordering::Acquire) != 0
            && published.tail.load(Ordering::Acquire) == self.head.load(Ordering::Relaxed)
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
    /// be in the memory of this end.
    pub unsafe fn read(
        &self,
        pieces: impl IntoIterator<Item = (*mut u8, usize)>,
        bell: impl Fn(),
    ) -> Result<usize, Corrupt> {
        let begin = self.head.load(Ordering::Relaxed);
        let (mut at, mut published) = (begin, begin);
        let octets = self.memory.octets(1 - self.out);
        let mut there = self.written_by_peer.load(Ordering::Relaxed).wrapping_sub(begin);
        'pieces: for (mut to, mut len) in pieces {
            while len > 0 {
                if there == 0 {
                    self.give_room(at, published, &bell);
                    published = at;
                    there = self.octets()?;
                    if there == 0 {
                        break 'pieces;
                    }
                }
                let now = len.min(there.min(PUBLISH) as usize);
                // SAFETY: the caller's promise for `now` of the piece's octets; the ring has at least `there`.
                unsafe { octets.read(at, to, now) };
                at = at.wrapping_add(now as u32);
                (to, len, there) = (to.wrapping_add(now), len - now, there - now as u32);
                if at.wrapping_sub(published) >= PUBLISH {
                    self.give_room(at, published, &bell);
                    published = at;
                }
            }
        }
        self.give_room(at, published, &bell);
        Ok(at.wrapping_sub(begin) as usize)
    }

    /// As [`End::read`], to one slice.
    ///
    /// # Errors
    /// The position of the peer is impossible; an unknown part was read.
    pub fn read_slice(&self, to: &mut [u8], bell: impl Fn()) -> Result<usize, Corrupt> {
        // SAFETY: the slice is writable, and no slice is in the memory of an end: only raw pointers to it exist.
        unsafe { self.read([(to.as_mut_ptr(), to.len())], bell) }
    }

    /// Lets the peer overwrite the octets up to position `at`.
    fn give_room(&self, at: u32, published: u32, bell: &impl Fn()) {
        if at != published {
            self.head.store(at, Ordering::Relaxed);
            self.way_in().head.0.store(at, Ordering::Release);
            self.report_room(bell);
        }
    }

    /// Wakes a peer that sleeps until there is room, once enough room is free.
    fn report_room(&self, bell: &impl Fn()) {
        let stalled = &self.way_in().stalled.0;
        if stalled.load(Ordering::Relaxed) == 0 {
            return;
        }
        let (head, tail) =
            (self.head.load(Ordering::Relaxed), self.written_by_peer.load(Ordering::Relaxed));
        if tail.wrapping_sub(head) <= self.ring_octets() / 2 && take(stalled) {
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
            way_out.stalled.0.store(1, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        // Room may have been published without this fence.
        self.report_room(&bell);
        let closed = way_in.published.0.closed.load(Ordering::Acquire) != 0;
        Ok(self.octets()? > 0 || closed || (wants_room && self.room()? > 0))
    }

    /// Whether the request of [`End::fall_asleep`] is still set: the peer has not yet cleared it.
    pub fn is_asleep(&self) -> bool {
        self.way_in().asleep.0.load(Ordering::Relaxed) != 0
    }

    /// Withdraws the request of [`End::fall_asleep`]: this end polls, and the peer does not wake it.
    pub fn wake(&self) {
        self.way_in().asleep.0.store(0, Ordering::Relaxed);
        self.way_out().stalled.0.store(0, Ordering::Relaxed);
    }
}
