//! The end that connects: it tries the ways of the session in their order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use itapi::{ConnEvent, ConnectParams, Disconnect, FailReason};

use super::{Away, Step};
use crate::error::{End, Refusal};
use crate::resume::{Attempt, Role, Way};
use crate::tuning::{ATTEMPT, FIRST_PAUSE, LONGEST_PAUSE};
use crate::wire::{Offer, Purpose};

/// What an attempt came to.
enum Outcome {
    /// The session goes on.
    Connected,
    /// The next may be better.
    Failed,
    /// The peer is not there any more.
    Gone,
}

impl Away {
    pub(super) fn connect(&self) -> Step<()> {
        let ways = self.with(|_, state| match &state.resume.as_ref()?.role {
            Role::Connects { ways, .. } => Some(ways.clone()),
            Role::Accepts(_) => None,
        })?;
        let Some(ways) = ways else { return self.end(false) };
        let until = self.deadline()?;
        let mut pause = FIRST_PAUSE;
        loop {
            let mut gone = 0;
            for (at, way) in ways.iter().enumerate() {
                match self.attempt(at, way, until)? {
                    Outcome::Connected => return Ok(()),
                    Outcome::Failed => {}
                    Outcome::Gone => gone += 1,
                }
                self.clear()?;
            }
            // By none of the ways somebody knows the session.
            let all = gone == ways.len();
            if all || Instant::now() >= until {
                return self.end(all);
            }
            self.until(until.min(Instant::now() + pause), |_, _| None::<()>)?;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn attempt(&self, at: usize, way: &Way, until: Instant) -> Step<Outcome> {
        let left = until.saturating_duration_since(Instant::now()).min(ATTEMPT);
        let left = left.max(Duration::from_millis(1));
        // Not under the lock: opening a device takes a while.
        let ia = match way.ia() {
            Ok(ia) => ia,
            Err(error) => return self.here(error.into()),
        };
        let begun = self.with(|core, state| -> crate::error::Result<_> {
            core.use_adapter(state, &ia)?;
            let offer = core.prepare(state, Purpose::Resume)?;
            if let Some(Role::Connects { way, .. }) = state.resume.as_mut().map(|it| &mut it.role) {
                *way = at;
            }
            Ok((state.link.ep.clone(), offer.to_octets(core.ours).to_vec()))
        })?;
        let (ep, private_data) = match begun {
            Ok(begun) => begun,
            Err(error) => return self.here(error),
        };
        let params = ConnectParams { private_data, timeout: Some(left), ..way.peer.clone() };
        if let Err(error) = ep.start_connect(params) {
            return self.here(error.into());
        }
        let bound = Instant::now() + left + ATTEMPT;
        let failed = self.until(bound, |_, state| {
            match &mut state.resume.as_mut()?.away.as_mut()?.attempt {
                Attempt::Failed(event) => Some(Some(event.clone())),
                // The reply contradicts what was agreed.
                Attempt::None => Some(None),
                Attempt::Begun => None,
            }
        });
        match failed {
            // It is not without a connection any more.
            Err(over) => self.core.upgrade().map(|_| Outcome::Connected).ok_or(over),
            Ok(None) => {
                let _ = ep.start_disconnect(Disconnect::Abrupt);
                Ok(Outcome::Failed)
            }
            Ok(Some(Some(event))) => self.refused(*event),
            Ok(Some(None)) => self.end(true).map(|()| Outcome::Gone),
        }
    }

    /// An error of this end.
    fn here(&self, error: crate::error::Error) -> Step<Outcome> {
        let cause = match error {
            crate::error::Error::Rdma(error) => End::Here(Arc::new(error)),
            _ => End::Refused(Refusal::Contradiction),
        };
        self.failed(cause)?;
        Ok(Outcome::Failed)
    }

    fn refused(&self, event: ConnEvent) -> Step<Outcome> {
        let reason = match &event {
            ConnEvent::Rejected { private_data, .. } => {
                Offer::from_octets(private_data).map(|offer| offer.purpose)
            }
            _ => None,
        };
        let nobody =
            matches!(&event, ConnEvent::Failed(error) if error.reason == FailReason::Refused);
        let refusal = match reason {
            Some(Purpose::Unknown) => Refusal::Unknown,
            Some(Purpose::Ended) => Refusal::Ended,
            Some(Purpose::Busy) => Refusal::Busy,
            Some(Purpose::Finished) => {
                self.with(|core, state| core.all_has_arrived(state))?;
                Refusal::Finished
            }
            _ => {
                self.failed(End::Event(event))?;
                return Ok(if nobody { Outcome::Gone } else { Outcome::Failed });
            }
        };
        self.failed(End::Refused(refusal))?;
        match refusal {
            Refusal::Busy => Ok(Outcome::Failed),
            Refusal::Unknown => Ok(Outcome::Gone),
            _ => self.end(true).map(|()| Outcome::Gone),
        }
    }
}
