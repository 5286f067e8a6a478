//! The end of connections, and other asynchronous news of the provider.
//!
//! Behind the desk's lock. One connection ends with exactly one event. Every graceful
//! disconnect has a timer here behind the provider's own, so that it ends whatever happens.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use kal_shim::clock::after;
use vp_api::{AsyncEvent, CqId, EventSource, QpChange, QpId};

use super::adopt::tell;
use super::crowd::Source;
use super::offenders::is_guess;
use super::table::{Entry, Table, open};
use super::{BrokenCause, ConnEvent, Disconnect, FailReason, Lost};
use crate::event::{AsyncSource, Event};
use crate::node::Ends;
use crate::resource::{Ep, EpState};

/// How much longer than the provider's time-out a disconnect may take.
const GRACE: Duration = Duration::from_secs(1);

/// A graceful disconnect under way.
pub(super) struct Ending {
    ep: Weak<Ep>,
}

impl Table {
    pub(super) fn on_disconnecting(&mut self, ep: &Weak<Ep>, stream: u64, how: Disconnect) {
        let Some(open) = open(ep) else { return };
        let (live, close_timeout) = {
            let link = open.link();
            (link.live && link.stream == stream, link.close_timeout)
        };
        match how {
            _ if !live => {}
            Disconnect::Abrupt => self.finish_disconnected(&open, false),
            Disconnect::Graceful => {
                // Asked for before the queue pair was in RTS, it had nothing to close; otherwise
                // it closes already and this is refused.
                if self.native.is_none() {
                    let _ = open.qp().modify(QpChange::Closing);
                }
                let token = self.new_token();
                self.by_qp.insert(open.id(), token);
                self.reactor
                    .set_timer(token, after(close_timeout.saturating_mul(2).saturating_add(GRACE)));
                self.entries.insert(token, Entry::Ending(Ending { ep: ep.clone() }));
            }
        }
    }

    pub(super) fn expire_ending(&mut self, ending: Ending) {
        let Some(ep) = open(&ending.ep) else { return };
        // Whatever it answers: the connection is over for the application.
        let _ = ep.qp().modify(QpChange::Error);
        self.finish_disconnected(&ep, false);
    }

    /// Gives up what an endpoint has begun, unless that is over and it has begun anew.
    pub(super) fn on_cancel(&mut self, qp: QpId, stream: u64) {
        let Some(ep) = self.directory.ep(qp).filter(|ep| ep.link().stream == stream) else {
            return;
        };
        let entry = self.by_qp.get(&qp).and_then(|token| {
            let token = *token;
            Some((token, self.entries.remove(&token)?))
        });
        match entry {
            Some((token, Entry::Active(active))) => self.cancel_active(token, *active),
            Some((token, Entry::Late(late))) => {
                self.fail_late(token, *late, FailReason::Cancelled);
            }
            Some((_, Entry::Native(pending))) => self.cancel_native(*pending),
            Some((token, other)) => {
                self.entries.insert(token, other);
            }
            None => {
                // The connection came about in this moment.
                if ep.state() == EpState::Connected {
                    // Closed in this moment is fine too.
                    let _ = ep.disconnect(Disconnect::Abrupt);
                }
            }
        }
    }

    pub(super) fn on_async(&mut self, told: u64, source: EventSource, event: AsyncEvent) {
        match source {
            EventSource::Qp(qp) => self.on_qp_event(qp, told, event),
            EventSource::Cq(cq) => self.on_cq_event(cq, told, event),
            EventSource::Srq(srq) => {
                if let Some(object) = self.directory.srq_of(srq, told) {
                    self.affiliated(AsyncSource::Srq(srq), event, || object.is_open());
                }
            }
            EventSource::Rnic => self.unaffiliated(None, event),
            EventSource::Port(port) => self.unaffiliated(Some(port), event),
        }
    }

    fn on_cq_event(&self, cq: CqId, told: u64, event: AsyncEvent) {
        let Some(evd) = self.directory.evd_of(cq, told) else { return };
        if event != AsyncEvent::CqOverrun || evd.overran() {
            self.affiliated(AsyncSource::Evd(cq), event, || evd.is_open());
        }
    }

    fn on_qp_event(&mut self, qp: QpId, told: u64, event: AsyncEvent) {
        let source = AsyncSource::Ep(qp);
        if let Some(ep) = self.directory.ud_ep_of(qp, told) {
            return self.affiliated(source, event, || ep.is_open());
        }
        let Some(ep) = self.directory.ep_of(qp, told) else { return };
        let cause = BrokenCause::of(event);
        if cause.is_none() && event != AsyncEvent::CloseComplete {
            return self.affiliated(source, event, || ep.is_open());
        }
        let Some(ep) = self.of_present_stream(qp, told) else { return };
        self.on_end(&ep, cause);
        let event = match event {
            // The Terminate is what the peer is told of it.
            AsyncEvent::TerminateSent(_) if ep.has_overrun() => AsyncEvent::CqOverrun,
            event => event,
        };
        if cause.is_some() {
            self.affiliated(source, event, || ep.is_open());
        }
    }

    /// The endpoint, if the event of number `told` is about its present stream, or the one to come.
    pub(super) fn of_present_stream(&self, qp: QpId, told: u64) -> Option<Arc<Ep>> {
        self.directory.ep(qp).filter(|ep| ep.link().stream < told)
    }

    /// The connection ended: in order (no cause), or not.
    pub(super) fn on_end(&mut self, ep: &Arc<Ep>, cause: Option<BrokenCause>) {
        let (live, closing) = {
            let link = ep.link();
            (link.live, link.closing)
        };
        use BrokenCause::{ClosedInWork, Lost, Reset};
        match cause {
            _ if !live => {}
            None => self.finish_disconnected(ep, !closing),
            // This end wanted it to end, and it did.
            Some(Reset | Lost | ClosedInWork) if closing => self.finish_disconnected(ep, false),
            Some(cause) => self.finish_broken(ep, cause),
        }
    }

    fn finish_disconnected(&mut self, ep: &Arc<Ep>, by_peer: bool) {
        let Some(ends) = self.finish(ep) else { return };
        let lost = lost(ep);
        // The peer's end seemed orderly, but requests that were posted in this moment are flushed.
        if by_peer && lost.sends != 0 {
            return self.tell_broken(ep, ends, BrokenCause::ClosedInWork, lost);
        }
        self.counters.disconnected.add();
        tell(ep, ConnEvent::Disconnected { ends, by_peer });
    }

    fn finish_broken(&mut self, ep: &Arc<Ep>, cause: BrokenCause) {
        if let BrokenCause::Terminated(terminate) = cause
            && is_guess(terminate)
            && let Some(ends) = &ep.link().ends
        {
            self.offenders.note(Source::of(ends.remote.address.ip()), Instant::now());
        }
        let lost = lost(ep);
        if let Some(ends) = self.finish(ep) {
            self.tell_broken(ep, ends, cause, lost);
        }
    }

    fn tell_broken(&self, ep: &Arc<Ep>, ends: Ends, cause: BrokenCause, lost: Lost) {
        let event = ConnEvent::Broken { ends, cause, lost };
        self.counters.broken.add();
        tell(ep, event);
    }

    /// Makes the endpoint nonoperational; `None` if it was already.
    fn finish(&mut self, ep: &Arc<Ep>) -> Option<Ends> {
        self.drop_of(ep.id());
        let mut link = ep.link();
        if !std::mem::take(&mut link.live) {
            return None;
        }
        // First: what is posted while it seems connected still counts as lost.
        ep.set_state(EpState::Nonoperational);
        // After an orderly end the queue pair is Idle, where it would keep what is posted for ever;
        // in Error it flushes that at once (IT-API: posts in Nonoperational complete as flushed).
        let _ = ep.qp().modify(QpChange::Error);
        link.ends.clone()
    }

    /// Tells of an object, if it `exists`.
    fn affiliated(&self, source: AsyncSource, event: AsyncEvent, exists: impl FnOnce() -> bool) {
        match self.directory.affiliated() {
            Some(evd) => evd.push_affiliated(source, event, exists),
            // Its connection event says it already.
            None if matches!(source, AsyncSource::Ep(_)) => {
                tracing::debug!("{source:?}: {event}")
            }
            None => tracing::warn!("{source:?}: {event}"),
        }
    }

    pub(super) fn unaffiliated(&self, port: Option<u32>, event: AsyncEvent) {
        match self.directory.unaffiliated() {
            Some(evd) => evd.push_lossy(Event::Unaffiliated { port, event }),
            // The log has it already, with the listener and the cause.
            None if matches!(event, AsyncEvent::ListenShortage { .. }) => {}
            None => match port {
                Some(port) => tracing::warn!("port {port}: {event}"),
                None => tracing::warn!("{event}"),
            },
        }
    }
}

/// What the connection lost: requests, and what had passed.
fn lost(ep: &Ep) -> Lost {
    ep.qp().query().map_or_else(
        |_| Lost::default(),
        |qp| Lost {
            sends: qp.sends_lost + qp.sends_outstanding,
            recvs: qp.recvs_lost + qp.recvs_outstanding,
            octets_sent: qp.counters.octets_sent,
            octets_received: qp.counters.octets_received,
        },
    )
}
