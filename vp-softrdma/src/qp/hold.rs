//! Messages that wait for a receive: their deadline, and how a new receive reaches them.
//!
//! The core buffers them; this is their deadline, which belongs to the QP's link, under its lock. The
//! thread that posts a receive to the QP's own queue passes it to the core. With an SRQ the QP is
//! entered among those that wait ([`vp_soft::queue::srq`]), and the thread that posts there has the QP
//! served. A QP that has buffered as much as it may reads on when a message has left: its socket is
//! reported anew.

use std::sync::atomic::Ordering;

use vp_api::Unready;

use crate::engine::Timer;
use crate::qp::context::Context;
use crate::qp::inner::{Inner, nanoseconds};

/// The deadline of the oldest waiting message.
#[derive(Default)]
pub(crate) struct HoldDeadline {
    /// MSN of the oldest waiting message.
    oldest: Option<u32>,
    /// When its time is over.
    until: u64,
    /// A timer is set; it may be that of an earlier message.
    set: bool,
}

impl Inner {
    /// Receives were posted: waiting messages take them.
    #[inline]
    pub(crate) fn give_receives(&mut self, context: &Context) {
        if self.core.proto.waiting().is_some() {
            self.place_waiting(context);
        }
    }

    #[inline(never)] // seldom
    fn place_waiting(&mut self, context: &Context) {
        let full = self.core.is_full();
        self.core.receives(context);
        self.drive(context);
        self.unread |= full && !self.core.is_full();
    }

    /// Each message has its own time, which begins when it becomes the oldest.
    #[inline]
    pub(super) fn set_hold(&mut self, context: &Context) {
        let oldest = self.core.proto.waiting();
        if let Some(link) = &mut self.link
            && link.hold_deadline.oldest != oldest
        {
            link.hold_deadline.oldest = oldest;
            self.set_next_hold(context);
        }
    }

    fn set_next_hold(&mut self, context: &Context) {
        let (Some(link), Some(time)) = (&mut self.link, context.hold) else { return };
        if link.hold_deadline.oldest.is_none() {
            return;
        }
        if let Some(slot) = &self.slot {
            slot.waited_for_receive.fetch_add(1, Ordering::Relaxed);
        }
        link.hold_deadline.until = context.engine.now().saturating_add(time);
        // Otherwise the timer that is set finds, when it expires, that there is a later deadline.
        if !std::mem::replace(&mut link.hold_deadline.set, true) {
            link.set_timer(context, link.hold_deadline.until, Timer::Hold);
        }
    }

    /// The timer expired, for the oldest message or for one before it.
    pub(super) fn hold_expired(&mut self, context: &Context) {
        let Some(link) = &mut self.link else { return };
        link.hold_deadline.set = false;
        if link.hold_deadline.oldest.is_none() {
            return;
        }
        if context.engine.now() < link.hold_deadline.until {
            link.hold_deadline.set = true;
            return link.set_timer(context, link.hold_deadline.until, Timer::Hold);
        }
        self.core.hold_timeout(context);
    }
}

/// How long messages wait, in nanoseconds; `None`: they do not.
pub(super) fn time(unready: Unready) -> Option<u64> {
    match unready {
        Unready::Terminate => None,
        Unready::Hold { time, .. } => Some(nanoseconds(time)),
    }
}
