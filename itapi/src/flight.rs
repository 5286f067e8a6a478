//! Outstanding work requests of one queue, and their memory. Its endpoint or shared receive queue owns it,
//! under that object's lock. Nothing else keeps the memory: when the object is dropped, the provider destroys
//! its queue first, then the memory is freed.

use ual::{Posted, SharedPosted};
use vp_api::room::{self, Slots};
use vp_api::{QpId, VpError, VpResult, VpStatus};

use crate::ids::Operation;
use crate::rmr::Pending;
use crate::work::Local;

/// A posted request of the send queue.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) operation: Operation,
    pub(crate) local: Local,
    /// Dropped when the request completes, which its window counts.
    pub(crate) window: Option<Pending>,
}

/// Posted requests of a send queue. A queue that never sends allocates nothing.
pub(crate) struct SendFlight {
    posted: Posted<Sent>,
    /// Memory of unsignalled requests that ended, until a completion returns it. It has room for all posted
    /// requests, so that taking completions allocates nothing.
    earlier: Vec<Local>,
}

impl SendFlight {
    /// Of a queue of `depth`.
    pub(crate) fn new(depth: u32) -> Self {
        Self { posted: Posted::new(depth), earlier: Vec::new() }
    }

    pub(crate) fn set_depth(&mut self, depth: u32) {
        self.posted.set_depth(depth);
    }

    /// Reserves memory for requests before they are posted. Returns the number of the next request, and how
    /// many can be posted: at least 1, at most `wanted`. `quiet`: some of them are unsignalled.
    #[inline]
    pub(crate) fn room(&mut self, wanted: usize, quiet: bool) -> VpResult<(u64, usize)> {
        let room = self.posted.room(wanted).map_err(|status| refused(status, wanted))?;
        if quiet {
            let more = self.posted.unreported() + room.1;
            self.earlier.try_reserve(more).map_err(|_| none(more))?;
        }
        Ok(room)
    }

    /// Stores a posted request, for which [`SendFlight::room`] reserved memory.
    #[inline]
    pub(crate) fn push(&mut self, sent: Sent, signalled: bool) {
        self.posted.push(sent, signalled);
    }

    /// The stream is over, and the last `failed` of all requests have completions that report it.
    pub(crate) fn ended(&mut self, failed: u32) {
        self.posted.ended(failed, |sent| !sent.local.parts().is_empty());
    }

    /// Removes request `number`, which succeeded or failed. The unsignalled ones before it have ended, too:
    /// requests complete in order (RDMAC 8.1.3.1).
    #[inline]
    pub(crate) fn complete(&mut self, number: u64, good: bool) -> Option<Sent> {
        let earlier = &mut self.earlier;
        self.posted.complete(number, good, |sent| {
            sent.window = None;
            earlier.push(std::mem::take(&mut sent.local));
        })
    }

    /// The memory of the unsignalled requests that have ended, for the completion that reported it.
    #[inline]
    pub(crate) fn take_earlier(&mut self) -> Vec<Local> {
        if self.earlier.is_empty() { Vec::new() } else { self.take_list() }
    }

    /// The list keeps its capacity. Without memory for a second list, all of it waits for a later completion.
    #[cold]
    fn take_list(&mut self) -> Vec<Local> {
        if self.posted.unreported() == 0 {
            return std::mem::take(&mut self.earlier);
        }
        let mut list = room::try_list(self.earlier.len()).unwrap_or_default();
        if list.capacity() != 0 {
            list.append(&mut self.earlier);
        }
        list
    }
}

/// The error when there is no memory to keep so many requests.
#[cold]
fn none(requests: usize) -> VpError {
    room::none::<Local>("posted requests of an endpoint", requests)
}

/// The error of a full queue.
#[cold]
fn refused(status: VpStatus, requests: usize) -> VpError {
    match status {
        VpStatus::InsufficientResources => none(requests),
        status => VpError::new(status, ""),
    }
}

/// Posted receives, in any order.
#[derive(Debug)]
pub(crate) struct RecvFlight {
    posted: Receives,
    depth: u32,
}

#[derive(Debug)]
enum Receives {
    Own(Slots<Local>),
    Shared(SharedPosted<Local>),
}

impl RecvFlight {
    /// Of a queue of `depth`.
    pub(crate) fn new(depth: u32) -> crate::Result<Self> {
        let posted = Slots::new("receives of a queue", depth as usize);
        let posted = Receives::Own(posted.map_err(crate::Error::no_room)?);
        Ok(Self { posted, depth })
    }

    /// Of a shared queue. The queue itself enforces the bound: receives that destroyed endpoints had taken may
    /// still be here.
    pub(crate) fn shared(depth: u32) -> crate::Result<Self> {
        let posted = SharedPosted::new(depth).map_err(crate::Error::no_room)?;
        Ok(Self { posted: Receives::Shared(posted), depth: u32::MAX })
    }

    /// The receives of a shared queue, which counts its endpoints.
    pub(crate) fn as_shared(&mut self) -> Option<&mut SharedPosted<Local>> {
        match &mut self.posted {
            Receives::Own(_) => None,
            Receives::Shared(posted) => Some(posted),
        }
    }

    pub(crate) fn set_depth(&mut self, depth: u32) {
        self.depth = depth;
    }

    /// Reserves memory for receives before they are posted. Returns how many can be posted: at least 1, at most
    /// `wanted`.
    pub(crate) fn room(&mut self, wanted: usize) -> VpResult<usize> {
        let used = match &self.posted {
            Receives::Own(posted) => posted.used(),
            Receives::Shared(posted) => posted.held(),
        };
        let room = (self.depth as usize).saturating_sub(used).min(wanted);
        if room == 0 {
            return Err(refused(VpStatus::TooManyWrs, 0));
        }
        let made = match &mut self.posted {
            Receives::Own(posted) => posted.make_room(room),
            Receives::Shared(posted) => posted.make_room(room),
        };
        made.map(|()| room).map_err(|status| refused(status, room))
    }

    pub(crate) fn push(&mut self, local: Local) -> u64 {
        let number = match &mut self.posted {
            Receives::Own(posted) => posted.add(local),
            Receives::Shared(posted) => posted.hold(local),
        };
        number.into()
    }

    /// Removes a receive that the provider refused, and all that were pushed after it.
    pub(crate) fn refused(&mut self, number: u64) -> Option<Local> {
        let number = u32::try_from(number).ok()?;
        match &mut self.posted {
            Receives::Own(posted) => posted.take(number),
            Receives::Shared(posted) => posted.refused(number),
        }
    }

    /// Removes one that completed for this endpoint.
    pub(crate) fn complete(&mut self, number: u64, qp: QpId) -> Option<Local> {
        let number = u32::try_from(number).ok()?;
        match &mut self.posted {
            Receives::Own(posted) => posted.take(number),
            Receives::Shared(posted) => posted.complete(number, qp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent() -> Sent {
        Sent { operation: Operation::Write, local: Local::default(), window: None }
    }

    #[test]
    fn memory_of_unsignalled_requests_comes_with_the_next_completion() {
        let mut flight = SendFlight::new(8);
        for signalled in [false, false, true, false, true] {
            flight.room(1, !signalled).unwrap();
            flight.push(sent(), signalled);
        }
        let room = flight.earlier.capacity();
        assert!(flight.complete(2, true).is_some());
        assert_eq!(flight.take_earlier().len(), 2);
        // One request is posted after it, and needs the room.
        assert_eq!(flight.earlier.capacity(), room);
        assert!(flight.complete(4, true).is_some());
        assert_eq!(flight.take_earlier().len(), 1);
        assert_eq!(flight.posted.unreported(), 0);
        assert!(flight.complete(4, true).is_none());
    }

    #[test]
    fn receives_complete_in_any_order_once() {
        let mut flight = RecvFlight::new(2).unwrap();
        let (a, b, qp) = (flight.push(Local::default()), flight.push(Local::default()), QpId(1));
        assert!(flight.complete(b, qp).is_some());
        assert!(flight.complete(b, qp).is_none());
        assert_eq!(flight.push(Local::default()), b);
        assert!(flight.complete(a, qp).is_some());
        assert!(flight.complete(u64::MAX, qp).is_none());
    }
}
