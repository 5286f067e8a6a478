//! What was posted: a completion of the device names a place here, and the place knows the
//! consumer's request. Devices need that: a failed completion does not even say what it was.
//!
//! Owner: a queue, under its lock. Queues end in order, shared receive queues in any.

use std::collections::VecDeque;

use vp_api::WcOpcode;

/// One posted work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Posted {
    pub(crate) wr_id: u64,
    pub(crate) opcode: WcOpcode,
    /// Completes visibly on success too.
    pub(crate) signaled: bool,
}

/// Work requests that end in the order of posting.
#[derive(Debug)]
pub(crate) struct Ring<P = Posted> {
    /// Number of the oldest.
    first: u32,
    posted: VecDeque<P>,
    depth: usize,
    /// So many at the front are not the consumer's.
    extra: usize,
    /// Unsignaled ones since the last signaled.
    quiet: usize,
}

impl<P> Ring<P> {
    pub(crate) fn new(depth: u32) -> Self {
        let depth = depth as usize;
        Self { first: 0, posted: VecDeque::with_capacity(depth), depth, extra: 0, quiet: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.posted.len()
    }

    pub(crate) fn room(&self) -> usize {
        (self.depth + self.extra).saturating_sub(self.posted.len())
    }

    /// The next one, which is the first, takes no place from the consumer.
    pub(crate) fn widen(&mut self) {
        self.extra = 1;
    }

    /// The number that the next one gets, and whether the device must tell of its end: what the
    /// consumer wants, or so many quiet ones that their places could never be used again.
    pub(crate) fn next(&self, signaled: bool) -> (u32, bool) {
        let number = self.first.wrapping_add(self.posted.len() as u32);
        (number, signaled || self.quiet + 1 >= self.depth.div_ceil(2))
    }

    /// Adds one that the device took; `told`: as [`Ring::next`] said.
    pub(crate) fn push(&mut self, posted: P, told: bool) {
        self.quiet = if told { 0 } else { self.quiet + 1 };
        self.posted.push_back(posted);
    }

    /// Takes back the newest, which the device did not take after all.
    pub(crate) fn unpush(&mut self) {
        self.posted.pop_back();
    }

    /// Ends everything up to `number`; `None` if it ended before.
    pub(crate) fn end(&mut self, number: u32) -> Option<P> {
        let ahead = number.wrapping_sub(self.first) as usize;
        if ahead >= self.posted.len() {
            return None;
        }
        self.extra = 0;
        let ended = self.posted.drain(..=ahead).next_back();
        self.first = number.wrapping_add(1);
        ended
    }
}

/// Work requests that end in any order.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    slots: Vec<Option<u64>>,
    free: Vec<u32>,
    used: usize,
}

impl Slab {
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    pub(crate) fn add(&mut self, wr_id: u64) -> u32 {
        self.used += 1;
        match self.free.pop() {
            Some(slot) => {
                if let Some(place) = self.slots.get_mut(slot as usize) {
                    *place = Some(wr_id);
                }
                slot
            }
            None => {
                self.slots.push(Some(wr_id));
                self.slots.len() as u32 - 1
            }
        }
    }

    pub(crate) fn end(&mut self, slot: u32) -> Option<u64> {
        let wr_id = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        self.used -= 1;
        Some(wr_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(wr_id: u64, signaled: bool) -> Posted {
        Posted { wr_id, opcode: WcOpcode::Send, signaled }
    }

    #[test]
    fn a_completion_ends_the_quiet_ones_before_it() {
        let mut ring = Ring::new(8);
        for wr_id in 0..3 {
            let (number, told) = ring.next(wr_id == 2);
            assert_eq!((number, told), (wr_id as u32, wr_id == 2));
            ring.push(send(wr_id, told), told);
        }
        assert_eq!(ring.end(2), Some(send(2, true)));
        assert_eq!((ring.len(), ring.room()), (0, 8));
        assert_eq!(ring.end(2), None);
        assert_eq!(ring.end(3), None);
    }

    #[test]
    fn quiet_ones_cannot_fill_the_ring() {
        let mut ring = Ring::new(4);
        let told: Vec<_> = (0..4)
            .map(|n| {
                let (_, told) = ring.next(false);
                ring.push(send(n, false), told);
                told
            })
            .collect();
        assert_eq!(told, [false, true, false, true]);
        assert!(Ring::<Posted>::new(1).next(false).1);
        ring.unpush();
        assert_eq!(ring.room(), 1);
    }

    #[test]
    fn what_is_not_the_consumers_takes_no_place() {
        let mut ring = Ring::new(2);
        ring.widen();
        for wr_id in 0..3 {
            assert_eq!(ring.room(), 3 - wr_id as usize);
            ring.push(send(wr_id, wr_id > 0), wr_id > 0);
        }
        assert_eq!(ring.end(1), Some(send(1, true)));
        assert_eq!(ring.room(), 1);
    }

    #[test]
    fn a_slab_reuses_places_and_refuses_stale_ones() {
        let mut slab = Slab::default();
        let (a, b) = (slab.add(10), slab.add(11));
        assert_eq!(slab.end(a), Some(10));
        assert_eq!(slab.end(a), None);
        assert_eq!(slab.add(12), a);
        assert_eq!((slab.end(b), slab.used()), (Some(11), 1));
        assert_eq!(slab.end(99), None);
    }
}
