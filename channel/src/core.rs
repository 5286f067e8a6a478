//! One end of a channel: its endpoint and its state.
//!
//! A `ChannelEnd` owns its endpoint; channel, server and tasks share it, messages and drafts refer to it. Any
//! thread may call it, under the lock of the state; completions come in order from the thread that drives
//! the [`Hub`](crate::hub::Hub). When the peer dies, the state records it once and all waiters are woken. When
//! a queue is full a step is refused and retried after a completion.

mod arrive;
mod outgo;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use itapi::{ConnEvent, Disconnect, Ep, EpId, Pz};

use crate::error::{End, Error, Result};
use crate::hub::Hub;
use crate::message::{Envelope, Memory, Message};
use crate::session::Session;
use crate::state::{Drafts, Over, Receives, State};
use crate::tuning::{INLINE, LOCAL_SPAN, LONG, LONG_DRAFTS, SIGNAL_EVERY};
use crate::wire::{Greeting, HEADER, Kind};

/// One end of a channel, see the module.
pub(crate) struct ChannelEnd {
    pub(crate) hub: Arc<Hub>,
    pub(crate) ep: Ep,
    pz: Pz,
    ours: Greeting,
    /// Depth of the send queue, and octets that are copied while posting.
    depth: u32,
    inline: usize,
    /// Most completions that can wait for it.
    completions: u32,
    state: Mutex<State>,
}

/// Octets of a buffer for small messages: each begins at the beginning of a page, where copies are fastest.
fn capacity(small: usize) -> usize {
    (HEADER + small).next_multiple_of(if small < PAGE { 64 } else { PAGE })
}

/// Octets of a page; another size is only slower.
const PAGE: usize = 4096;

impl ChannelEnd {
    /// An end that is not connected, with all its receives posted.
    pub(crate) fn new(
        hub: &Arc<Hub>,
        pz: &Pz,
        ours: Greeting,
        peer: Option<Greeting>,
    ) -> Result<Arc<Self>> {
        let receives = u32::from(ours.slots) + ours.reserve();
        let depth = 2 * receives + SIGNAL_EVERY;
        let completions = depth + receives;
        hub.room_for(completions)?;
        let inline = INLINE.min(hub.ia.attrs().max_inline);
        let ep = pz.ep(&hub.evd).conn_evd(&hub.events).depth(depth, receives).max_pieces(1);
        let ep = ep.max_inline(inline).allow(itapi::Access::REMOTE_READ).build()?;
        let small = capacity(ours.small as usize);
        let receives = Receives::new(small, pz.buffers(receives as usize, small)?);
        let session = peer.map(|peer| Session::new(ours, peer));
        let most = usize::from(ours.slots) + 2 * SIGNAL_EVERY as usize;
        let drafts = Drafts::new(small, most);
        let long_drafts = Drafts::new(capacity(LONG as usize), LONG_DRAFTS);
        let state = State { session, receives, drafts, long_drafts, ..State::default() };
        let (inline, pz) = (inline as usize, pz.clone());
        let (hub, state) = (hub.clone(), Mutex::new(state));
        let core = Arc::new(Self { hub, ep, pz, ours, depth, inline, completions, state });
        core.repost(&mut core.state())?;
        core.hub.join(&core);
        Ok(core)
    }

    pub(crate) fn id(&self) -> EpId {
        self.ep.id()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it is held is our bug; the state stays consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts the receives that the peer may need; at first all.
    fn repost(&self, state: &mut State) -> Result<()> {
        if state.over.is_some() {
            return Ok(());
        }
        let State { session, receives, .. } = state;
        let needed = session.as_ref().map_or(u32::MAX, Session::receives);
        let count = needed.saturating_sub(receives.posted) as usize;
        if let Some(session) = session
            && session.posts_long()
        {
            self.lengthen(session, receives);
        }
        let kept = receives.free.len().saturating_sub(count);
        if kept == 0 {
            // Without a move of them.
            receives.posted += self.ep.post_recv_all(&mut receives.free)? as u32;
            return Ok(());
        }
        receives.posting.extend(receives.free.drain(kept..));
        let posted = self.ep.post_recv_all(&mut receives.posting);
        receives.free.append(&mut receives.posting);
        receives.posted += posted? as u32;
        Ok(())
    }

    /// The receives that are posted next are long. What is allocated for all of them takes addresses only: the few that are
    /// used in turn are always the same.
    fn lengthen(&self, session: &mut Session, receives: &mut Receives) {
        let octets = capacity(LONG as usize);
        if receives.octets() != octets {
            let count = u32::from(self.ours.slots) + self.ours.reserve();
            match self.pz.buffers(count as usize, octets) {
                Ok(free) => receives.lengthen(octets, free),
                Err(_) => session.stay_small(),
            }
        } else if receives.short == 0 {
            session.all_are_long();
        }
    }

    /// A connection event.
    pub(crate) fn connection(self: &Arc<Self>, event: ConnEvent) {
        let mut state = self.state();
        match event {
            ConnEvent::Established(established) => {
                state.up = true;
                if state.session.is_none() {
                    match Greeting::from_octets(&established.private_data) {
                        Ok(peer) => state.session = Some(Session::new(self.ours, peer)),
                        Err(unfit) => self.give_up(&mut state, Over::Unfit(unfit)),
                    }
                    self.catch_up(&mut state);
                }
                if let (Some(session), Ok(_)) = (&mut state.session, &established.local) {
                    session.narrow(LOCAL_SPAN);
                }
            }
            other => {
                let over = self.ended(&other);
                if state.up {
                    // Earlier completions may still be in the queue.
                    state.ending = Some(over);
                } else {
                    state.over.get_or_insert(over);
                }
            }
        }
        self.wake_tasks(&mut state);
        self.hub.list(self, &mut state);
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
            let _ = self.ep.start_disconnect(Disconnect::Abrupt);
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
        state.emptied(envelope, self.ours.slots);
        if let Some(session) = &mut state.session {
            session.taken();
        }
        match memory {
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
        self.counts(state, Kind::End)
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
        state.session.as_ref().is_some_and(done) && state.is_at_end() && gone
    }
}

impl Drop for ChannelEnd {
    fn drop(&mut self) {
        self.hub.remove(self.id(), self.completions);
        let mut state = self.state();
        // Nothing is lost if both ends have finished; else the peer gets an error, since messages may be lost.
        let mutual = state.is_at_end() && state.over.is_none();
        if mutual {
            let _ = self.finish(&mut state);
        }
    }
}

impl std::fmt::Debug for ChannelEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ep.ends() {
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
