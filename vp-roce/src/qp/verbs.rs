//! The verbs of a RoCE queue pair: posts, changes of its state, and what it reports. No state of its own.

use std::sync::Arc;
use std::time::Duration;

use kal_os::lock;
use vp_api::{
    AsyncEvent, PostFailure, Qp, QpChange, QpId, QpInfo, QpState, RecvWr, RoundTrip, SendWr,
    SlotRef, VpError, VpResult, VpStatus,
};

use super::{GONE, RoceQp, each};
use crate::engine::Served;

impl Qp for RoceQp {
    fn id(&self) -> QpId {
        self.context.id
    }

    fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        let mut state = lock(&self.state);
        if state.destroyed {
            return Err(GONE);
        }
        if state.phase == QpState::Idle && !state.takes_sends() {
            return Err(PostFailure { posted: 0, status: VpStatus::InvalidState });
        }
        let mut added = (0, 0);
        let posted = each(wrs, |wr| {
            let len = self.post_one(&mut state, wr)?;
            added = (added.0 + 1, added.1 + len);
            Ok(())
        });
        let now = self.engine.now();
        if let Some(link) = &mut state.link {
            link.habit.posted(now);
        }
        if self.defers(&mut state, added, now) {
            let is_new =
                state.link.as_mut().is_some_and(|link| !std::mem::replace(&mut link.listed, true));
            drop(state);
            if is_new && let Some(me) = self.me.upgrade() {
                self.engine.keep(&(me as Arc<dyn Served>));
            }
            return posted;
        }
        self.advance(&mut state, now);
        let settles = !state.queues.deferred.is_empty();
        drop(state);
        if settles {
            self.settle();
        }
        posted
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        if self.context.srq.is_some() {
            return Err(PostFailure { posted: 0, status: VpStatus::InvalidWr });
        }
        let mut state = lock(&self.state);
        if state.destroyed {
            return Err(GONE);
        }
        let posted = each(wrs, |wr| self.post_one_receive(&mut state, wr));
        state.publish_receives();
        let settles = !state.queues.deferred.is_empty();
        drop(state);
        if settles {
            self.settle();
        }
        posted
    }

    fn modify(&self, change: QpChange) -> VpResult<()> {
        let phase = self.alive()?.phase;
        let wrong = |needed: &str| {
            let detail = format!("the queue pair is {phase:?}; {needed} is needed");
            Err(VpError::new(VpStatus::InvalidState, detail))
        };
        match change {
            QpChange::Rts(_) => {
                let detail = "this device makes its connections itself and takes no sockets";
                Err(VpError::new(VpStatus::Unsupported, detail))
            }
            QpChange::Closing | QpChange::Terminate if phase != QpState::Rts => wrong("Rts"),
            QpChange::Closing | QpChange::Terminate | QpChange::Error => {
                self.end();
                Ok(())
            }
            QpChange::Idle if phase == QpState::Idle => Ok(()),
            QpChange::Idle if phase == QpState::Error => self.renew(),
            QpChange::Idle => wrong("Error"),
            QpChange::Discard => self.discard(),
            QpChange::Allow(rights) => {
                self.alive()?.queues.peer.allow = rights;
                Ok(())
            }
            QpChange::Limits { ord, ird, send_depth: None, recv_depth: None, recv_limit: None }
                if phase == QpState::Idle =>
            {
                let mut state = self.alive()?;
                let fits = |wanted: Option<u16>, most| wanted.is_none_or(|wanted| wanted <= most);
                if !fits(ord, self.init.ord) || !fits(ird, self.init.ird) {
                    let (ird, ord) = (self.init.ird, self.init.ord);
                    let detail = format!("this queue pair was created for IRD {ird}, ORD {ord}");
                    return Err(VpError::new(VpStatus::InvalidIrdOrd, detail));
                }
                state.ord = ord.unwrap_or(state.ord);
                state.ird = ird.unwrap_or(state.ird);
                state.publish_limits();
                Ok(())
            }
            QpChange::Limits { .. } => {
                let detail = "of this device's queue pairs only IRD and ORD change, and in Idle";
                Err(VpError::new(VpStatus::CannotChange, detail))
            }
            _ => {
                let detail = "this device has no such change of a queue pair";
                Err(VpError::new(VpStatus::Unsupported, detail))
            }
        }
    }

    fn publish(&self, record: SlotRef) {
        let mut state = lock(&self.state);
        let record = Some(record).filter(|_| !state.destroyed);
        state.publish_to(&self.context, &self.init, record);
    }

    fn query(&self) -> VpResult<QpInfo> {
        let state = self.alive()?;
        let mut info = QpInfo::new(self.context.id);
        info.state = state.phase;
        (info.send_depth, info.recv_depth) = (self.init.send_depth, self.init.recv_depth);
        info.sends_outstanding = state.queues.outstanding;
        info.recvs_outstanding = state.queues.receives.posted() + u32::from(state.queues.receiving);
        (info.sends_lost, info.recvs_lost) = (state.queues.sends_lost, state.queues.receives_lost);
        (info.ird, info.ord) = (state.ird, state.ord);
        info.ended = state.ended;
        info.terminate = match state.ended {
            Some(AsyncEvent::TerminateSent(why) | AsyncEvent::TerminateReceived(why)) => Some(why),
            _ => None,
        };
        (info.local, info.remote) = (state.local, state.remote);
        let round_trip = state.link.as_ref().and_then(|link| link.core.round_trip());
        info.round_trip = round_trip.map(|of| RoundTrip {
            recent: Duration::from_micros(of.recent),
            shortest: Duration::from_micros(of.shortest),
        });
        Ok(info)
    }
}
