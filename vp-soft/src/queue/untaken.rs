//! Slots of completed work requests whose completions were not polled. They stay occupied (RDMAC 6.3: outstanding
//! until retrieved). So a consumer never has more completions than its queues are deep, and a CQ as deep as the sum
//! of its queues cannot overrun.
//!
//! Owner: a QP, one for each of its work queues, under its lock. Pollers write nothing here: when a queue looks
//! full, the QP reads from its CQ how far it was polled. If the peer dies, flushed requests occupy their slots like
//! others, until their completions are polled.

use vp_api::{VpResult, room};

/// Completed requests of one work queue that occupy slots.
pub struct Untaken {
    /// For each request, the position in its CQ of the completion that frees its slot. The length is a power of
    /// two.
    places: Box<[u64]>,
    /// The oldest entry, and the next to be added: both count up and wrap.
    oldest: u32,
    next: u32,
    /// Requests that completed unsignalled: the next completion of the queue frees their slots.
    silent: u32,
}

impl Untaken {
    /// For a queue of `depth`. Nothing is allocated later: at most `depth` requests occupy slots.
    pub fn new(depth: u32) -> VpResult<Self> {
        let len = depth.next_power_of_two() as usize;
        let places = room::filled("completions of a queue", len, 0)?;
        Ok(Self { places, oldest: 0, next: 0, silent: 0 })
    }

    /// Slots that are occupied.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.next.wrapping_sub(self.oldest) + self.silent
    }

    /// A request completed without a completion (unsignalled).
    #[inline]
    pub fn add_silent(&mut self) {
        self.silent += 1;
    }

    /// A request completed, with its completion at `place`, which also frees the slots of the unsignalled requests
    /// before it. `None` if the CQ was overrun: the completion will never be polled.
    #[inline]
    pub fn add(&mut self, place: Option<u64>) {
        while self.silent != 0 && place.is_some() {
            self.silent -= 1;
            self.add_signalled(place);
        }
        self.add_signalled(place);
    }

    /// The same in a queue where every request has a completion.
    #[inline]
    pub fn add_signalled(&mut self, place: Option<u64>) {
        match place {
            Some(place) => self.push(place),
            None => self.add_silent(),
        }
    }

    #[inline]
    fn push(&mut self, place: u64) {
        let last = self.places.len() - 1;
        self.places[self.next as usize & last] = place;
        self.next = self.next.wrapping_add(1);
    }

    /// Frees the slots of completions before position `taken`.
    pub fn reap(&mut self, taken: u64) {
        let last = self.places.len() - 1;
        while self.oldest != self.next && self.places[self.oldest as usize & last] < taken {
            self.oldest = self.oldest.wrapping_add(1);
        }
    }

    /// All completions were removed from the CQ: they occupy no slot.
    pub fn clear(&mut self) {
        (self.oldest, self.silent) = (self.next, 0);
    }

    /// The stream has ended with all its work: unsignalled requests no longer occupy slots.
    pub fn forget_silent(&mut self) {
        self.silent = 0;
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_polled_completion_frees_its_slot_and_those_of_unsignalled_requests_before() {
        let mut untaken = Untaken::new(8).unwrap();
        untaken.add(Some(3));
        untaken.add_silent();
        untaken.add_silent();
        assert_eq!(untaken.slots(), 3);
        untaken.reap(4);
        assert_eq!(untaken.slots(), 2);
        untaken.add(Some(9));
        untaken.add_silent();
        untaken.reap(9);
        assert_eq!(untaken.slots(), 4);
        untaken.reap(10);
        assert_eq!(untaken.slots(), 1);
        untaken.forget_silent();
        assert_eq!(untaken.slots(), 0);
    }

    #[test]
    fn a_lost_completion_frees_nothing() {
        let mut untaken = Untaken::new(8).unwrap();
        untaken.add(None);
        untaken.reap(u64::MAX);
        assert_eq!(untaken.slots(), 1);
    }
}
