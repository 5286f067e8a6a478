//! Outbound: messages, acknowledgements, the end. Each step is done, refused for now, or an error;
//! nothing waits.

use std::mem;
use std::sync::Arc;

use itapi::Work;

use super::{ChannelEnd, plain};
use crate::error::{Error, Result};
use crate::message::{Body, Draft, Memory, Outgoing};
use crate::session::Session;
use crate::state::State;
use crate::tuning::{DRAFTS, INLINE, SHORT, SIGNAL_EVERY};
use crate::wire::{HEADER, Kind};

impl ChannelEnd {
    /// Octets of a small message: the lesser of both ends' limits.
    fn small(&self, session: &Session) -> usize {
        session.small().min(self.ours.small as usize)
    }

    /// Sends a message; false: there is no room for it now. A message that was not sent stays with the
    /// caller: dropping a draft takes the lock that the caller holds.
    pub(crate) fn offer(&self, state: &mut State, message: &mut Outgoing<'_>) -> Result<bool> {
        let Some(large) = self.admits(state, message)? else { return Ok(false) };
        match &mut message.0 {
            // Without octets.
            Body::Draft(draft) if !large && draft.is_large() => self.send_slice(state, &[]),
            Body::Draft(draft) => self.send_draft(state, draft).map(|()| true),
            Body::Octets(octets) if !large => self.send_slice(state, octets),
            Body::Vector(octets) if !large => self.send_slice(state, octets),
            Body::Octets(octets) => {
                let mut vector = state.vectors.pop().unwrap_or_default();
                vector.clear();
                vector.extend_from_slice(octets);
                self.send_large(state, vector, octets.len()).map(|()| true)
            }
            Body::Vector(vector) => {
                let len = vector.len();
                self.send_large(state, mem::take(vector), len).map(|()| true)
            }
        }
    }

    /// Whether a message may be sent now, and if so, whether the peer has to read it.
    #[inline]
    fn admits(&self, state: &State, outgoing: &Outgoing<'_>) -> Result<Option<bool>> {
        if let Some(over) = &state.over {
            return Err(over.error());
        }
        let Some(session) = &state.session else { return Ok(None) };
        if session.has_ended() {
            return Err(Error::Finished);
        }
        let (octets, small) = (outgoing.len(), self.small(session));
        if octets > small && octets as u64 > session.longest() {
            return Err(Error::TooLong { octets, most: session.longest() });
        }
        // A draft may be shorter than requested; a large message has at least one octet.
        let large = octets > small
            || (octets > 0 && matches!(&outgoing.0, Body::Draft(draft) if draft.is_large()));
        // Reserved for acknowledgements and the end.
        let room = state.sends.used + self.ours.reserve() < self.depth;
        Ok((room && session.may_send(large)).then_some(large))
    }

    #[inline]
    fn send_draft(&self, state: &mut State, draft: &mut Draft) -> Result<()> {
        let Some(mut envelope) = draft.0.take() else { return Ok(()) };
        let memory = envelope.take();
        state.emptied(envelope, self.ours.slots);
        match memory {
            Memory::Small(mut buffer) => {
                buffer[..HEADER].copy_from_slice(&self.header(state, Kind::Small)?);
                self.post(state, Work::send(buffer), false)
            }
            Memory::Large { octets, len } => self.send_large(state, octets, len),
            Memory::Read(_) | Memory::Gone => Ok(()),
        }
    }

    /// Sends a small message by copy; false: no buffer is idle.
    #[inline]
    fn send_slice(&self, state: &mut State, octets: &[u8]) -> Result<bool> {
        let len = HEADER + octets.len();
        if len <= SHORT.min(self.inline) {
            return self.send_copied(state, octets, &mut [0; SHORT]).map(|()| true);
        }
        if len <= self.inline {
            let room = &mut [0; INLINE as usize];
            return self.send_copied(state, octets, room).map(|()| true);
        }
        let Some(mut buffer) = self.idle(state)? else { return Ok(false) };
        buffer.resize(len)?;
        buffer[..HEADER].copy_from_slice(&self.header(state, Kind::Small)?);
        buffer[HEADER..].copy_from_slice(octets);
        self.post(state, Work::send(buffer), false).map(|()| true)
    }

    /// Sends octets that are copied while posting, put together in `room`.
    #[inline]
    fn send_copied(&self, state: &mut State, octets: &[u8], room: &mut [u8]) -> Result<()> {
        let header = self.header(state, Kind::Small)?;
        room[..HEADER].copy_from_slice(&header);
        room[HEADER..HEADER + octets.len()].copy_from_slice(octets);
        self.post(state, plain(&room[..HEADER + octets.len()]), false)
    }

    /// Sends the address of a large message; the peer reads it, and acknowledges that.
    fn send_large(&self, state: &mut State, vector: Vec<u8>, len: usize) -> Result<()> {
        let region = self.pz.adopt(vector).remote_read().zero_based().register();
        let region = region.map_err(|refused| Error::Rdma(refused.error))?;
        let place = region.range(0..len)?.remote().to_octets();
        let mut whole = [0; HEADER + itapi::RemoteRange::ENCODED_LEN];
        whole[..HEADER].copy_from_slice(&self.header(state, Kind::Large)?);
        whole[HEADER..].copy_from_slice(&place);
        state.unread.push_back(region);
        self.post(state, plain(&whole), false)
    }

    /// Sends counts only; false: there is no room.
    pub(super) fn counts(&self, state: &mut State, kind: Kind) -> Result<bool> {
        if state.sends.used >= self.depth {
            return Ok(false);
        }
        let header = self.header(state, kind)?;
        // The end and all after it are signalled, so that the last one is known to be sent.
        let signalled = state.session.as_ref().is_some_and(Session::has_ended);
        self.post(state, plain(&header), signalled)?;
        Ok(true)
    }

    /// The header of what is posted next. Receives whose credits it returns are posted first.
    #[inline]
    fn header(&self, state: &mut State, kind: Kind) -> Result<[u8; HEADER]> {
        if state.session.as_ref().is_some_and(Session::returns_credits) {
            self.repost(state)?;
        }
        let session = state.session.as_mut().ok_or(Error::Full)?;
        Ok(session.header(kind).to_octets())
    }

    #[inline]
    fn post(&self, state: &mut State, work: Work<'_>, signalled: bool) -> Result<()> {
        let signalled = signalled || state.sends.unsignalled + 1 >= SIGNAL_EVERY;
        let work = if signalled { work } else { work.unsignalled() };
        self.ep.post(work)?;
        state.sends.posted(signalled);
        Ok(())
    }

    /// An idle buffer for a small message; `None`: all are in use.
    #[inline]
    fn idle(&self, state: &mut State) -> Result<Option<itapi::Buffer>> {
        if state.drafts.is_empty() {
            self.more_drafts(state)?;
        }
        Ok(state.drafts.pop())
    }

    /// Allocates buffers for small messages, up to a limit.
    #[cold]
    fn more_drafts(&self, state: &mut State) -> Result<()> {
        let most = usize::from(self.ours.slots) + 2 * SIGNAL_EVERY as usize;
        let count = DRAFTS.min(most.saturating_sub(state.drafts_made));
        if count > 0 {
            let made = self.pz.buffers(count, super::capacity(self.ours.small as usize))?;
            state.drafts_made += made.len();
            state.drafts.extend(made);
        }
        Ok(())
    }

    /// A buffer for a message of `len` octets; `None`: all are in use.
    #[inline]
    pub(crate) fn draft(self: &Arc<Self>, state: &mut State, len: usize) -> Result<Option<Draft>> {
        if let Some(over) = &state.over {
            return Err(over.error());
        }
        let Some(session) = &state.session else { return Ok(None) };
        let memory = if len <= self.small(session) {
            let Some(mut buffer) = self.idle(state)? else { return Ok(None) };
            buffer.resize(HEADER)?;
            Memory::Small(buffer)
        } else if len as u64 <= session.longest() {
            let octets = state.vectors.pop().unwrap_or_default();
            Memory::Large { octets, len: 0 }
        } else {
            return Err(Error::TooLong { octets: len, most: session.longest() });
        };
        let mut envelope = state.envelope(self, memory);
        envelope.room = len;
        Ok(Some(Draft(Some(envelope))))
    }
}
