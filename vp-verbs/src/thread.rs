//! The event thread of an open device. It handles CQ notifications, asynchronous events, and connection events.
//! Connection events change queue pairs whether or not the consumer polls for them.
//!
//! Owner: the device; its only thread is `warpline-verbs`, which ends with it. The thread calls handlers with no
//! lock held.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vp_api::AsyncEvent;

use crate::cm::Cm;
use crate::device::Context;
use crate::events::{Channel, next_async, next_completion};
use crate::map::About;

/// Handlers of events. The numbers are the ids of the objects.
pub(crate) trait DeviceEvents: Send + Sync {
    /// A CQ has notified.
    fn on_completion(&self, cq: u32);
    /// Something happened to the object with this id (for a queue pair, its life is in the upper half), or to the
    /// port with this number.
    fn on_async(&self, about: About, id: u64, event: AsyncEvent);
}

/// The thread; it runs until `stop` becomes readable.
pub(crate) fn run(
    context: &Context,
    channel: &Channel,
    cm: &Cm,
    stop: &OwnedFd,
    events: &dyn DeviceEvents,
) {
    let mut cm_is_dead = false;
    loop {
        let [cm_events, work] = cm.fds();
        // Descriptors of a device that is gone stay readable, and have no event.
        let unless = |dead, fd| match dead {
            false => PollFd::from_borrowed_fd(fd, PollFlags::IN),
            true => PollFd::new(stop, PollFlags::empty()),
        };
        let mut fds = [
            PollFd::new(stop, PollFlags::IN),
            unless(context.is_gone(), channel.fd()),
            unless(context.is_gone(), context.async_fd()),
            unless(cm_is_dead, cm_events),
            PollFd::from_borrowed_fd(work, PollFlags::IN),
        ];
        // Interrupted by a signal handler in this thread: no other error is possible.
        let patience = cm.patience().and_then(|patience| Timespec::try_from(patience).ok());
        if poll(&mut fds, patience.as_ref()).is_err() {
            continue;
        }
        let [stopped, completion, other, cm_events, work] = fds.map(|fd| fd.revents());
        if !stopped.is_empty() {
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
        let dead = PollFlags::ERR | PollFlags::NVAL;
        cm_is_dead |= cm_events.intersects(dead);
        // The driver was removed. Ends of connections are still handled.
        if [completion, other, cm_events].into_iter().any(|fd| fd.intersects(dead)) {
            events.on_async(About::Device, 0, AsyncEvent::Catastrophic);
        }
    }
}
