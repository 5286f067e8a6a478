//! The event thread of an open device: notifications of CQs, asynchronous events, and the events
//! of connections, which change queue pairs whether or not the consumer polls for them.
//!
//! Owner: the device; one thread `warpline-verbs`, which ends with it. Handlers are called by it
//! without locks held.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vp_api::AsyncEvent;

use crate::cm::Cm;
use crate::device::Context;
use crate::events::{Channel, next_async, next_completion};
use crate::map::About;

/// Handlers of events; the numbers are the objects' ids.
pub(crate) trait DeviceEvents: Send + Sync {
    /// A CQ's notification fired.
    fn on_completion(&self, cq: u32);
    /// Something happened to the object of this id, of a queue pair with its life in the upper half, or
    /// to the port of this number.
    fn on_async(&self, about: About, id: u64, event: AsyncEvent);
}

/// The thread, until `stop` rings.
pub(crate) fn run(
    context: &Context,
    channel: &Channel,
    cm: &Cm,
    stop: &OwnedFd,
    events: &dyn DeviceEvents,
) {
    loop {
        let [cm_events, work] = cm.fds();
        let mut fds = [
            PollFd::new(stop, PollFlags::IN),
            PollFd::from_borrowed_fd(channel.fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(context.async_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(cm_events, PollFlags::IN),
            PollFd::from_borrowed_fd(work, PollFlags::IN),
        ];
        // A signal's handler ran in this thread: nothing else can go wrong.
        let patience = cm.patience().and_then(|patience| Timespec::try_from(patience).ok());
        if poll(&mut fds, patience.as_ref()).is_err() {
            continue;
        }
        let [stopped, completion, other, cm_events, work] = fds.map(|fd| fd.revents());
        if !stopped.is_empty() {
            return;
        }
        // If the driver is gone, the descriptor stays readable and has no event.
        let dead = PollFlags::ERR | PollFlags::NVAL;
        if [completion, other, cm_events].into_iter().any(|fd| fd.intersects(dead)) {
            events.on_async(About::Device, 0, AsyncEvent::Catastrophic);
            return;
        }
        if !(cm_events | work).is_empty() {
            cm.run();
        }
        cm.establish_awaiting();
        if completion.contains(PollFlags::IN) {
            while let Some(cq) = next_completion(context, channel) {
                events.on_completion(cq);
            }
        }
        if other.contains(PollFlags::IN) {
            while let Some((about, id, event)) = next_async(context) {
                if let Some(event) = event {
                    events.on_async(about, id, event);
                }
            }
        }
    }
}
