//! The loss of a connection of a session that may be resumed: it is noted, and what was under way comes back.
//!
//! Called under the lock of the state, by the thread that notices the loss, then by the session's own ([`crate::away`]).

use std::mem;
use std::sync::Arc;

use itapi::{ConnEvent, Disconnect, RemoteRange, RmrContext, Work};

use super::ChannelEnd;
use crate::away;
use crate::error::{End, Result};
use crate::message::Memory;
use crate::resume::{Attempt, Role};
use crate::session::Session;
use crate::sessions::{self, Knock, Resumable};
use crate::state::{Over, State};
use crate::wire::Purpose;

impl ChannelEnd {
    /// Whether the loss of the connection is not the end.
    pub(super) fn goes_on(&self, state: &State) -> bool {
        let complete = state.is_complete() && state.is_done();
        state.resume.is_some() && state.over.is_none() && (state.is_down || !complete)
    }

    /// The connection is lost; `event`: by its last event.
    pub(super) fn lost(self: &Arc<Self>, state: &mut State, over: Over, event: bool) {
        let Some(resume) = &mut state.resume else { return };
        if !state.is_down {
            let cause = match &over {
                Over::Ended(Some(end)) => (**end).clone(),
                _ => End::Flushed,
            };
            tracing::warn!(
                ends = %Named(state.link.ep.ends()), session = resume.moves, %cause,
                "the connection is lost; the session waits for another"
            );
            resume.leave(cause);
            let moves = resume.moves;
            state.is_down = true;
            state.link.ep.set_note(&resume.note());
            // It may have ended by itself.
            let _ = state.link.ep.start_disconnect(Disconnect::Abrupt);
            if !away::begin(self, moves) {
                (state.is_down, resume.away) = (false, None);
                state.over = Some(over);
            }
        }
        if let Some(away) = state.resume.as_mut().and_then(|resume| resume.away.as_mut()) {
            away.ended |= event;
        }
    }

    /// An event while there is no connection: the last of the former one, or of an attempt.
    pub(super) fn attempted(self: &Arc<Self>, state: &mut State, event: ConnEvent) {
        let Some(resume) = &mut state.resume else { return };
        let Some(away) = &mut resume.away else { return };
        match (&away.attempt, event) {
            (Attempt::Begun, ConnEvent::Established(established)) => {
                self.moved(state, &established);
            }
            (Attempt::Begun, other) => away.attempt = Attempt::Failed(Box::new(other)),
            (_, ConnEvent::Established(_)) => {
                // It was given up concurrently.
                let _ = state.link.ep.start_disconnect(Disconnect::Abrupt);
            }
            (_, other) => {
                resume.ended(other);
                state.publish();
            }
        }
    }

    /// Takes back what the former connection had: messages of the peer that are not whole come again, and messages of ours are
    /// kept. False: the memory of a message is lost.
    pub(crate) fn settle(&self, state: &mut State) -> bool {
        state.early.drain(..).for_each(|buffer| state.receives.put(buffer));
        let whole = state.inbound.iter().position(Option::is_none);
        let cut: Vec<_> = state.inbound.drain(whole.unwrap_or(state.inbound.len())..).collect();
        let (messages, behind) = (cut.len() as u16, self.behind(state));
        for mut message in cut.into_iter().flatten() {
            // Not dropped: that takes the lock.
            let Some(mut envelope) = message.0.take() else { continue };
            if let Memory::Small(buffer) = envelope.take()
                && envelope.line == state.link.line
            {
                state.receives.put(buffer);
            }
            state.emptied(envelope, self.ours.slots);
        }
        if let Some(session) = &mut state.session {
            session.come_again(messages, behind > messages);
        }
        state.sends = Default::default();
        self.large_come_back(state)
    }

    fn behind(&self, state: &mut State) -> u16 {
        state.resume.as_mut().map_or(0, |resume| mem::take(&mut resume.behind))
    }

    /// The memory of large messages: the peer has those that are confirmed.
    fn large_come_back(&self, state: &mut State) -> bool {
        let Some(mut resume) = state.resume.take() else { return false };
        while state.unread.len() > resume.kept.registered()
            && let Some(region) = state.unread.pop_front()
        {
            if let Ok(octets) = region.deregister() {
                self.keep(state, octets);
            }
        }
        let all = resume.kept.came_back(|| state.unread.pop_front()?.deregister().ok());
        state.resume = Some(resume);
        all
    }

    /// The end is dropped: its tokens are worthless.
    pub(super) fn forget(&self, state: &State) {
        if let Some(resume) = &state.resume {
            let finished = state.is_complete().then_some(resume.lasting);
            sessions::leave([Some(resume.token), resume.former], finished);
        }
    }

    /// Asks the peer's device whether the connection lives: a Read of no octet needs no memory, and no call there.
    fn ask(&self, state: &mut State) {
        let nothing = RemoteRange { context: RmrContext(0), addr: 0, len: 0 };
        if let Some(resume) = &mut state.resume {
            resume.heard = false;
        }
        let room = state.sends.used < state.link.depth;
        // The device takes one piece of memory.
        if room
            && let Ok(sink) = state.link.pz.buffer(1)
            && state.link.ep.post(Work::read(nothing, sink)).is_ok()
        {
            state.sends.posted(0, true);
        }
    }

    /// The request that waits until the peer has responded to [`ChannelEnd::ask`].
    pub(crate) fn unanswered(&self, state: &mut State) -> Option<Knock> {
        state.resume.as_mut()?.knock.take()
    }

    /// The peer has shown that the connection lives.
    #[inline]
    pub(super) fn heard(&self, state: &mut State) {
        if let Some(resume) = &mut state.resume {
            resume.heard = true;
        }
    }

    /// The connection is given up for this cause.
    pub(crate) fn give_up_for(self: &Arc<Self>, state: &mut State, cause: End) {
        if self.goes_on(state) {
            self.lost(state, Over::Ended(Some(Box::new(cause))), false);
        }
    }

    /// The session ends, with every cause that was met.
    pub(crate) fn end_away(self: &Arc<Self>, state: &mut State) {
        state.is_down = false;
        let Some(resume) = &mut state.resume else { return };
        let Some(away) = resume.away.take() else { return };
        let all = resume.kept.is_empty();
        let Some(session) = &mut state.session else { return };
        // Nothing is missing here; the peer perhaps does not know that it arrived.
        let complete = all && session.has_all();
        if complete {
            session.all_is_confirmed();
            session.all_is_read();
        }
        tracing::warn!(causes = %away.causes, complete, "the session ends");
        state.over.get_or_insert(Over::Ended(Some(Box::new(End::Unresumed(away.causes)))));
        self.wake_tasks(state);
        self.hub.list(self, state);
    }

    /// Everything had arrived at the peer, which has finished, too.
    pub(crate) fn all_has_arrived(&self, state: &mut State) {
        let Some(resume) = &mut state.resume else { return };
        resume.kept.confirm(usize::MAX, drop);
        if let Some(session) = &mut state.session {
            session.all_is_confirmed();
        }
    }

    /// Posts the receives for another connection and says what this end has; returns the offer.
    pub(crate) fn prepare(
        &self,
        state: &mut State,
        purpose: Purpose,
    ) -> Result<crate::wire::Offer> {
        let held = state.session.as_ref().map_or(0, Session::held);
        let large =
            state.inbound.iter().flatten().filter(|message| message.is_large()).count() as u16;
        self.post_receives(state, u32::from(self.ours.slots - held) + self.reserve)?;
        let mut offer = crate::wire::Offer::only(purpose);
        if let Some(resume) = &mut state.resume {
            offer.token = match resume.role {
                Role::Connects { .. } => resume.token,
                Role::Accepts(_) => sessions::new_token()?,
            };
            (offer.held, offer.held_large) = (held, large);
            offer.arrived = resume.whole;
            offer.lasting = resume.lasting.as_millis().try_into().unwrap_or(u32::MAX);
            if let Some(away) = &mut resume.away {
                (away.attempt, away.told) = (Attempt::Begun, (held, large));
            }
        }
        Ok(offer)
    }
}

impl Resumable for ChannelEnd {
    fn knock(self: Arc<Self>, knock: Knock) -> Option<(Knock, Purpose)> {
        let mut state = self.state();
        if state.is_complete() {
            return Some((knock, Purpose::Finished));
        }
        let over = state.over.is_some();
        let down = state.is_down;
        let Some(resume) = &mut state.resume else { return Some((knock, Purpose::Unknown)) };
        if over || !matches!(resume.role, Role::Accepts(_)) {
            return Some((knock, Purpose::Ended));
        }
        let waits = match &resume.away {
            Some(away) => away.knock.is_some() || resume.is_starting(),
            None => resume.knock.is_some(),
        };
        if waits {
            return Some((knock, Purpose::Busy));
        }
        match &mut resume.away {
            Some(away) => away.knock = Some(knock),
            None if down => return Some((knock, Purpose::Busy)),
            None => {
                resume.knock = Some(knock);
                let moves = resume.moves;
                self.ask(&mut state);
                if !away::doubt(&self, moves)
                    && let Some(knock) = self.unanswered(&mut state)
                {
                    return Some((knock, Purpose::Busy));
                }
            }
        }
        drop(state);
        self.hub.changed();
        None
    }
}

/// Both ends, if they are known.
struct Named(Option<itapi::Ends>);

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(ends) => write!(f, "{ends}"),
            None => f.write_str("not connected"),
        }
    }
}
