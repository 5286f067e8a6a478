//! Posted receives of a shared queue, including those that were lost with a destroyed endpoint.
//! Owner: a shared receive queue of an interface, under its lock, which is held from storing a receive until the
//! provider has accepted or refused it. When a peer dies its endpoint completes what it took. A
//! destroyed endpoint completes nothing, and no provider reports what it had. But receives are taken in
//! the order in which they were posted (RDMAC 6.3): all receives except the last ones, which wait in the
//! queue, were taken; and an endpoint has none that were taken before it was created. Receives that were
//! taken and that no endpoint can have are lost, and are returned when an endpoint is destroyed. Others
//! stay as long as an endpoint is open that existed when they were taken.
//!
//! A completion may be examined when its endpoint is destroyed: it is refused, since its number may be
//! another receive's by then.

use std::collections::BTreeMap;

use vp_api::room::Slots;
use vp_api::{QpId, VpResult, VpStatus, room};

/// The posted receives of a shared queue.
#[derive(Debug)]
pub struct SharedPosted<T> {
    requests: Slots<T>,
    /// By number: how many were posted before it; [`FREE`] if there is no request.
    orders: Vec<u64>,
    /// Receives posted so far.
    posted: u64,
    /// By endpoint: the first receive that it can have.
    floors: BTreeMap<QpId, u64>,
}

/// No receive has this order.
const FREE: u64 = u64::MAX;

impl<T> SharedPosted<T> {
    /// For a queue of `depth`.
    ///
    /// # Errors
    /// [`VpStatus::InsufficientResources`]: there is no memory.
    pub fn new(depth: u32) -> VpResult<Self> {
        let what = "receives of the shared receive queue";
        let requests = Slots::new(what, depth as usize)?;
        let orders = room::list(what, depth as usize)?;
        Ok(Self { requests, orders, posted: 0, floors: BTreeMap::new() })
    }

    /// Reserves memory for `more` receives; called before they are stored.
    ///
    /// # Errors
    /// [`VpStatus::InsufficientResources`]: there is none.
    pub fn make_room(&mut self, more: usize) -> Result<(), VpStatus> {
        self.requests.make_room(more)?;
        let missing = (self.requests.used() + more).saturating_sub(self.orders.len());
        self.orders.try_reserve(missing).map_err(|_| VpStatus::InsufficientResources)
    }

    /// The number of receives that wait or that an endpoint has.
    pub fn held(&self) -> usize {
        self.requests.used()
    }

    /// Stores a receive that is posted next; returns its number.
    pub fn hold(&mut self, request: T) -> u32 {
        let number = self.requests.add(request);
        let at = number as usize;
        if at >= self.orders.len() {
            self.orders.resize(at + 1, FREE);
        }
        self.orders[at] = self.posted;
        self.posted += 1;
        number
    }

    /// The provider refused a receive, and all that were stored after it.
    pub fn refused(&mut self, number: u32) -> Option<T> {
        let request = self.take(number)?;
        self.posted -= 1;
        Some(request)
    }

    /// Removes a receive that completed for an endpoint. `None`: the endpoint is destroyed, or it
    /// completed before.
    pub fn complete(&mut self, number: u32, qp: QpId) -> Option<T> {
        if self.floors.contains_key(&qp) { self.take(number) } else { None }
    }

    fn take(&mut self, number: u32) -> Option<T> {
        let request = self.requests.take(number)?;
        self.orders[number as usize] = FREE;
        Some(request)
    }

    /// An endpoint that takes receives was created, while `waiting` wait in the queue.
    pub fn joined(&mut self, qp: QpId, waiting: u32) {
        self.floors.insert(qp, self.taken(waiting));
    }

    /// An endpoint was destroyed, and `waiting` are left in the queue: passes lost receives to `back`.
    pub fn left(&mut self, qp: QpId, waiting: u32, mut back: impl FnMut(T)) {
        self.floors.remove(&qp);
        let oldest = self.floors.values().copied().min().unwrap_or(FREE);
        let lost = oldest.min(self.taken(waiting));
        for number in 0..self.orders.len() {
            if self.orders[number] < lost {
                self.take(number as u32).into_iter().for_each(&mut back);
            }
        }
    }

    /// The number of receives taken.
    fn taken(&self, waiting: u32) -> u64 {
        self.posted.saturating_sub(waiting.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: QpId = QpId(1);
    const B: QpId = QpId(2);

    /// Receives of an empty queue, numbered as they are stored, and its endpoints.
    fn posted(receives: u32, endpoints: &[QpId]) -> SharedPosted<u32> {
        let mut posted = SharedPosted::new(4).unwrap();
        endpoints.iter().for_each(|qp| posted.joined(*qp, 0));
        posted.make_room(receives as usize).unwrap();
        for n in 0..receives {
            assert_eq!(posted.hold(n), n);
        }
        posted
    }

    fn left(posted: &mut SharedPosted<u32>, qp: QpId, waiting: u32) -> Vec<u32> {
        let mut back = Vec::new();
        posted.left(qp, waiting, |request| back.push(request));
        back
    }

    #[test]
    fn the_last_endpoint_releases_all_that_was_taken() {
        let mut posted = posted(8, &[A]);
        assert_eq!(posted.complete(0, A), Some(0));
        // It has taken 1 and 2.
        assert_eq!(left(&mut posted, A, 5), [1, 2]);
        assert_eq!(posted.held(), 5);
        // A late completion is refused, also when its number is another receive's.
        assert_eq!(posted.complete(1, A), None);
        let again = posted.hold(10);
        assert!([0, 1, 2].contains(&again));
        assert_eq!(posted.complete(again, A), None);
        posted.joined(B, 6);
        assert_eq!(posted.complete(again, B), Some(10));
        assert_eq!(posted.complete(again, B), None);
    }

    #[test]
    fn receives_that_another_endpoint_may_have_stay_until_it_is_freed() {
        let mut posted = posted(8, &[A, B]);
        // They have taken four; it is not known which endpoint has which.
        assert!(left(&mut posted, A, 4).is_empty());
        assert_eq!(posted.complete(1, B), Some(1));
        // An endpoint created since has none of them, and takes two.
        posted.joined(A, 4);
        assert_eq!(left(&mut posted, B, 2), [0, 2, 3]);
        assert_eq!(left(&mut posted, A, 2), [4, 5]);
        assert_eq!(posted.held(), 2);
    }

    #[test]
    fn memory_for_stored_and_new_receives_is_reserved() {
        for held in [0, 1, 3] {
            let mut posted = posted(held, &[]);
            posted.make_room(100).unwrap();
            let held = held as usize;
            assert!((held + 100..300).contains(&posted.orders.capacity()), "{held}");
        }
    }

    #[test]
    fn refused_receives_were_not_posted() {
        let mut posted = posted(4, &[A]);
        for number in [2, 3] {
            assert_eq!(posted.refused(number), Some(number));
        }
        assert_eq!(posted.refused(3), None);
        // Both wait, then one of them.
        assert!(left(&mut posted, A, 2).is_empty());
        posted.joined(A, 2);
        assert_eq!(left(&mut posted, A, 1), [0]);
        assert_eq!(posted.make_room(1 << 60), Err(VpStatus::InsufficientResources));
    }
}
