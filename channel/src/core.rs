//! One end of a channel: its endpoint and its state.
//!
//! A `ChannelEnd` owns its endpoint; channel, server and tasks share it, messages and drafts refer to it. Any
//! thread may call it, under the lock of the state; completions come in order from the thread that drives
//! the [`Hub`](crate::hub::Hub). When the peer dies, the state records it once and all waiters are woken. When
//! a queue is full a step is refused and retried after a completion.

mod arrive;
mod later;
mod moving;
mod outgo;
mod settle;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use itapi::{ConnEvent, Disconnect, Ends, EpId, Established, Ia};

use crate::error::{End, Error, Result};
use crate::hub::Hub;
use crate::link::{self, Link};
use crate::message::{Envelope, Memory, Message};
use crate::options::Options;
use crate::resume::Resumption;
use crate::session::{CONFIRMATIONS, Session};
use crate::state::{Over, Receives, State, capacity};
use crate::tuning::{LOCAL_SPAN, LONG};
use crate::wire::{Greeting, Kind};

/// One end of a channel, see the module.
pub(crate) struct ChannelEnd {
    pub(crate) hub: Arc<Hub>,
    /// Of its first endpoint, which it keeps: no other end gets it.
    id: EpId,
    pub(crate) ours: Greeting,
    /// Receives for what takes no credit.
    reserve: u32,
    /// It is gone for the application of its server.
    leaving: AtomicBool,
    state: Mutex<State>,
}

/// Receives beyond the slots.
fn reserve(ours: &Greeting, resumes: bool) -> u32 {
    ours.reserve() + if resumes { CONFIRMATIONS } else { 0 }
}

/// Most completions of a channel with these limits.
pub(crate) fn completions(options: &Options) -> Result<u32> {
    let ours = options.greeting()?;
    Ok(link::completions(u32::from(ours.slots) + reserve(&ours, options.resume.is_some())))
}

impl ChannelEnd {
    /// An end on an adapter that is not connected, with all its receives posted; `resumes`: it will confirm messages if the
    /// peer does.
    pub(crate) fn new(
        hub: &Arc<Hub>,
        ia: &Ia,
        ours: Greeting,
        peer: Option<Greeting>,
        resumes: bool,
    ) -> Result<Arc<Self>> {
        let reserve = reserve(&ours, resumes);
        let receives = u32::from(ours.slots) + reserve;
        let link = hub.link(ia, 0, receives)?;
        let (id, small) = (link.ep.id(), capacity(ours.small as usize));
        let mut state = State::new(link);
        state.receives = Receives::new(small, state.link.pz.buffers(receives as usize, small)?);
        state.session = peer.map(|peer| Session::new(ours, peer));
        state.allot(small, ours.slots);
        let (hub, state, leaving) = (hub.clone(), Mutex::new(state), AtomicBool::new(false));
        let core = Arc::new(Self { hub, id, ours, reserve, leaving, state });
        core.repost(&mut core.state())?;
        core.hub.join(&core.state().link, &core);
        Ok(core)
    }

    /// The id of its first endpoint.
    pub(crate) fn id(&self) -> EpId {
        self.id
    }

    /// Both ends of the present connection, or of the last.
    pub(crate) fn ends(&self) -> Option<Ends> {
        self.state().link.ep.ends()
    }

    /// See [`Resumption`].
    pub(crate) fn resumption(&self) -> Option<Resumption> {
        self.state().resume.as_ref().map(|resume| resume.so_far())
    }

    /// Ends the connection, or gives up making one.
    pub(crate) fn end(&self, how: Disconnect) {
        // It may have ended by itself.
        let _ = self.state().link.ep.start_disconnect(how);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it is held is our bug; the state stays consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts the receives that the peer may need; at first all.
    fn repost(&self, state: &mut State) -> Result<()> {
        if state.over.is_some() || state.is_down {
            return Ok(());
        }
        let needed = state.session.as_ref().map_or(u32::MAX, Session::receives);
        self.post_receives(state, needed)
    }

    /// The same on an endpoint that need not be connected: so many are to be posted.
    fn post_receives(&self, state: &mut State, needed: u32) -> Result<()> {
        let State { session, receives, link, .. } = state;
        let count = needed.saturating_sub(receives.posted) as usize;
        if let Some(session) = session
            && session.posts_long()
        {
            self.lengthen(link, session, receives);
        }
        let kept = receives.free.len().saturating_sub(count);
        if kept == 0 {
            // Without a move of them.
            receives.posted += link.ep.post_recv_all(&mut receives.free)? as u32;
            return Ok(());
        }
        receives.posting.extend(receives.free.drain(kept..));
        let posted = link.ep.post_recv_all(&mut receives.posting);
        receives.free.append(&mut receives.posting);
        receives.posted += posted? as u32;
        Ok(())
    }

    /// The receives that are posted next are long. What is allocated for all of them takes addresses only: the few that are
    /// used in turn are always the same.
    fn lengthen(&self, link: &Link, session: &mut Session, receives: &mut Receives) {
        let octets = capacity(LONG as usize);
        if receives.octets() != octets {
            let count = u32::from(self.ours.slots) + self.reserve;
            match link.pz.buffers(count as usize, octets) {
                Ok(free) => receives.lengthen(octets, free),
                Err(_) => session.stay_small(),
            }
        } else if receives.short == 0 {
            session.all_are_long();
        }
    }

    /// A connection event of one of its endpoints.
    pub(crate) fn connection(self: &Arc<Self>, adapter: usize, of: EpId, event: ConnEvent) {
        let mut state = self.state();
        if (adapter, of) != (state.link.adapter, state.link.ep.id()) {
            return;
        }
        if state.is_down {
            self.attempted(&mut state, event);
        } else if let ConnEvent::Established(established) = event {
            self.established(&mut state, &established);
        } else {
            self.disconnected(&mut state, &event);
        }
        self.wake_tasks(&mut state);
        self.hub.list(self, &mut state);
    }

    /// The first connection is there.
    fn established(self: &Arc<Self>, state: &mut State, established: &Established) {
        state.up = true;
        if state.session.is_none() {
            match Greeting::from_octets(&established.private_data) {
                Ok(peer) => {
                    state.session = Some(Session::new(self.ours, peer));
                    self.agreed(state, &established.private_data);
                }
                Err(unfit) => self.give_up(state, Over::Unfit(unfit)),
            }
            self.catch_up(state);
        }
        self.is_local(state, established);
    }

    /// The peer may be on the same machine.
    fn is_local(&self, state: &mut State, established: &Established) {
        if let (Some(session), Ok(())) = (&mut state.session, &established.local) {
            session.narrow(LOCAL_SPAN);
        }
    }

    /// The connection has ended, or there is none.
    fn disconnected(self: &Arc<Self>, state: &mut State, event: &ConnEvent) {
        let over = self.ended(event);
        if self.goes_on(state) {
            self.lost(state, over, true);
        } else if state.up {
            // Earlier completions may still be in the queue.
            state.ending = Some(over);
        } else {
            state.over.get_or_insert(over);
        }
    }

    /// All completions were taken.
    pub(crate) fn drained(self: &Arc<Self>) {
        let mut state = self.state();
        if let Some(ending) = state.ending.take() {
            state.over.get_or_insert(ending);
            self.wake_tasks(&mut state);
            self.hub.list(self, &mut state);
        }
    }

    /// How the connection ended, by its event.
    fn ended(&self, event: &ConnEvent) -> Over {
        if let ConnEvent::Rejected { private_data, .. } = event
            && let Err(unfit @ crate::wire::Unfit::Version(_)) = Greeting::from_octets(private_data)
        {
            return Over::Unfit(unfit);
        }
        Over::Ended(Some(Box::new(End::Event(event.clone()))))
    }

    /// Ends the connection for a reason of this end.
    fn give_up(&self, state: &mut State, over: Over) {
        if state.over.is_none() {
            state.over = Some(over);
            // It may have ended by itself concurrently.
            let _ = state.link.ep.start_disconnect(Disconnect::Abrupt);
        }
    }

    /// Wakes the tasks that wait.
    pub(crate) fn wake_tasks(&self, state: &mut State) {
        state.wakers.drain(..).for_each(std::task::Waker::wake);
    }

    /// The oldest message, if it has arrived; `Some(None)`: the peer has finished.
    pub(crate) fn take(&self, state: &mut State) -> Result<Option<Option<Message>>> {
        if state.has_message() {
            let message = state.inbound.pop_front().flatten();
            if message.as_ref().is_some_and(Message::is_large) {
                if let Some(session) = &mut state.session {
                    session.was_read();
                }
                self.acknowledge(state)?;
            }
            return Ok(Some(message));
        }
        if state.is_at_end() {
            return Ok(Some(None));
        }
        match &state.over {
            Some(over) => Err(over.error()),
            None => self.acknowledge(state).map(|()| None),
        }
    }

    /// The application has dropped a message.
    pub(crate) fn taken(&self, mut envelope: Box<Envelope>) {
        let mut state = self.state();
        let memory = envelope.take();
        let foreign = envelope.line != state.link.line;
        state.emptied(envelope, self.ours.slots);
        if let Some(session) = &mut state.session {
            session.taken();
        }
        match memory {
            // Of a device that is not used any more.
            _ if foreign => {}
            Memory::Small(buffer) => state.receives.put(buffer),
            Memory::Read(buffer) if state.sinks.len() < usize::from(self.ours.large) => {
                state.sinks.push(buffer);
            }
            _ => {}
        }
        // The next send or wait gets the error.
        let _ = self.acknowledge(&mut state);
    }

    /// The application dropped a draft unsent.
    pub(crate) fn undrafted(&self, mut envelope: Box<Envelope>) {
        let mut state = self.state();
        match envelope.take() {
            Memory::Small(_) if envelope.line != state.link.line => {}
            Memory::Small(buffer) => state.undraft(buffer),
            Memory::Large { octets, .. } => self.keep(&mut state, octets),
            Memory::Read(_) | Memory::Gone => {}
        }
        state.emptied(envelope, self.ours.slots);
        self.wake_tasks(&mut state);
        drop(state);
        self.hub.changed();
    }

    /// Keeps the memory of a large message for the next.
    fn keep(&self, state: &mut State, octets: Vec<u8>) {
        if state.vectors.len() < usize::from(self.ours.large) {
            state.vectors.push(octets);
        }
    }

    /// Sends the end: no message follows; true once it is posted.
    pub(crate) fn finish(&self, state: &mut State) -> Result<bool> {
        let Some(session) = &state.session else { return Ok(false) };
        if session.has_ended() {
            return Ok(true);
        }
        if let Some(over) = &state.over {
            return Err(over.error());
        }
        if state.is_paused() { Ok(false) } else { self.counts(state, Kind::End) }
    }

    /// Its server keeps it until both ends have everything.
    pub(crate) fn begin_to_leave(&self) {
        self.leaving.store(true, Ordering::Release);
    }

    /// Sends the end if it is leaving, and no more than `most` references to it exist.
    #[inline]
    pub(crate) fn dropped(self: &Arc<Self>, most: usize) -> bool {
        let last = self.leaving.load(Ordering::Acquire) && Arc::strong_count(self) <= most;
        if last {
            // Without room the server sends it later.
            let _ = self.finish(&mut self.state());
        }
        last
    }

    /// Whether it has left: the application has dropped it, and both ends have everything, or the connection is over.
    pub(crate) fn has_left(self: &Arc<Self>) -> bool {
        let left = |state: &State| state.over.is_some() || state.is_complete();
        self.dropped(1) && left(&self.state())
    }

    /// While closing: discards a message of the peer. Errors: the connection ended before both ends had
    /// finished.
    pub(crate) fn unwanted(&self, state: &mut State) -> Result<Option<Message>> {
        if Self::is_settled(state) {
            return Ok(None);
        }
        match &state.over {
            Some(over) if !state.has_message() => Err(over.error()),
            _ => self.take(state).map(Option::flatten),
        }
    }

    /// Whether all of our messages have arrived and were read, and the peer has finished. Then either end
    /// may close the connection.
    pub(crate) fn is_settled(state: &State) -> bool {
        let done = |session: &Session| session.has_ended() && session.unread() == 0;
        let gone = state.sends.signalled.is_empty() || state.over.is_some();
        state.session.as_ref().is_some_and(done)
            && state.is_at_end()
            && gone
            && state.is_confirmed()
    }
}

impl Drop for ChannelEnd {
    fn drop(&mut self) {
        let mut state = self.state();
        // Nothing is lost if both ends have finished; else the peer gets an error, since messages may be lost.
        let mutual = state.is_at_end() && state.over.is_none();
        if mutual {
            let _ = self.finish(&mut state);
        }
        self.forget(&state);
        let waiting = self.unanswered(&mut state);
        self.hub.remove(&state.link);
        drop(state);
        drop(waiting);
    }
}

impl std::fmt::Debug for ChannelEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ends() {
            Some(ends) => write!(f, "{ends}"),
            None => f.write_str("not connected"),
        }
    }
}

impl From<End> for Error {
    fn from(end: End) -> Self {
        Self::Lost(Some(Box::new(end)))
    }
}
