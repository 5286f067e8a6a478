//! What was posted: a completion of the device names a place here, and the place knows the
//! consumer's request. Devices need that: a failed completion does not even say what it was.
//!
//! Owner: a queue, under its lock. Queues end in order, shared receive queues in any.

use std::collections::VecDeque;

use vp_api::{VpResult, WcOpcode, room};

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
    /// With room for the one that takes no place, too.
    pub(crate) fn new(depth: u32) -> VpResult<Self> {
        let depth = depth as usize;
        let posted = room::list("requests of a queue", depth + 1)?.into();
        Ok(Self { first: 0, posted, depth, extra: 0, quiet: 0 })
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

    /// The newest one ends without a completion if it succeeded.
    pub(crate) fn ends_quietly(&self) -> bool {
        self.quiet != 0 && !self.posted.is_empty()
    }

    /// Takes back the newest, which the device did not take after all.
    pub(crate) fn unpush(&mut self) {
        self.posted.pop_back();
    }

    /// Drops all.
    pub(crate) fn clear(&mut self) {
        self.posted.clear();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn send(wr_id: u64, signaled: bool) -> Posted {
        Posted { wr_id, opcode: WcOpcode::Send, signaled }
    }

    #[test]
    fn a_completion_ends_the_quiet_ones_before_it() {
        let mut ring = Ring::new(8).unwrap();
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
        let mut ring = Ring::new(4).unwrap();
        let told: Vec<_> = (0..4)
            .map(|n| {
                let (_, told) = ring.next(false);
                ring.push(send(n, false), told);
                told
            })
            .collect();
        assert_eq!(told, [false, true, false, true]);
        assert!(Ring::<Posted>::new(1).unwrap().next(false).1);
        ring.unpush();
        assert_eq!(ring.room(), 1);
    }

    #[test]
    fn what_is_not_the_consumers_takes_no_place() {
        let mut ring = Ring::new(2).unwrap();
        ring.widen();
        for wr_id in 0..3 {
            assert_eq!(ring.room(), 3 - wr_id as usize);
            ring.push(send(wr_id, wr_id > 0), wr_id > 0);
        }
        assert_eq!(ring.end(1), Some(send(1, true)));
        assert_eq!(ring.room(), 1);
    }
}
