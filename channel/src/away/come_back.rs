//! The return to a preferred way: while a session is connected by another, the ways before it are tried now and then. A request
//! that only asks shows whether the way leads to a listener; then the connection is given up, and the ways are tried in order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use itapi::{ConnEvent, ConnectParams};

use super::Away;
use crate::error::End;
use crate::resume::{Role, Way};
use crate::tuning::ATTEMPT;
use crate::wire::{Greeting, Offer, Purpose};

impl Away {
    pub(super) fn come_back(&self) {
        let Some((ways, present, pause, ours)) = self.preferred() else { return };
        loop {
            if !self.pause(pause) {
                return;
            }
            if ways.iter().take(present).any(|way| leads_there(way, ours)) {
                break;
            }
        }
        if let Some(core) = self.core.upgrade() {
            let mut state = core.state();
            if state.resume.as_ref().is_some_and(|resume| resume.moves == self.moves) {
                core.give_up_for(&mut state, End::Returns);
            }
        }
        self.hub.changed();
    }

    /// The ways and the present one, how often those before it are tried, and the greeting.
    fn preferred(&self) -> Option<(Arc<[Way]>, usize, Duration, Greeting)> {
        let core = self.core.upgrade()?;
        let state = core.state();
        match &state.resume.as_ref()?.role {
            Role::Connects { ways, way, returns } => {
                Some((ways.clone(), *way, (*returns)?, core.ours))
            }
            Role::Accepts(_) => None,
        }
    }

    /// Waits; false: the session is over, or has another connection.
    fn pause(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        loop {
            let seen = self.hub.round();
            let Some(core) = self.core.upgrade() else { return false };
            let state = core.state();
            let same = state.resume.as_ref().is_some_and(|resume| resume.moves == self.moves);
            if !same || state.is_down || state.over.is_some() {
                return false;
            }
            drop(state);
            drop(core);
            if Instant::now() >= until {
                return true;
            }
            // It returns at the latest after a second.
            let _ = self.hub.follow(seen, Some(until));
        }
    }
}

/// Whether a way leads to a listener for sessions.
fn leads_there(way: &Way, ours: Greeting) -> bool {
    let private_data = Offer::only(Purpose::Try).to_octets(ours).to_vec();
    let asked = || {
        let ia = way.ia()?;
        let (pz, evd) = (ia.pz()?, ia.evd(8)?);
        let params = ConnectParams { private_data, timeout: Some(ATTEMPT), ..way.peer.clone() };
        pz.ep(&evd).build()?.connect_with(params)
    };
    let Err(itapi::Error::Connection(event)) = asked() else { return false };
    let ConnEvent::Rejected { private_data, .. } = *event else { return false };
    Offer::from_octets(&private_data).is_some_and(|offer| offer.purpose == Purpose::Busy)
}
