//! What is under way: the memory of posted work requests, by queue. Each queue is owned by its
//! endpoint or shared receive queue, behind that object's lock; nothing else holds the memory, so
//! when the object goes, the memory goes, after the provider has let go of it.

use ual::Posted;
use vp_api::VpStatus;
use vp_api::room::Slots;

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
    posted: Slots<Local>,
    depth: u32,
}

impl RecvFlight {
    /// Of a queue of `depth`.
    pub(crate) fn new(depth: u32) -> crate::Result<Self> {
        let posted = Slots::new("receives of a queue", depth as usize);
        Ok(Self { posted: posted.map_err(crate::Error::no_room)?, depth })
    }

    /// Of a shared queue, which bounds itself: receives of endpoints that went never complete.
    pub(crate) fn shared(depth: u32) -> crate::Result<Self> {
        Ok(Self { depth: u32::MAX, ..Self::new(depth)? })
    }

    pub(crate) fn set_depth(&mut self, depth: u32) {
        self.depth = depth;
    }

    /// How many receives can be posted, at most `wanted`, with the memory for them: to be asked before
    /// they are posted. Not 0.
    pub(crate) fn room(&mut self, wanted: usize) -> Result<usize, VpStatus> {
        let room = (self.depth as usize).saturating_sub(self.posted.used()).min(wanted);
        if room == 0 {
            return Err(VpStatus::TooManyWrs);
        }
        self.posted.make_room(room).map(|()| room)
    }

    pub(crate) fn push(&mut self, local: Local) -> u64 {
        self.posted.add(local).into()
    }

    pub(crate) fn complete(&mut self, number: u64) -> Option<Local> {
        self.posted.take(u32::try_from(number).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_complete_in_any_order_once() {
        let mut flight = RecvFlight::new(2).unwrap();
        let (a, b) = (flight.push(Local::default()), flight.push(Local::default()));
        assert!(flight.complete(b).is_some());
        assert!(flight.complete(b).is_none());
        assert_eq!(flight.push(Local::default()), b);
        assert!(flight.complete(a).is_some());
        assert!(flight.complete(u64::MAX).is_none());
    }
}
