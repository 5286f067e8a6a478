//! The end of connections in the table: disconnects, cancelled attempts, and ends that the provider
//! reports.
//!
//! A connection ends with exactly one event. Every orderly disconnect has a timer here behind the
//! provider's own, so that it ends whatever happens.

use std::sync::{Arc, Weak};
use std::time::Instant;

use kal_shim::clock::after;
use vp_api::{AsyncEvent, EventSource, QpChange, QpId};

use super::{ConnectionTable, Entry};
use crate::connection::{ConnState, Connectee, end_stream, id_of, open};
use crate::deliveries::Delivery;
use crate::half_open::Source;
use crate::invalid_stag_ends::is_guess;
use crate::node::Ends;
use crate::tuning::END_MARGIN;
use crate::types::{BrokenCause, ConnEvent, Disconnect, FailReason, Lost};

impl ConnectionTable {
    pub(super) fn on_disconnecting(
        &mut self,
        party: &Weak<dyn Connectee>,
        stream: u64,
        how: Disconnect,
    ) {
        let Some(open) = open(party) else { return };
        let (live, close_timeout) = {
            let link = open.connection().link();
            (link.live && link.stream == stream, link.close_timeout)
        };
        match how {
            _ if !live => {}
            Disconnect::Abrupt => self.finish_disconnected(&open, false),
            Disconnect::Graceful | Disconnect::Drained => {
                // If it was requested before the queue pair was in RTS, there was nothing to close;
                // otherwise it is closing already and this is refused.
                if self.native.is_none() {
                    let change = match how {
                        Disconnect::Drained => QpChange::Drain,
                        _ => QpChange::Closing,
                    };
                    let _ = open.qp().modify(change);
                }
                let token = self.new_token();
                self.by_qp.insert(id_of(&*open), token);
                self.reactor.set_timer(
                    token,
                    after(close_timeout.saturating_mul(2).saturating_add(END_MARGIN)),
                );
                self.entries.insert(token, Entry::Ending(party.clone()));
            }
        }
    }

    pub(super) fn expire_ending(&mut self, party: &Weak<dyn Connectee>) {
        let Some(party) = open(party) else { return };
        // Whether refused or not, the connection is over for the application.
        let _ = party.qp().modify(QpChange::Error);
        self.finish_disconnected(&party, false);
    }

    /// Cancels an attempt of an endpoint, unless that is over and another has begun.
    pub(super) fn on_cancel(&mut self, qp: QpId, stream: u64) {
        let Some(party) = self.face.connectee(qp, u64::MAX) else { return };
        if party.connection().link().stream != stream {
            return;
        }
        let entry = self.by_qp.get(&qp).and_then(|token| {
            let token = *token;
            Some((token, self.entries.remove(&token)?))
        });
        match entry {
            Some((token, Entry::Active(active))) => self.cancel_active(token, *active),
            Some((token, Entry::Converted(converted))) => {
                self.fail_converted(token, *converted, FailReason::Cancelled);
            }
            Some((token, Entry::Meeting(meeting))) => self.cancel_meeting(token, *meeting),
            Some((_, Entry::Native(pending))) => self.cancel_native(*pending),
            Some((token, other)) => {
                self.entries.insert(token, other);
            }
            None => {
                // The connection was established concurrently.
                if party.connection().state() == ConnState::Connected
                    && let Ok(Some(_)) =
                        end_stream(&*party, self.native.as_deref(), Disconnect::Abrupt)
                {
                    self.finish_disconnected(&party, false);
                }
            }
        }
    }

    pub(super) fn on_async(&mut self, number: u64, source: EventSource, event: AsyncEvent) {
        let cause = BrokenCause::of(event);
        if let EventSource::Qp(qp) = source
            && (cause.is_some() || event == AsyncEvent::CloseComplete)
            && let Some(party) = self.face.connectee(qp, number)
        {
            if !is_present(&*party, number) {
                return;
            }
            self.on_end(&party, cause);
            if cause.is_none() {
                return;
            }
        }
        self.push(Delivery::Async { number, source, event });
    }

    /// The endpoint, if the event with this number is about its present stream, or the one that begins
    /// next.
    pub(super) fn of_present_stream(&self, qp: QpId, number: u64) -> Option<Arc<dyn Connectee>> {
        self.face.connectee(qp, number).filter(|party| is_present(&**party, number))
    }

    /// The connection ended: in order (no cause), or not.
    pub(super) fn on_end(&mut self, party: &Arc<dyn Connectee>, cause: Option<BrokenCause>) {
        let (live, closing) = {
            let link = party.connection().link();
            (link.live, link.closing)
        };
        use BrokenCause::{ClosedInWork, Lost, Reset};
        match cause {
            _ if !live => {}
            None => self.finish_disconnected(party, !closing),
            // This end requested the end.
            Some(Reset | Lost | ClosedInWork) if closing => self.finish_disconnected(party, false),
            Some(cause) => self.finish_broken(party, cause),
        }
    }

    fn finish_disconnected(&mut self, party: &Arc<dyn Connectee>, by_peer: bool) {
        let Some(ends) = self.finish(party) else { return };
        let lost = lost(&**party);
        // The peer's end seemed orderly, but requests that were posted at this moment are flushed.
        if by_peer && lost.sends != 0 {
            return self.queue_broken(party, ends, BrokenCause::ClosedInWork, lost);
        }
        self.counters.disconnected.add();
        self.queue_event(party, ConnEvent::Disconnected { ends, by_peer });
    }

    fn finish_broken(&mut self, party: &Arc<dyn Connectee>, cause: BrokenCause) {
        if let BrokenCause::Terminated(terminate) = cause
            && is_guess(terminate)
            && let Some(ends) = &party.connection().link().ends
        {
            self.invalid_stag_ends.count(Source::of(ends.remote.address.ip()), Instant::now());
        }
        let lost = lost(&**party);
        if let Some(ends) = self.finish(party) {
            self.queue_broken(party, ends, cause, lost);
        }
    }

    fn queue_broken(&self, party: &Arc<dyn Connectee>, ends: Ends, cause: BrokenCause, lost: Lost) {
        let event = ConnEvent::Broken { ends, cause, lost };
        self.counters.broken.add();
        self.queue_event(party, event);
    }

    /// Makes the endpoint nonoperational; `None` if it was so already.
    fn finish(&mut self, party: &Arc<dyn Connectee>) -> Option<Ends> {
        self.drop_of(id_of(&**party));
        let mut link = party.connection().link();
        if !std::mem::take(&mut link.live) {
            return None;
        }
        (link.permit, link.admission) = (None, None);
        // First: posts made while it seems connected still count as lost.
        party.connection().set_state(ConnState::Nonoperational);
        // After an orderly end the queue pair is Idle, where it would keep posts without end; in Error it
        // flushes them at once (IT-API: posts in Nonoperational complete as flushed).
        let _ = party.qp().modify(QpChange::Error);
        link.ends.clone()
    }
}

/// Whether the event with this number is about the present stream of an endpoint, or the one that begins
/// next.
fn is_present(party: &dyn Connectee, number: u64) -> bool {
    party.connection().link().stream < number
}

/// What the connection lost: requests, and the octets before.
fn lost(party: &dyn Connectee) -> Lost {
    party.qp().query().map_or_else(
        |_| Lost::default(),
        |qp| Lost {
            sends: qp.sends_lost + qp.sends_outstanding,
            recvs: qp.recvs_lost + qp.recvs_outstanding,
            octets_sent: qp.counters.octets_sent,
            octets_received: qp.counters.octets_received,
        },
    )
}
