//! Outbound: messages, acknowledgements, the end. Each step is done, refused for now, or an error;
//! nothing waits.

use std::mem;
use std::sync::Arc;

use itapi::{Buffer, Capabilities, Work};

use super::ChannelEnd;
use crate::error::{Error, Result};
use crate::kept::Item;
use crate::message::{Body, Draft, Envelope, Memory, Outgoing};
use crate::session::Session;
use crate::state::State;
use crate::tuning::{DRAFTS, INLINE, SHORT};
use crate::wire::{HEADER, Kind};

impl ChannelEnd {
    /// Sends a message; false: there is no room for it now. A message that was not sent stays with the
    /// caller: dropping a draft takes the lock that the caller holds.
    pub(crate) fn offer(&self, state: &mut State, message: &mut Outgoing<'_>) -> Result<bool> {
        let sent = if state.is_paused() && state.over.is_none() {
            self.keep_for_later(state, message)?
        } else {
            self.offer_now(state, message)?
        };
        if !sent {
            self.widen(state)?;
        }
        Ok(sent)
    }

    /// This end has to wait until it may send. The peer may do the same.
    #[cold]
    fn widen(&self, state: &mut State) -> Result<()> {
        let stuck = state.over.is_none()
            && !state.is_down
            && state.session.as_mut().is_some_and(Session::widen);
        if stuck { self.counts(state, Kind::Ack).map(drop) } else { Ok(()) }
    }

    fn offer_now(&self, state: &mut State, message: &mut Outgoing<'_>) -> Result<bool> {
        match &mut message.0 {
            Body::Draft(draft) => self.offer_draft(state, draft),
            Body::Octets(octets) => match self.admits(state, octets.len(), Session::most)? {
                None => Ok(false),
                Some(false) => {
                    Ok(self.send_slice(state, octets)? || self.send_long(state, octets)?)
                }
                Some(true) => self.send_copy(state, octets),
            },
            // Not copied if it is longer than small: the peer reads it.
            Body::Vector(vector) => match self.admits(state, vector.len(), Session::small)? {
                None => Ok(false),
                Some(false) => self.send_slice(state, vector),
                Some(true) => {
                    let len = vector.len();
                    let refused = self.send_large(state, mem::take(vector), len)?;
                    Ok(refused.map(|octets| *vector = octets).is_none())
                }
            },
        }
    }

    /// Whether a message of `octets` may be sent now, and if so, whether the peer has to read it, as it does with more than
    /// `most`.
    #[inline]
    fn admits(
        &self,
        state: &State,
        octets: usize,
        most: impl FnOnce(&Session) -> usize,
    ) -> Result<Option<bool>> {
        let large = match &state.session {
            Some(session) if octets > most(session) => {
                if octets as u64 > session.longest() {
                    return Err(Error::TooLong { octets, most: session.longest() });
                }
                true
            }
            _ => false,
        };
        Ok(self.has_room(state, large)?.then_some(large))
    }

    /// Whether a message may be sent now, if the session is not paused; `large`: one that the peer has to read. Errors: none any more.
    #[inline]
    fn has_room(&self, state: &State, large: bool) -> Result<bool> {
        if let Some(over) = &state.over {
            return Err(over.error());
        }
        let Some(session) = &state.session else { return Ok(false) };
        if session.has_ended() {
            return Err(Error::Finished);
        }
        // Reserved for acknowledgements and the end.
        let room = state.sends.used + self.reserve < state.link.depth;
        Ok(room && session.may_send(large))
    }

    /// [`ChannelEnd::offer`] of a draft, whose length fits.
    #[inline]
    fn offer_draft(&self, state: &mut State, draft: &mut Draft) -> Result<bool> {
        let Some(mut envelope) = draft.0.take() else { return Ok(true) };
        if envelope.line != state.link.line && matches!(envelope.memory, Memory::Small(_)) {
            draft.0 = Some(envelope);
            return self.offer_foreign(state, draft);
        }
        if let (Memory::Small(_), Some(session)) = (&envelope.memory, &state.session)
            && envelope.len() > session.most()
        {
            self.shorter_receives(state, &mut envelope);
        }
        let large = matches!(&envelope.memory, Memory::Large { .. });
        // A large message has at least one octet.
        let empty = matches!(&envelope.memory, Memory::Large { len: 0, .. });
        match self.has_room(state, large && !empty) {
            Ok(true) if !empty => {}
            room => {
                draft.0 = Some(envelope);
                return if room? { self.send_slice(state, &[]) } else { Ok(false) };
            }
        }
        match envelope.take() {
            Memory::Small(buffer) => {
                state.emptied(envelope, self.ours.slots);
                self.send_buffer(state, buffer)?;
            }
            Memory::Large { octets, len } => match self.send_large(state, octets, len) {
                Ok(Some(octets)) => {
                    envelope.memory = Memory::Large { octets, len };
                    draft.0 = Some(envelope);
                    return Ok(false);
                }
                sent => {
                    state.emptied(envelope, self.ours.slots);
                    sent?;
                }
            },
            Memory::Read(_) | Memory::Gone => state.emptied(envelope, self.ours.slots),
        }
        Ok(true)
    }

    /// A draft in memory of a device that the session has left is copied.
    #[cold]
    fn offer_foreign(&self, state: &mut State, draft: &mut Draft) -> Result<bool> {
        let octets = draft.to_vec();
        let sent = match self.admits(state, octets.len(), Session::most)? {
            None => false,
            Some(false) => self.send_slice(state, &octets)?,
            Some(true) => self.send_copy(state, &octets)?,
        };
        if sent && let Some(mut envelope) = draft.0.take() {
            drop(envelope.take());
            state.emptied(envelope, self.ours.slots);
        }
        Ok(sent)
    }

    /// Sends a long message for which the application has left no buffer: it is read; false: not now.
    #[cold]
    fn send_long(&self, state: &mut State, octets: &[u8]) -> Result<bool> {
        let waits = octets.len() <= self.ours.small as usize || !self.has_room(state, true)?;
        if waits { Ok(false) } else { self.send_copy(state, octets) }
    }

    /// The peer's receives have no room any more for a draft that they had room for when it was made: it is read.
    #[cold]
    fn shorter_receives(&self, state: &mut State, draft: &mut Envelope) {
        if let Memory::Small(buffer) = draft.take() {
            let octets = state.vector(&buffer[HEADER..]);
            draft.memory = Memory::Large { len: octets.len(), octets };
            state.undraft(buffer);
        }
    }

    /// Sends a small message by copy; false: no buffer is idle.
    #[inline]
    fn send_slice(&self, state: &mut State, octets: &[u8]) -> Result<bool> {
        let len = HEADER + octets.len();
        if len <= state.link.inline {
            return self.send_copied(state, octets).map(|()| true);
        }
        let Some(mut buffer) = self.idle(state, octets.len())? else { return Ok(false) };
        buffer.resize(len)?;
        buffer[HEADER..].copy_from_slice(octets);
        self.send_buffer(state, buffer).map(|()| true)
    }

    /// Sends a small message from the buffer in which it is, behind room for the header.
    #[inline]
    pub(super) fn send_buffer(&self, state: &mut State, buffer: Buffer) -> Result<()> {
        state.keep(Item::Posted);
        self.post_buffer(state, buffer)
    }

    /// [`ChannelEnd::send_buffer`] of a message that is kept already.
    #[inline]
    pub(super) fn post_buffer(&self, state: &mut State, mut buffer: Buffer) -> Result<()> {
        buffer[..HEADER].copy_from_slice(&self.header(state, Kind::Small)?);
        let octets = buffer.len();
        self.post(state, Work::send(buffer), octets, false)
    }

    /// Sends octets that are copied while posting.
    #[inline]
    fn send_copied(&self, state: &mut State, octets: &[u8]) -> Result<()> {
        let header = self.header(state, Kind::Small)?;
        if let Some(resume) = &mut state.resume {
            let whole = resume.kept.copy(&header, octets);
            return state.link.post(&mut state.sends, Work::send(whole), 0, false);
        }
        if HEADER + octets.len() <= SHORT {
            return self.post_copied(state, header, octets, &mut [0; SHORT]);
        }
        self.post_copied(state, header, octets, &mut [0; INLINE as usize])
    }

    /// The same, put together in `room`.
    #[inline]
    fn post_copied(
        &self,
        state: &mut State,
        header: [u8; HEADER],
        octets: &[u8],
        room: &mut [u8],
    ) -> Result<()> {
        room[..HEADER].copy_from_slice(&header);
        room[HEADER..HEADER + octets.len()].copy_from_slice(octets);
        self.post(state, Work::send(&room[..HEADER + octets.len()]), 0, false)
    }

    /// Copies a large message to where the peer reads it; false: not now.
    fn send_copy(&self, state: &mut State, octets: &[u8]) -> Result<bool> {
        let vector = state.vector(octets);
        match self.send_large(state, vector, octets.len())? {
            Some(octets) => state.vectors.push(octets),
            None => return Ok(true),
        }
        Ok(false)
    }

    /// Sends the address of a large message; the peer reads it, and acknowledges that. Returns it if not now.
    fn send_large(
        &self,
        state: &mut State,
        vector: Vec<u8>,
        len: usize,
    ) -> Result<Option<Vec<u8>>> {
        let refused = self.read_by_peer(state, vector, len)?;
        if refused.is_none() {
            state.keep(Item::Registered(len));
        }
        Ok(refused)
    }

    /// [`ChannelEnd::send_large`] of a message that is kept already.
    pub(super) fn read_by_peer(
        &self,
        state: &mut State,
        vector: Vec<u8>,
        len: usize,
    ) -> Result<Option<Vec<u8>>> {
        let builder = state.link.pz.adopt(vector).remote_read();
        // An adapter may have addresses only.
        let based = state.link.pz.ia().attrs().capabilities.contains(Capabilities::ZERO_BASED);
        let region = match if based { builder.zero_based() } else { builder }.register() {
            Ok(region) => region,
            Err(refused) => {
                let (error, octets) = (refused.error, refused.given);
                state.later(error)?;
                return Ok(Some(octets.unwrap_or_default()));
            }
        };
        let place = region.range(0..len)?.remote().to_octets();
        let mut whole = [0; HEADER + itapi::RemoteRange::ENCODED_LEN];
        whole[..HEADER].copy_from_slice(&self.header(state, Kind::Large)?);
        whole[HEADER..].copy_from_slice(&place);
        state.unread.push_back(region);
        self.post(state, Work::send(&whole), 0, false)?;
        Ok(None)
    }

    /// Sends counts only; false: there is no room.
    pub(super) fn counts(&self, state: &mut State, kind: Kind) -> Result<bool> {
        if state.sends.used >= state.link.depth {
            return Ok(false);
        }
        if kind == Kind::End {
            state.keep(Item::End);
        }
        let header = self.header(state, kind)?;
        // The end and all after it are signalled, so that the last one is known to be sent.
        let signalled = state.session.as_ref().is_some_and(Session::has_ended);
        self.post(state, Work::send(&header), 0, signalled)?;
        Ok(true)
    }

    /// The header of what is posted next. Receives whose credits it returns are posted first.
    #[inline(always)] // part of each message's way
    pub(super) fn header(&self, state: &mut State, kind: Kind) -> Result<[u8; HEADER]> {
        if state.session.as_ref().is_some_and(Session::returns_credits) {
            self.repost(state)?;
        }
        let Some(session) = &mut state.session else { return Err(Error::Full) };
        Ok(session.header(kind).to_octets())
    }

    /// See [`Link::post`](crate::link::Link::post).
    #[inline]
    pub(super) fn post(
        &self,
        state: &mut State,
        work: Work<'_>,
        octets: usize,
        signalled: bool,
    ) -> Result<()> {
        state.link.post(&mut state.sends, work, octets, signalled)
    }

    /// An idle buffer for a message of `octets`; `None`: all are in use.
    #[inline]
    pub(super) fn idle(&self, state: &mut State, octets: usize) -> Result<Option<Buffer>> {
        let idle = if octets <= self.ours.small as usize {
            state.drafts.take(&state.link.pz, DRAFTS)
        } else {
            state.long_drafts.take(&state.link.pz, 1)
        };
        match idle {
            Ok(idle) => Ok(idle),
            Err(error) => state.later(error).map(|()| None),
        }
    }

    /// A buffer for a message of `len` octets; `None`: all are in use.
    #[inline]
    pub(crate) fn draft(self: &Arc<Self>, state: &mut State, len: usize) -> Result<Option<Draft>> {
        if let Some(over) = &state.over {
            return Err(over.error());
        }
        let Some(session) = &state.session else { return Ok(None) };
        let most = session.most();
        let idle = if len <= most {
            self.idle(state, len)?
        } else if len as u64 <= session.longest() {
            None
        } else {
            return Err(Error::TooLong { octets: len, most: session.longest() });
        };
        let memory = match idle {
            Some(mut buffer) => {
                buffer.resize(HEADER)?;
                Memory::Small(buffer)
            }
            None if len <= most.min(self.ours.small as usize) => return Ok(None),
            None => {
                let octets = state.vectors.pop().unwrap_or_default();
                Memory::Large { octets, len: 0 }
            }
        };
        let mut envelope = state.envelope(self, memory);
        envelope.room = len;
        Ok(Some(Draft(Some(envelope))))
    }
}
