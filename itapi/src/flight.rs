//! Posted work requests that have not completed, and their memory, by queue. Each queue is owned by its
//! endpoint or shared receive queue, behind that object's lock. Nothing else keeps the memory: when the
//! object goes, the provider lets go of the memory first, then it is freed.

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
    /// Dropped when the request completes, so that its window learns of it.
    pub(crate) window: Option<Pending>,
}

/// Posted requests of a send queue. Nothing is allocated for one that never sends.
pub(crate) struct SendFlight {
    posted: Posted<Sent>,
    /// Memory of unsignalled requests that ended, until a completion takes it along. It has room for that
    /// of all that are posted, so that to take completions needs none.
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

    /// Number of the next request, and how many can be posted, at most `wanted` and not 0, with the memory
    /// for them: to be asked before they are posted. `quiet`: some of them are unsignalled.
    #[inline]
    pub(crate) fn room(&mut self, wanted: usize, quiet: bool) -> VpResult<(u64, usize)> {
        let room = self.posted.room(wanted).map_err(|status| refused(status, wanted))?;
        if quiet {
            let more = self.posted.unreported() + room.1;
            self.earlier.try_reserve(more).map_err(|_| none(more))?;
        }
        Ok(room)
    }

    /// Holds a posted request, for which there is [`SendFlight::room`].
    #[inline]
    pub(crate) fn push(&mut self, sent: Sent, signalled: bool) {
        self.posted.push(sent, signalled);
    }

    /// The stream is over, and of all requests the last `failed` have completions that say so.
    pub(crate) fn ended(&mut self, failed: u32) {
        self.posted.ended(failed, |sent| !sent.local.parts().is_empty());
    }

    /// Takes request `number` out, which ended well or not. The unsignalled ones before it have ended, too:
    /// they complete in this order (RDMAC 8.1.3.1).
    #[inline]
    pub(crate) fn complete(&mut self, number: u64, good: bool) -> Option<Sent> {
        let earlier = &mut self.earlier;
        self.posted.complete(number, good, |sent| {
            sent.window = None;
            earlier.push(std::mem::take(&mut sent.local));
        })
    }

    /// The memory of the unsignalled requests that have ended, for the completion that told it.
    #[inline]
    pub(crate) fn take_earlier(&mut self) -> Vec<Local> {
        if self.earlier.is_empty() { Vec::new() } else { self.hand_out() }
    }

    /// The room for the memory of others stays; if there is none for a second list, all of it waits for a
    /// later completion.
    fn hand_out(&mut self) -> Vec<Local> {
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

/// There is no memory to keep so many requests.
#[cold]
fn none(requests: usize) -> VpError {
    room::none::<Local>("posted requests of an endpoint", requests)
}

/// The error of a queue that has no room for them.
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

    /// Of a shared queue, which bounds itself: receives that endpoints took along may be here still.
    pub(crate) fn shared(depth: u32) -> crate::Result<Self> {
        let posted = SharedPosted::new(depth).map_err(crate::Error::no_room)?;
        Ok(Self { posted: Receives::Shared(posted), depth: u32::MAX })
    }

    /// Those of a shared queue, for its endpoints that come and go.
    pub(crate) fn as_shared(&mut self) -> Option<&mut SharedPosted<Local>> {
        match &mut self.posted {
            Receives::Own(_) => None,
            Receives::Shared(posted) => Some(posted),
        }
    }

    pub(crate) fn set_depth(&mut self, depth: u32) {
        self.depth = depth;
    }

    /// How many receives can be posted, at most `wanted`, with the memory for them: to be asked before
    /// they are posted. Not 0.
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

    /// The provider refused it, and all that were pushed behind it.
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
        // One is behind it, which needs the room.
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
