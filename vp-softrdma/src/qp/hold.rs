//! Messages that wait for a receive: who wakes them, and until when they wait.
//!
//! The core keeps them; here is their deadline, which belongs to the QP's link, under its lock. Receives
//! of the QP's own queue are given to them by the thread that posts. On an SRQ the QP is among those that
//! wait ([`crate::queue::srq`]), and the thread that posts there has it served. A QP that has read its fill reads on
//! when a message has left: its socket is reported anew.

use vp_api::Unready;

use crate::engine::Timer;
use crate::qp::context::Context;
use crate::qp::inner::{Inner, nanoseconds};

/// The deadline of what waits.
#[derive(Default)]
pub(crate) struct Held {
    /// MSN of the oldest that waits.
    oldest: Option<u32>,
    /// Until then.
    until: u64,
    /// A deadline is set; it may be that of an earlier one.
    set: bool,
}

impl Inner {
    /// Receives were posted: messages that wait take them.
    #[inline]
    pub(crate) fn give_receives(&mut self, context: &Context) {
        if self.core.proto.waiting().is_some() {
            self.deliver_held(context);
        }
    }

    #[inline(never)] // seldom
    fn deliver_held(&mut self, context: &Context) {
        let full = self.core.is_full();
        self.core.receives(context);
        self.settle(context);
        self.unread |= full && !self.core.is_full();
    }

    /// Each message has its own time, from the moment when it is the oldest.
    #[inline]
    pub(super) fn set_hold(&mut self, context: &Context) {
        let oldest = self.core.proto.waiting();
        if let Some(link) = &mut self.link
            && link.held.oldest != oldest
        {
            link.held.oldest = oldest;
            self.set_next_hold(context);
        }
    }

    fn set_next_hold(&mut self, context: &Context) {
        let (Some(link), Some(time)) = (&mut self.link, context.hold) else { return };
        if link.held.oldest.is_none() {
            return;
        }
        link.held.until = context.engine.now().saturating_add(time);
        // Else the deadline that comes first sees that it is not the last.
        if !std::mem::replace(&mut link.held.set, true) {
            link.set_timer(context, link.held.until, Timer::Hold);
        }
    }

    /// The deadline has passed, of the oldest or of one before it.
    pub(super) fn hold_over(&mut self, context: &Context) {
        let Some(link) = &mut self.link else { return };
        link.held.set = false;
        if link.held.oldest.is_none() {
            return;
        }
        if context.engine.now() < link.held.until {
            link.held.set = true;
            return link.set_timer(context, link.held.until, Timer::Hold);
        }
        self.core.hold_timeout(context);
    }
}

/// In nanoseconds, how long messages wait; `None`: they do not.
pub(super) fn time(unready: Unready) -> Option<u64> {
    match unready {
        Unready::Terminate => None,
        Unready::Hold { time, .. } => Some(nanoseconds(time)),
    }
}
