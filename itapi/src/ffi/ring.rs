//! The posted requests of one queue: what their completions will say in C.
//!
//! A ring belongs to an endpoint, behind a mutex that is held for a few instructions and never while
//! the provider is called. Its places are allocated with it. However a connection ends, every
//! request completes, or is known to have done so in silence, and its place is free again.
//!
//! Requests are named by a sequence number; a place holds the request whose number falls on it. Two
//! threads may take completions out of order, so a number whose place is still held is skipped.

use super::types::it_event_type_t;

/// What a completion does not know of its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Request {
    /// The caller's cookie; one of 8 octets is the first number.
    pub(crate) cookie: [u64; 3],
    /// The handle of the memory that it unlinks when it succeeds, or 0.
    pub(crate) unlinks: u64,
    /// The number of its completion event.
    pub(crate) event: it_event_type_t,
}

#[derive(Clone, Copy)]
enum State {
    Free,
    /// Its completion frees it, or it is not accepted by the provider yet.
    Held,
    /// Unsignalled, the provider's n-th request: no completion will come if it succeeds.
    Silent(u32),
}

#[derive(Clone, Copy)]
struct Place {
    request: Request,
    sequence: u32,
    state: State,
}

/// Places for the requests of a queue.
pub(crate) struct Ring {
    /// A power of two.
    places: Box<[Place]>,
    next: u32,
    depth: u32,
}

impl Ring {
    /// For a queue of `depth` requests: with room to spare for completions that were taken from the
    /// provider in another order than they are looked up here, and for [`Ring::reclaim`].
    pub(crate) fn new(depth: u32) -> Self {
        let len = (depth + (depth / 2).max(2)).next_power_of_two();
        let blank = Place { request: Request::default(), sequence: 0, state: State::Free };
        Self { places: vec![blank; len as usize].into(), next: 0, depth }
    }

    fn at(&mut self, sequence: u32) -> &mut Place {
        let last = self.places.len() - 1;
        &mut self.places[sequence as usize & last]
    }

    /// Stores a request; its number. `None`: as many as fit wait for their completions.
    pub(crate) fn hold(&mut self, request: Request) -> Option<u32> {
        for _ in 0..self.places.len() {
            let sequence = self.next;
            self.next = sequence.wrapping_add(1);
            let place = self.at(sequence);
            if matches!(place.state, State::Free) {
                *place = Place { request, sequence, state: State::Held };
                return Some(sequence);
            }
        }
        None
    }

    /// An unsignalled request was the provider's `order`-th.
    pub(crate) fn accepted(&mut self, sequence: u32, order: u32) {
        let place = self.at(sequence);
        // Unless it failed so fast that its completion was here before.
        if place.sequence == sequence && matches!(place.state, State::Held) {
            place.state = State::Silent(order);
        }
    }

    /// Takes a request out: once.
    pub(crate) fn take(&mut self, sequence: u32) -> Option<Request> {
        let place = self.at(sequence);
        if place.sequence != sequence || matches!(place.state, State::Free) {
            return None;
        }
        place.state = State::Free;
        Some(place.request)
    }

    /// Frees the unsignalled requests that have succeeded, given that none has failed and the provider
    /// has accepted `count` in all: it works in order and on at most `depth` at once. Threads that
    /// post together may be counted in another order than the provider's, so that some more are left.
    pub(crate) fn reclaim(&mut self, count: u32) {
        let spare = self.places.len() as u32 - self.depth;
        let kept = self.depth + spare / 2;
        self.settle(|order| count.wrapping_sub(order) >= kept);
    }

    /// After a connection: of `count` requests in all the last `lost` failed and have completions,
    /// so the unsignalled ones before those have succeeded.
    pub(crate) fn disconnected(&mut self, count: u32, lost: u32) {
        self.settle(|order| count.wrapping_sub(order) >= lost);
        for place in self.places.iter_mut().filter(|p| matches!(p.state, State::Silent(_))) {
            place.state = State::Held;
        }
    }

    fn settle(&mut self, succeeded: impl Fn(u32) -> bool) {
        for place in &mut self.places {
            if matches!(place.state, State::Silent(order) if succeeded(order)) {
                place.state = State::Free;
            }
        }
    }

    /// True if no request waits for its completion.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.iter().all(|place| matches!(place.state, State::Free))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(cookie: u64) -> Request {
        Request { cookie: [cookie, 0, 0], ..Request::default() }
    }

    #[test]
    fn requests_come_out_once_whatever_the_order() {
        let mut ring = Ring::new(4);
        for round in 0..100 {
            let numbers: Vec<_> =
                (0..4).map(|n| ring.hold(request(round * 4 + n)).unwrap()).collect();
            for at in [2, 0, 3, 1] {
                let taken = ring.take(numbers[at]).unwrap();
                assert_eq!(taken.cookie[0], round * 4 + at as u64);
                assert!(ring.take(numbers[at]).is_none());
            }
            assert!(ring.is_empty());
        }
    }

    #[test]
    fn numbers_wrap() {
        let mut ring = Ring::new(3);
        ring.next = u32::MAX - 1;
        let numbers: Vec<_> = (0..4).map(|n| ring.hold(request(n)).unwrap()).collect();
        assert_eq!(numbers, [u32::MAX - 1, u32::MAX, 0, 1]);
        for (n, number) in numbers.into_iter().enumerate() {
            assert_eq!(ring.take(number).unwrap().cookie[0], n as u64);
        }
    }

    #[test]
    fn a_full_ring_refuses_and_goes_on() {
        let mut ring = Ring::new(2);
        let held: Vec<_> = std::iter::from_fn(|| ring.hold(request(0))).collect();
        assert_eq!(held.len(), 4);
        assert!(ring.hold(request(1)).is_none());
        ring.take(held[2]).unwrap();
        let again = ring.hold(request(7)).unwrap();
        assert!(ring.take(held[2]).is_none(), "a stale number");
        assert_eq!(ring.take(again).unwrap().cookie[0], 7);
    }

    #[test]
    fn a_slow_thread_does_not_stop_the_others() {
        let mut ring = Ring::new(2);
        let slow = ring.hold(request(99)).unwrap();
        for n in 0..50 {
            let number = ring.hold(request(n)).unwrap();
            assert_eq!(ring.take(number).unwrap().cookie[0], n);
        }
        assert_eq!(ring.take(slow).unwrap().cookie[0], 99);
    }

    #[test]
    fn silent_requests_give_their_places_back() {
        let mut ring = Ring::new(2);
        let mut count = 0;
        for n in 0..50 {
            let number = ring.hold(request(n)).or_else(|| {
                ring.reclaim(count);
                ring.hold(request(n))
            });
            count += 1;
            ring.accepted(number.unwrap(), count);
        }
        assert!(!ring.is_empty());
        ring.disconnected(count, 0);
        assert!(ring.is_empty());
    }

    #[test]
    fn what_may_be_under_way_is_not_reclaimed() {
        let mut ring = Ring::new(4);
        let numbers: Vec<_> = (0..8).map(|n| ring.hold(request(n)).unwrap()).collect();
        // Two threads: the provider has the fourth before the third.
        for (number, order) in numbers.iter().zip([1, 2, 4, 3, 5, 6, 7, 8]) {
            ring.accepted(*number, order);
        }
        ring.reclaim(8);
        // The provider may still work on its last four; one more place is kept.
        let left = numbers.iter().filter(|number| ring.take(**number).is_some()).count();
        assert!(left > 4 && left < 8, "{left}");
    }

    #[test]
    fn after_a_connection_only_what_failed_waits() {
        let mut ring = Ring::new(4);
        let numbers: Vec<_> = (0..4).map(|n| ring.hold(request(n)).unwrap()).collect();
        for (order, number) in (1..).zip(&numbers) {
            ring.accepted(*number, order);
        }
        ring.disconnected(4, 2);
        assert!(ring.take(numbers[1]).is_none());
        ring.reclaim(1000);
        assert_eq!(ring.take(numbers[2]).unwrap().cookie[0], 2);
        assert_eq!(ring.take(numbers[3]).unwrap().cookie[0], 3);
        assert!(ring.is_empty());
    }

    #[test]
    fn a_request_that_failed_at_once_is_not_revived() {
        let mut ring = Ring::new(2);
        let number = ring.hold(request(1)).unwrap();
        ring.take(number).unwrap();
        ring.accepted(number, 1);
        assert!(ring.is_empty());
    }
}
