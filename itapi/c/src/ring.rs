//! Outstanding requests of one queue, with the data for their completion events.
//!
//! A ring belongs to an endpoint. Its slots are allocated with it. Posting and dequeuing allocate nothing,
//! unless more threads than half the depth of the queue have polled a completion each and not yet taken
//! its request. One mutex orders the posts, so that numbers are in the provider's order; it is held while
//! the provider is called. Another one guards the slots, for a few instructions. However a connection
//! ends, every request completes, or counts as completed unsignalled, and its slot is free again.

use std::sync::{Mutex, MutexGuard};

use kal_os::lock;
use ual::Posted;
use ual::vp_api::{Terminate, VpResult, VpStatus};

use super::failure::{Failure, Outcome};
use super::status;
use super::types::it_event_type_t;

/// Data of a request that its completion does not carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Request {
    /// The caller's cookie; one of 8 octets is the first number.
    pub(crate) cookie: [u64; 3],
    /// The handle of the memory that it unlinks when it succeeds, or 0.
    pub(crate) unlinks: u64,
    /// The number of its completion event.
    pub(crate) event: it_event_type_t,
    /// The peer's Terminate that ended its connection, if the endpoint was reset since.
    pub(crate) terminate: Option<Terminate>,
}

/// The requests of a queue.
pub(crate) struct Ring {
    order: Mutex<()>,
    posted: Mutex<Posted<Request>>,
}

/// A ring to which nothing can be posted.
pub(crate) struct BlockedPosts<'a> {
    _order: MutexGuard<'a, ()>,
    posted: &'a Mutex<Posted<Request>>,
}

impl Ring {
    /// For a queue of `depth` requests.
    pub(crate) fn new(depth: u32) -> Outcome<Self> {
        let mut posted = Posted::new(depth);
        posted.reserve(depth).map_err(Failure::of_verb(status::IT_ERR_RESOURCES))?;
        Ok(Self { order: Mutex::new(()), posted: Mutex::new(posted) })
    }

    /// Stores a request and posts it by its number through `post`; a refused one is removed. Calls `full` if the
    /// queue is full before that.
    #[inline]
    pub(crate) fn post<E>(
        &self,
        request: Request,
        signalled: bool,
        post: impl FnOnce(u32) -> Result<(), E>,
        refused: impl FnOnce(E) -> Failure,
        full: impl FnOnce(),
    ) -> Outcome {
        let _order = lock(&self.order);
        let number = lock(&self.posted).hold(request, signalled);
        let number = number.map_err(|status| no_room(status, full))?;
        post(number as u32).map_err(|error| {
            lock(&self.posted).refused(number);
            refused(error)
        })
    }

    /// Removes a request that completed, once; `good`: it succeeded.
    #[inline]
    pub(crate) fn take(&self, number: u32, good: bool) -> Option<Request> {
        let mut posted = lock(&self.posted);
        let number = posted.number(number);
        posted.complete(number, good, |_| {})
    }

    /// Blocks posts.
    pub(crate) fn block_posts(&self) -> BlockedPosts<'_> {
        BlockedPosts { _order: lock(&self.order), posted: &self.posted }
    }
}

impl BlockedPosts<'_> {
    /// After a connection: the last `failed` requests have failed completions. `terminate`: the peer's
    /// Terminate, which the queue pair drops with its next connection.
    pub(crate) fn ended(&self, failed: u32, terminate: Option<Terminate>) {
        let mut posted = lock(self.posted);
        posted.ended(failed, |_| false);
        posted.for_each(|request| request.terminate = request.terminate.or(terminate));
    }

    /// Whether no request waits for its completion.
    pub(crate) fn is_idle(&self) -> bool {
        lock(self.posted).is_idle()
    }

    /// Allocates slots for another depth.
    pub(crate) fn reserve(&self, depth: u32) -> VpResult<()> {
        lock(self.posted).reserve(depth)
    }

    /// Sets the depth, for which slots were reserved.
    pub(crate) fn set_depth(&self, depth: u32) {
        lock(self.posted).set_depth(depth);
    }
}

/// The refusal of a post for which there is no slot (calls `is_full`), or no memory for one.
#[cold]
fn no_room(status: VpStatus, is_full: impl FnOnce()) -> Failure {
    match status {
        VpStatus::TooManyWrs => {
            is_full();
            full()
        }
        other => Failure::verb(other, status::IT_ERR_RESOURCES, "remember a work request"),
    }
}

/// The refusal of a post without room.
#[cold]
pub(crate) fn full() -> Failure {
    Failure::new(
        status::IT_ERR_TOO_MANY_POSTS,
        "the queue is full: dequeue completions, or create the endpoint with more DTOs",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(cookie: u64) -> Request {
        Request { cookie: [cookie, 0, 0], ..Request::default() }
    }

    fn post(ring: &Ring, cookie: u64) -> Outcome<u32> {
        let mut number = 0;
        let accept = |n| {
            number = n;
            Ok::<(), ()>(())
        };
        ring.post(request(cookie), true, accept, |()| full(), || ())?;
        Ok(number)
    }

    #[test]
    fn a_queue_takes_exactly_its_depth() {
        let ring = Ring::new(60).unwrap();
        let numbers: Vec<_> = (0..60).map(|n| post(&ring, n).unwrap()).collect();
        assert_eq!(post(&ring, 60).unwrap_err().status, status::IT_ERR_TOO_MANY_POSTS);
        assert_eq!(ring.take(numbers[7], true).unwrap().cookie[0], 7);
        assert!(ring.take(numbers[7], true).is_none());
        post(&ring, 61).unwrap();
        assert_eq!(post(&ring, 62).unwrap_err().status, status::IT_ERR_TOO_MANY_POSTS);
    }

    #[test]
    fn a_post_that_the_provider_refuses_uses_no_slot() {
        let ring = Ring::new(1).unwrap();
        for _ in 0..10 {
            assert!(ring.post(request(1), false, |_| Err(()), |()| full(), || ()).is_err());
        }
        assert!(ring.block_posts().is_idle());
        post(&ring, 2).unwrap();
    }
}
