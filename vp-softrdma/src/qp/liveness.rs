//! Timers of a QP: zero-length kicks, probes of silent peers, the bound on a close, and the checks of
//! deferred posts and of messages that wait for a receive.
//!
//! Under the QP's lock, on whichever thread serves it. Deadlines come from the engine's thread, at most
//! one of each kind, and end with their stream (`engine/timers.rs`). A peer that is gone does not
//! respond to a probe, and the stream counts as broken: but only after one more check of the socket, and
//! not for time in which this process did not run.

use iwarp_proto::State;

use crate::engine::Timer;
use crate::qp::coalesce::TimerResult;
use crate::qp::context::Context;
use crate::qp::inner::{Inner, nanoseconds};
use crate::qp::link::Link;
use crate::tuning::{KICKS, PROBE_DOUBLINGS};

/// A check that is late by this part of its time says nothing about the peer: both may have stood still for all of it.
const LATE: u64 = 5;

impl Inner {
    pub(super) fn set_kick(&mut self, context: &Context) {
        let sent = self.core.proto.stats().fpdus_sent != 0;
        let Some(link) = &self.link else { return };
        if link.kicks == 0 && sent && link.params.role == vp_api::Role::Initiator {
            self.set_next_kick(context);
        }
    }

    /// Each waits longer than the one before: a slow peer may miss several.
    fn set_next_kick(&mut self, context: &Context) {
        let Some(link) = &mut self.link else { return };
        let Some(after) = link.params.kick_after.filter(|_| link.kicks < KICKS) else { return };
        let wait = nanoseconds(after).saturating_mul(1 << link.kicks);
        link.kicks += 1;
        let at = context.engine.now().saturating_add(wait);
        link.set_timer(context, at, Timer::Kick);
    }

    /// Schedules a check of the peer's liveness while work is posted: soon if any of it is to be sent by
    /// this end, else at growing intervals.
    pub(crate) fn set_probe(&mut self, context: &Context) {
        let sending = self.core.proto.outstanding_sends() != 0;
        let hastens = |doublings| sending && doublings != 0;
        if self.link.as_ref().is_none_or(|link| link.probing && !hastens(link.doublings))
            || !self.is_busy()
        {
            return;
        }
        let asked = self.core.proto.probe_outstanding();
        let Some(link) = &mut self.link else { return };
        let Some(after) = link.params.probe_after else { return };
        if sending {
            link.doublings = 0;
        }
        let doublings = if asked { 0 } else { link.doublings };
        link.probing = true;
        link.moved_before = link.moved();
        link.probe_at =
            context.engine.now().saturating_add(nanoseconds(after).saturating_mul(1 << doublings));
        link.set_timer(context, link.probe_at, Timer::Probe);
    }

    fn is_busy(&self) -> bool {
        self.core.proto.outstanding_sends() != 0
            || self.core.queues.receives.posted() != 0
            || self.core.proto.probe_outstanding()
    }

    /// A deadline passed that was set for the stream of this generation; the QP may have another by now.
    pub(crate) fn handle_timer(&mut self, context: &Context, stream: u32, timer: Timer) {
        let Some(link) = self.link.as_ref().filter(|link| link.generation == stream) else {
            return;
        };
        match timer {
            // Work is still outstanding: the close is not an orderly one.
            Timer::Close if self.core.proto.state() == State::Rts => {
                let _ = self.core.close(context);
            }
            Timer::Close => self.core.close_timeout(context),
            Timer::Kick if link.inbox.octets != 0 => return,
            Timer::Kick => {
                self.core.proto.kick();
                self.set_next_kick(context);
            }
            Timer::Probe => self.probe(context),
            Timer::Hold => self.hold_expired(context),
            Timer::Coalesce => match self.coalesce.on_timer(context.engine.now()) {
                TimerResult::Overdue => {}
                TimerResult::Idle => return,
                TimerResult::Again(at) => return link.set_timer(context, at, Timer::Coalesce),
            },
        }
        self.drive(context);
    }

    fn probe(&mut self, context: &Context) {
        if self.core.proto.probe_outstanding() && self.is_silent(context) {
            // The response may be in the socket: a late timer means that the socket was read late, too.
            self.receive(context, false, true);
        }
        let silent = self.is_silent(context);
        let Some(link) = self.link.as_mut().filter(|link| link.is_due(context)) else { return };
        link.probing = false;
        if !silent {
            let asked = std::mem::take(&mut link.asked);
            link.doublings = if asked { (link.doublings + 1).min(PROBE_DOUBLINGS) } else { 0 };
            return;
        }
        let stood_still = link.stood_still(context);
        self.refresh_mulpdu();
        if !self.core.proto.probe_outstanding() {
            self.send_probe();
        } else if !stood_still {
            self.core.broken(context, crate::stream::socket::Fault::TimedOut);
        }
    }

    /// Without ORD no probe (an RDMA Read of no octets) can be sent; TCP's own keep-alive decides.
    fn send_probe(&mut self) {
        let asked = self.is_busy() && self.core.proto.probe();
        if let Some(link) = &mut self.link {
            link.asked = asked;
        }
    }

    /// A check is due, and nothing has arrived since the one before, though this end reads.
    fn is_silent(&self, context: &Context) -> bool {
        let silent = |link: &Link| link.is_due(context) && link.moved() == link.moved_before;
        self.link.as_ref().is_some_and(silent) && !self.core.is_full()
    }
}

impl Link {
    /// The check is due; otherwise its deadline was replaced by a later one.
    fn is_due(&self, context: &Context) -> bool {
        self.probing && context.engine.now() >= self.probe_at
    }

    /// The check is so late that this process, or the whole machine, did not run: the peer had no time
    /// to respond.
    fn stood_still(&self, context: &Context) -> bool {
        let late = context.engine.now().saturating_sub(self.probe_at);
        self.params.probe_after.is_some_and(|after| late >= nanoseconds(after) / LATE)
    }
}
