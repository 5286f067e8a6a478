//! What is under way: the memory of posted work requests, by queue. Each queue is owned by its
//! endpoint or shared receive queue, behind that object's lock; nothing else holds the memory, so
//! when the object goes, the memory goes, after the provider has let go of it.

use std::collections::VecDeque;

use slab::Slab;

use crate::completion::Operation;
use crate::rmr::Pending;
use crate::work::Local;

/// A posted request of the send queue.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) operation: Operation,
    pub(crate) local: Local,
    /// Tells a window that it was linked or unlinked, by being dropped.
    pub(crate) _window: Option<Pending>,
}

/// Posted requests of a send queue, oldest first. They complete in this order, so a completion
/// also ends all unsignalled ones before it (RDMAC 8.1.3.1).
#[derive(Debug)]
pub(crate) struct SendFlight {
    posted: VecDeque<Sent>,
    /// Number of the oldest in `posted`.
    first: u64,
    depth: u32,
}

impl SendFlight {
    /// The first request makes room for a whole queue: others do not allocate, and who never sends
    /// has none.
    pub(crate) fn new(depth: u32) -> Self {
        Self { posted: VecDeque::new(), first: 0, depth }
    }

    /// Number of the next request.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.posted.len() as u64
    }

    pub(crate) fn push(&mut self, sent: Sent) {
        if self.posted.capacity() == 0 {
            self.posted.reserve_exact(self.depth as usize);
        }
        self.posted.push_back(sent);
    }

    /// Takes request `number` out, and into `earlier` the memory of those before it.
    pub(crate) fn complete(&mut self, number: u64, earlier: &mut Vec<Local>) -> Option<Sent> {
        let before = number.checked_sub(self.first)?;
        if before >= self.posted.len() as u64 {
            return None;
        }
        self.first = number + 1;
        if before > 0 {
            earlier.extend(self.posted.drain(..before as usize).map(|sent| sent.local));
        }
        self.posted.pop_front()
    }
}

/// Posted receives, in any order.
#[derive(Debug)]
pub(crate) struct RecvFlight(Slab<Local>);

impl RecvFlight {
    pub(crate) fn new(depth: u32) -> Self {
        Self(Slab::with_capacity(depth as usize))
    }

    pub(crate) fn push(&mut self, local: Local) -> u64 {
        self.0.insert(local) as u64
    }

    pub(crate) fn complete(&mut self, number: u64) -> Option<Local> {
        self.0.try_remove(usize::try_from(number).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(operation: Operation) -> Sent {
        Sent { operation, local: Local::default(), _window: None }
    }

    #[test]
    fn a_completion_ends_the_unsignalled_before_it() {
        let mut flight = SendFlight::new(4);
        for operation in [Operation::Write, Operation::Write, Operation::Send, Operation::Read] {
            flight.push(sent(operation));
        }
        let mut earlier = Vec::new();
        assert_eq!(flight.complete(2, &mut earlier).unwrap().operation, Operation::Send);
        assert_eq!(earlier.len(), 2);
        assert!(flight.complete(2, &mut earlier).is_none());
        assert!(flight.complete(4, &mut earlier).is_none());
        assert_eq!(flight.next(), 4);
        assert_eq!(flight.complete(3, &mut earlier).unwrap().operation, Operation::Read);
        assert_eq!(earlier.len(), 2);
    }

    #[test]
    fn receives_complete_in_any_order_once() {
        let mut flight = RecvFlight::new(2);
        let (a, b) = (flight.push(Local::default()), flight.push(Local::default()));
        assert!(flight.complete(b).is_some());
        assert!(flight.complete(b).is_none());
        assert_eq!(flight.push(Local::default()), b);
        assert!(flight.complete(a).is_some());
        assert!(flight.complete(u64::MAX).is_none());
    }
}
