//! A session begins, or goes on with another connection. Called under the lock of the state, by the thread that hears of the
//! connection; nothing waits.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use itapi::{Disconnect, Established, Ia, Work};

use super::ChannelEnd;
use crate::away;
use crate::error::{End, Error, Refusal, Result};
use crate::kept::Item;
use crate::resume::{Attempt, Resume, Role, Wish};
use crate::session::{Carried, Session};
use crate::sessions::{self, Resumable};
use crate::state::{Receives, State, capacity};
use crate::wire::{Greeting, HEADER, Kind, Offer, Purpose};

impl ChannelEnd {
    /// The peer has accepted the first connection: it may have agreed that the session can be resumed.
    pub(super) fn agreed(self: &Arc<Self>, state: &mut State, reply: &[u8]) {
        let Some(wish) = state.wish.take() else { return };
        match Offer::from_octets(reply) {
            Some(offer) if offer.purpose == Purpose::New => {
                let lasting = wish.lasting.min(Duration::from_millis(offer.lasting.into()));
                let Wish { ways, way, returns, .. } = wish;
                let role = Role::Connects { ways, way, returns };
                state.resume = Some(Resume::new(role, lasting, offer.token));
                state.publish();
                self.may_return(state);
                state.session = state.session.take().map(Session::confirming);
            }
            _ => tracing::warn!(
                "the peer does not resume sessions: the loss of this connection will be an error"
            ),
        }
    }

    /// This end has accepted the first connection, of a peer that can resume the session.
    pub(crate) fn agree(
        self: &Arc<Self>,
        role: Role,
        lasting: Duration,
        asked: &Offer,
    ) -> Result<Offer> {
        let lasting = lasting.min(Duration::from_millis(asked.lasting.into()));
        let token = sessions::new_token()?;
        let mut state = self.state();
        state.resume = Some(Resume::new(role, lasting, token));
        state.session = state.session.take().map(Session::confirming);
        state.publish();
        self.repost(&mut state)?;
        let session: Arc<dyn Resumable> = self.clone();
        sessions::enter(token, Arc::downgrade(&session));
        let lasting = lasting.as_millis().try_into().unwrap_or(u32::MAX);
        Ok(Offer { token, lasting, ..Offer::only(Purpose::New) })
    }

    /// Lets the session return to a preferred way, if it is to.
    fn may_return(self: &Arc<Self>, state: &State) {
        let Some(resume) = &state.resume else { return };
        if let Role::Connects { way: 1.., returns: Some(_), .. } = resume.role
            && !away::come_back(self, resume.moves)
        {
            tracing::warn!(
                "there is no thread to try the preferred ways: the session stays on this one"
            );
        }
    }

    /// Another connection of the session is there.
    pub(super) fn moved(self: &Arc<Self>, state: &mut State, established: &Established) {
        if self.take_over(state, &established.private_data).is_none() {
            if let Some(away) = state.resume.as_mut().and_then(|resume| resume.away.as_mut()) {
                away.causes.add(End::Refused(Refusal::Contradiction));
                away.attempt = Attempt::None;
                away.causes.gave_up();
            }
            let _ = state.link.ep.start_disconnect(Disconnect::Abrupt);
            return;
        }
        state.publish();
        self.is_local(state, established);
        self.may_return(state);
        self.catch_up(state);
        let again = self.send_again(state);
        let done = again.and_then(|()| self.acknowledge(state)).and_then(|()| self.tell(state));
        self.end_on_error(state, done);
    }

    /// Goes on where both ends were; `None`: the peer's numbers contradict what was agreed.
    fn take_over(&self, state: &mut State, reply: &[u8]) -> Option<()> {
        let session = state.session.as_ref()?;
        let resume = state.resume.as_mut()?;
        let away = resume.away.as_mut()?;
        // The accepting end has read it in the request.
        let offer = match away.offer.take() {
            Some(offer) => offer,
            None if Greeting::from_octets(reply) == Ok(*session.peer()) => {
                Offer::from_octets(reply)?
            }
            None => return None,
        };
        let news = offer.arrived.wrapping_sub(resume.confirmed);
        let fits = offer.held <= session.peer().slots
            && offer.held_large <= offer.held.min(session.most_large())
            && news as usize <= resume.kept.sent()
            && offer.purpose == Purpose::Resume;
        if !fits {
            return None;
        }
        let (held, held_large) = away.told;
        let large = state.inbound.iter().flatten().filter(|message| message.is_large()).count();
        let carried = Carried {
            held,
            held_large,
            held_now: session.held(),
            held_large_now: large as u16,
            peer_held: offer.held,
            peer_held_large: offer.held_large,
            ended: session.has_ended(),
            peer_ended: session.peer_has_ended(),
        };
        if matches!(resume.role, Role::Connects { .. }) {
            resume.token = offer.token;
        }
        resume.away = None;
        resume.ghosts = offer.held_large;
        resume.moves += 1;
        resume.told = false;
        state.session = Some(Session::new(self.ours, *session.peer()).resumed(carried));
        (state.is_down, state.up, state.refuses) = (false, true, None);
        self.are_confirmed(state, news);
        if let Some(resume) = &mut state.resume {
            resume.kept.begin_again();
            tracing::info!(
                ends = ?state.link.ep.ends(), moves = resume.moves, again = resume.kept.len(),
                "the session goes on"
            );
        }
        Some(())
    }

    /// The peer has confirmed messages.
    #[inline]
    pub(super) fn confirmed(&self, state: &mut State) {
        let Some(session) = &mut state.session else { return };
        let news = session.news();
        if let Some(resume) = &mut state.resume {
            resume.heard = true;
            // It knows the next one: it uses the connection.
            if let Some(former) = resume.former.take() {
                sessions::forget(former);
            }
            self.are_confirmed(state, news.into());
        }
    }

    /// The end that accepted tells the other that both have everything.
    #[inline]
    pub(super) fn tell(&self, state: &mut State) -> Result<()> {
        let due = |resume: &Resume| !resume.told && matches!(resume.role, Role::Accepts(_));
        if !state.resume.as_deref().is_some_and(due)
            || !state.is_complete()
            || state.is_down
            || state.over.is_some()
        {
            return Ok(());
        }
        let told = self.counts(state, Kind::Done)?;
        if let Some(resume) = &mut state.resume {
            resume.told = told;
        }
        Ok(())
    }

    fn are_confirmed(&self, state: &mut State, news: u32) {
        if news == 0 {
            return;
        }
        let Some(mut resume) = state.resume.take() else { return };
        resume.confirmed = resume.confirmed.wrapping_add(news);
        resume.kept.confirm(news as usize, |item| match item {
            Item::Whole(buffer) => state.undraft(buffer),
            Item::Large(octets, _) => self.keep(state, octets),
            _ => {}
        });
        state.resume = Some(resume);
    }

    /// Sends messages again that the peer does not have, as far as there is room now.
    pub(super) fn send_again(&self, state: &mut State) -> Result<()> {
        while !state.is_down && state.over.is_none() && state.is_paused() {
            let room = state.sends.used + self.reserve < state.link.depth;
            if !room || !self.one_again(state)? {
                break;
            }
            if let Some(resume) = &mut state.resume {
                resume.kept.was_sent_again();
            }
        }
        Ok(())
    }

    /// Sends the next one again; false: not now.
    fn one_again(&self, state: &mut State) -> Result<bool> {
        let (Some(session), Some(resume)) = (&state.session, &mut state.resume) else {
            return Ok(false);
        };
        let (small, large) = (session.may_send(false), session.may_send(true));
        let Some(item) = resume.kept.next_again() else { return Ok(false) };
        match item {
            Item::End => {
                let header = self.header(state, Kind::End)?;
                self.post(state, Work::send(&header), 0, true)?;
            }
            Item::Large(octets, len) if large => {
                let (octets, len) = (mem::take(octets), *len);
                *item = Item::Registered(len);
                if let Some(octets) = self.read_by_peer(state, octets, len)? {
                    let resume = state.resume.as_mut();
                    if let Some(item) = resume.and_then(|resume| resume.kept.next_again()) {
                        *item = Item::Large(octets, len);
                    }
                    return Ok(false);
                }
            }
            Item::Copied(len) if small => {
                let len = *len;
                return self.copy_again(state, len);
            }
            Item::Whole(_) if small => {
                if let Item::Whole(buffer) = mem::replace(item, Item::Posted) {
                    self.post_buffer(state, buffer)?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The next one of `len` octets, which was copied.
    fn copy_again(&self, state: &mut State, len: usize) -> Result<bool> {
        if len <= state.link.inline {
            let header = self.header(state, Kind::Small)?;
            let Some(resume) = &mut state.resume else { return Ok(false) };
            let octets = resume.kept.copied_again(len);
            octets[..HEADER].copy_from_slice(&header);
            state.link.post(&mut state.sends, Work::send(&*octets), 0, false)?;
            return Ok(true);
        }
        let Some(mut buffer) = self.idle(state, len - HEADER)? else { return Ok(false) };
        buffer.resize(len)?;
        if let Some(resume) = &mut state.resume {
            buffer.copy_from_slice(resume.kept.copied_again(len));
            resume.kept.post_again();
        }
        self.post_buffer(state, buffer)?;
        Ok(true)
    }

    /// Lets the session use another adapter. Its former connection has ended.
    pub(crate) fn use_adapter(self: &Arc<Self>, state: &mut State, ia: &Ia) -> Result<()> {
        if state.link.is_on(ia) {
            return Ok(());
        }
        let receives = u32::from(self.ours.slots) + self.reserve;
        let link = self.hub.link(ia, state.link.line + 1, receives)?;
        let small = capacity(self.ours.small as usize);
        let free = match link.pz.buffers(receives as usize, small) {
            Ok(free) => free,
            Err(error) => {
                self.hub.no_room_for(link.adapter, link.completions);
                return Err(error.into());
            }
        };
        if let Some(resume) = &mut state.resume {
            resume.kept.leave_buffers();
        }
        state.receives = Receives::new(small, free);
        state.allot(small, self.ours.slots);
        state.sinks.clear();
        self.hub.remove(&state.link);
        self.hub.join(&link, self);
        let former = mem::replace(&mut state.link, link);
        state.first.get_or_insert(former.ep);
        Ok(())
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        End::Refused(refusal).into()
    }
}
