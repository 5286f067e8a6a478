//! Messages of the application while the session has no connection, or while earlier ones are sent again: they are kept, as many
//! as may be unconfirmed, and go behind those. Nothing waits.

use std::mem;

use super::ChannelEnd;
use crate::error::{Error, Result};
use crate::kept::Item;
use crate::message::{Body, Draft, Memory, Outgoing};
use crate::state::State;
use crate::wire::HEADER;

impl ChannelEnd {
    /// Keeps a message to be sent later; false: there is no room for it.
    #[cold]
    pub(super) fn keep_for_later(
        &self,
        state: &mut State,
        message: &mut Outgoing<'_>,
    ) -> Result<bool> {
        let octets: &[u8] = match &message.0 {
            Body::Octets(octets) => octets,
            Body::Vector(vector) => vector,
            // It was sent.
            Body::Draft(Draft(None)) => return Ok(true),
            Body::Draft(draft) => draft,
        };
        let len = octets.len();
        let item = match self.may_keep(state, len)? {
            None => return Ok(false),
            Some(false) => {
                if let Some(resume) = &mut state.resume {
                    resume.kept.copy(&[0; HEADER], octets);
                }
                None
            }
            Some(true) => Some(match &mut message.0 {
                Body::Vector(vector) => Item::Large(mem::take(vector), len),
                Body::Octets(octets) => Item::Large(state.vector(octets), len),
                Body::Draft(draft) => Item::Large(state.vector(draft), len),
            }),
        };
        item.into_iter().for_each(|item| state.keep(item));
        if let Some(resume) = &mut state.resume {
            resume.kept.is_later();
        }
        self.empty(state, message);
        Ok(true)
    }

    /// Whether a message of `len` octets may be kept, and if so, whether the peer will read it.
    fn may_keep(&self, state: &State, len: usize) -> Result<Option<bool>> {
        let (Some(session), Some(resume)) = (&state.session, &state.resume) else {
            return Ok(None);
        };
        if session.has_ended() {
            return Err(Error::Finished);
        }
        if len as u64 > session.longest() {
            return Err(Error::TooLong { octets: len, most: session.longest() });
        }
        let large = len > session.small();
        let unconfirmed = self.ours.slots.min(session.peer().slots);
        let room = resume.kept.len() < unconfirmed.into()
            && (!large || resume.kept.large() < session.most_large().into());
        Ok(room.then_some(large))
    }

    /// Frees a draft whose octets are kept.
    fn empty(&self, state: &mut State, message: &mut Outgoing<'_>) {
        let Body::Draft(Draft(draft)) = &mut message.0 else { return };
        let Some(mut envelope) = draft.take() else { return };
        match envelope.take() {
            // Of a device that is not used any more.
            Memory::Small(_) if envelope.line != state.link.line => {}
            Memory::Small(buffer) => state.undraft(buffer),
            Memory::Large { octets, .. } => self.keep(state, octets),
            Memory::Read(_) | Memory::Gone => {}
        }
        state.emptied(envelope, self.ours.slots);
    }
}
