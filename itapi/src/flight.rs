//! What is under way: the memory of posted work requests, by queue. Each queue is owned by its
//! endpoint or shared receive queue, behind that object's lock; nothing else holds the memory, so
//! when the object goes, the memory goes, after the provider has let go of it.

use ual::{Posted, SharedPosted};
use vp_api::room::Slots;
use vp_api::{QpId, VpStatus};

use crate::completion::Operation;
use crate::rmr::Pending;
use crate::work::Local;

/// A posted request of the send queue.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) operation: Operation,
    pub(crate) local: Local,
    /// Tells a window that it was linked or unlinked, by being dropped.
    pub(crate) window: Option<Pending>,
}

/// Posted requests of a send queue. Nothing is allocated for one that never sends.
pub(crate) type SendFlight = Posted<Sent>;

/// Takes request `number` out, which ended well or not, and into `earlier` the memory of the unsignalled
/// ones that ended before it: they complete in this order (RDMAC 8.1.3.1).
#[inline]
pub(crate) fn complete(
    flight: &mut SendFlight,
    number: u64,
    good: bool,
    earlier: &mut Vec<Local>,
) -> Option<Sent> {
    flight.complete(number, good, |sent| {
        sent.window = None;
        earlier.push(std::mem::take(&mut sent.local));
    })
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
    pub(crate) fn room(&mut self, wanted: usize) -> Result<usize, VpStatus> {
        let used = match &self.posted {
            Receives::Own(posted) => posted.used(),
            Receives::Shared(posted) => posted.held(),
        };
        let room = (self.depth as usize).saturating_sub(used).min(wanted);
        if room == 0 {
            return Err(VpStatus::TooManyWrs);
        }
        match &mut self.posted {
            Receives::Own(posted) => posted.make_room(room),
            Receives::Shared(posted) => posted.make_room(room),
        }?;
        Ok(room)
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

    /// It completed, for this endpoint.
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
