//! A queue of a queue pair. It holds the requests at the device, and *late posts*: requests posted after the end of
//! a connection, which the device does not accept any more. A late post completes as flushed, after all requests
//! that were posted before it.
//!
//! Owner: a queue pair. There are two locks. Only this module takes both, that of the late posts first, so that no
//! user of a queue can take them in the other order. Any thread posts; a poll moves late posts that are due to
//! their CQ. When the queue pair is reset, the queue is empty. A full queue refuses posts.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use vp_api::{VpResult, VpStatus, WorkCompletion};

use crate::completed::Completed;
use crate::object_table::lock;
use crate::ring::{Posted, Ring, Taken};

/// One late post.
#[derive(Debug)]
pub(crate) struct Queue<P = Posted> {
    late: Mutex<VecDeque<Completed>>,
    ring: Mutex<Ring<P>>,
}

impl<P> Queue<P> {
    /// An empty queue.
    pub(crate) fn new(depth: u32) -> VpResult<Self> {
        Ok(Self { late: Mutex::default(), ring: Mutex::new(Ring::new(depth)?) })
    }

    /// The requests at the device, and the slots of the queue. Other methods of the queue must not be called while
    /// this is held.
    pub(crate) fn ring(&self) -> MutexGuard<'_, Ring<P>> {
        lock(&self.ring)
    }

    fn both(&self) -> (MutexGuard<'_, VecDeque<Completed>>, MutexGuard<'_, Ring<P>>) {
        let late = lock(&self.late);
        (late, lock(&self.ring))
    }

    /// The number of requests that are posted and have not completed.
    pub(crate) fn outstanding(&self) -> usize {
        let (late, ring) = self.both();
        late.len() + ring.len()
    }

    /// Adds a late post, which will complete as `flushed`, if the queue has a slot for it.
    pub(crate) fn post_late(&self, flushed: WorkCompletion) -> Result<(), VpStatus> {
        let (mut late, ring) = self.both();
        if ring.room() == 0 {
            return Err(VpStatus::TooManyWrs);
        }
        late.try_reserve(1).map_err(|_| VpStatus::InsufficientResources)?;
        late.push_back(Completed { completion: flushed, source: None, untaken: ring.wait(1) });
        Ok(())
    }

    /// Whether there are late posts, due or not.
    pub(crate) fn has_late(&self) -> bool {
        !lock(&self.late).is_empty()
    }

    /// The late posts that are due: all of them, once the device has ended all earlier requests.
    pub(crate) fn ready(&self) -> VecDeque<Completed> {
        let (mut late, mut ring) = self.both();
        if ring.len() != 0 {
            return VecDeque::new();
        }
        let mut ready = std::mem::take(&mut *late);
        if let Some(first) = ready.front_mut() {
            first.untaken.join(ring.complete(0, Taken::Later));
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use vp_api::{QpId, WcOpcode};

    use super::*;
    use crate::completed::flushed;

    #[test]
    fn late_posts_complete_after_those_of_the_device_and_occupy_slots_until_taken() {
        let queue = Queue::<Posted>::new(3).unwrap();
        let wc = |n| flushed(QpId(1), n, WcOpcode::Send);
        queue.ring().push(Posted { wr_id: 0, opcode: WcOpcode::Send, signaled: false }, false);
        assert_eq!(queue.post_late(wc(1)), Ok(()));
        assert_eq!(queue.post_late(wc(2)), Ok(()));
        assert_eq!(queue.post_late(wc(3)), Err(VpStatus::TooManyWrs));
        assert_eq!((queue.ready().len(), queue.outstanding()), (0, 3));
        queue.ring().end(0).unwrap();
        queue.ring().add_silent(1);
        let mut ready = queue.ready();
        assert_eq!((ready.len(), queue.outstanding(), queue.ring().room()), (2, 0, 0));
        // The first one also frees the slot of the unsignalled request before it.
        ready.pop_front();
        assert_eq!(queue.ring().room(), 2);
        ready.pop_front();
        assert_eq!(queue.ring().room(), 3);
    }
}
