//! What moves a connection: packets that arrive, timers, and requests that were posted. Each step completes, begins and
//! sends what it can.
//!
//! Runs under the lock of the queue pair, in the thread that receives, polls or posts. Whatever needs no lock waits until
//! [`RoceQp::settle`]. If the connection breaks here, it is ended here (`ending`).

use std::sync::Arc;

use kal_os::lock;
use roce_proto::rc::{self, PostError, SendOp};
use roce_proto::uc::Dropped;
use roce_proto::wire::packet::Packet;
use vp_api::state_page::layout::end;
use vp_api::{AsyncEvent, QpState, WcStatus};

use super::host::View;
use super::publish::end_of;
use super::queues::{Pending, Queues};
use super::{Link, PROBE, RoceQp, State, status};
use crate::engine::{Arrived, Reason, Socket};
use crate::tuning::PROBE_AFTER_US;

impl RoceQp {
    /// Handles a packet for its number. Returns our id of the exchange that the packet confirms, if any.
    pub(crate) fn receive(
        &self,
        now: u64,
        socket: &Arc<Socket>,
        arrived: &Arrived<'_>,
        packet: &Packet<'_>,
    ) -> Option<u32> {
        let mut state = lock(&self.state);
        let State { link, queues, record, .. } = &mut *state;
        let link = link.as_mut()?;
        let number = packet.headers.bth.destination;
        // Only packets with the peer's address are served. A peer's address can be forged.
        let expected = link.number == number && link.peer == arrived.from.ip();
        if !expected || !Arc::ptr_eq(&link.socket, socket) {
            self.engine.drops.count(Reason::Stray);
            return None;
        }
        // [IBRC-24]
        let ours = link.ours || packet.headers.bth.has_own_mark();
        if !socket.is_whole(arrived, ours) {
            self.engine.drops.count(Reason::Damaged);
            return None;
        }
        if ours && !link.ours {
            link.ours = true;
            link.core.divide_writes();
        }
        link.heard = now;
        record.packets_received += 1;
        record.octets_received += packet.payload.len() as u64;
        // Once it is broken, the peer gets one refusal.
        if link.core.broken().is_none() {
            if arrived.is_marked() {
                link.core.handle_mark(now, packet);
            }
            let mut view = View { context: &self.context, queues };
            match link.core.handle_packet(now, packet, &mut view) {
                Ok(()) => {}
                Err(Dropped::Stray) => self.engine.drops.count(Reason::Stray),
                Err(Dropped::Unready) => self.engine.drops.count(Reason::Unready),
            }
        }
        link.unconfirmed
    }

    /// Acts on the packets that were received, and sends what they ask for. `may_keep`: an acknowledgement may be kept
    /// for the consumer's next request. Returns whether one is.
    pub(crate) fn reply(&self, may_keep: bool) -> bool {
        let mut state = lock(&self.state);
        if let Some(link) = state.link.as_mut().filter(|_| !may_keep) {
            link.listed = false;
        }
        self.work(&mut state, self.engine.now(), may_keep);
        state.publish();
        let Some(link) = &mut state.link else { return false };
        let keeps = may_keep && link.core.owes_reply();
        keeps && !std::mem::replace(&mut link.listed, true)
    }

    /// Whether requests that were just posted wait for others.
    pub(super) fn defers(&self, state: &mut State, (posts, octets): (u32, u64), now: u64) -> bool {
        let may = self.engine.may_keep() && state.takes_sends();
        let Some(link) = state.link.as_mut().filter(|_| may) else { return false };
        self.may_wait(link, &state.queues) && link.deferral.add(posts, octets, now)
    }

    /// Whether an acknowledgement, or at once the next poll, ends the wait of posts.
    fn may_wait(&self, link: &Link, queues: &Queues) -> bool {
        queues.is_under_way() || (link.deferral.follow() && self.engine.is_polled())
    }

    /// The timer that was set for `at` is due.
    pub(crate) fn on_timer(&self, at: u64, now: u64) {
        let mut state = lock(&self.state);
        let established = state.phase == QpState::Rts;
        let Some(link) = state.link.as_mut().filter(|link| link.timer == Some(at)) else { return };
        link.timer = None;
        link.core.handle_timeout(now);
        if established && link.probes && !link.probing && link.heard + PROBE_AFTER_US <= now {
            // A zero-length Write needs no key.
            let op = SendOp::Write { address: 0, rkey: 0, immediate: None };
            let probe = rc::Post { slot: PROBE, op, len: 0, solicited: false };
            link.probing = link.core.post(probe).is_ok();
        }
        self.advance(&mut state, now);
    }

    /// Completes, posts and sends what it can, and ends the connection if it broke.
    pub(super) fn advance(&self, state: &mut State, now: u64) {
        self.work(state, now, false);
        state.publish();
    }

    fn work(&self, state: &mut State, now: u64, may_keep: bool) {
        loop {
            self.take_completions(state);
            let State { link: Some(link), queues, record, .. } = state else { return };
            // Each acknowledgement would send the few posts since the last one.
            let waits = may_keep && link.deferral.any() && self.may_wait(link, queues);
            if !waits {
                link.deferral.end(now);
            }
            if let Some(broken) = link.core.broken() {
                // Tells the peer why.
                self.transmit(link, queues, record, now, false);
                record.publish_end(end_of(broken));
                let why = status::of_end(broken, queues.refused, link.core.failed_post());
                return self.finish(state, Some(why));
            }
            if !waits && let Some(pending) = queues.next_ready() {
                match self.start(link, queues, pending) {
                    Ok(()) => continue,
                    Err(status) => {
                        queues.complete_send(&self.context, pending.slot, status);
                        record.publish_end(end::LOCAL_FAULT);
                        return self.finish(state, Some(status::local_fault()));
                    }
                }
            }
            if self.transmit(link, queues, record, now, may_keep) {
                record.publish_end(end::TOO_LONG);
                return self.finish(state, Some(AsyncEvent::ConnectionLost));
            }
            if link.core.broken().is_none() && !link.core.has_completed() {
                return self.set_timer(link, now);
            }
        }
    }

    pub(super) fn take_completions(&self, state: &mut State) {
        let State { link: Some(link), queues, .. } = state else { return };
        while let Some(done) = link.core.poll_completion() {
            if done.slot == PROBE {
                link.probing = false;
                continue;
            }
            let fault =
                if done.status == rc::Status::LocalProtection { queues.fault } else { None };
            let status = status::of_send(done.status, fault);
            queues.complete_send(&self.context, done.slot, status);
        }
    }

    /// Executes a request, or hands it to the core.
    fn start(
        &self,
        link: &mut Link,
        queues: &mut Queues,
        Pending { slot, post, .. }: Pending,
    ) -> Result<(), WcStatus> {
        let Some(post) = post else {
            queues.execute_local(&self.context, slot).map_err(status::of_local)?;
            queues.complete_send(&self.context, slot, WcStatus::Success);
            return Ok(());
        };
        link.core.post(post).map_err(|error| match error {
            PostError::NoReads => WcStatus::ZeroReadResources,
            PostError::Length => WcStatus::InvalidLength,
            _ => WcStatus::InvalidWqe,
        })
    }

    /// Sets a timer, unless one is set that fires early enough.
    fn set_timer(&self, link: &mut Link, now: u64) {
        let waits = link.probes && !link.probing;
        let probe = waits.then_some(link.heard + PROBE_AFTER_US);
        let Some(at) = [link.core.deadline(), probe].into_iter().flatten().min() else { return };
        if link.timer.is_none_or(|timer| at < timer) {
            let at = at.max(now);
            link.timer = Some(at);
            self.engine.set_timer(at, link.number);
        }
    }
}
