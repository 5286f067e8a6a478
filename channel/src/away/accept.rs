//! The end that accepts: it waits for a request to resume the session.

use std::sync::Arc;
use std::time::Instant;

use itapi::{AcceptParams, Disconnect};

use super::{Away, Over, Step};
use crate::error::{End, Error, Refusal};
use crate::resume::Attempt;
use crate::sessions::{self, Knock, Resumable};
use crate::tuning::ATTEMPT;
use crate::wire::Purpose;

impl Away {
    pub(super) fn accept(&self) -> Step<()> {
        let until = self.deadline()?;
        loop {
            let knock =
                self.until(until, |_, state| state.resume.as_mut()?.away.as_mut()?.knock.take())?;
            let Some(knock) = knock else { return self.end(false) };
            if self.admit(knock)? {
                return Ok(());
            }
            self.clear()?;
        }
    }

    /// Accepts a request; false: there is no connection.
    fn admit(&self, knock: Knock) -> Step<bool> {
        let Knock { request, offer, ia } = knock;
        let begun = self.with(|core, state| -> crate::error::Result<_> {
            core.use_adapter(state, &ia)?;
            let reply = core.prepare(state, Purpose::Resume)?;
            if let Some(resume) = &mut state.resume {
                let known = std::mem::replace(&mut resume.token, reply.token);
                // The peer has the token that it showed, perhaps not the one after.
                let other = resume.former.replace(offer.token).unwrap_or(known);
                for token in [other, known] {
                    if token != offer.token {
                        sessions::forget(token);
                    }
                }
                let session: Arc<dyn Resumable> = core.clone();
                sessions::enter(reply.token, Arc::downgrade(&session));
                if let Some(away) = &mut resume.away {
                    away.offer = Some(offer);
                }
            }
            Ok((state.link.ep.clone(), reply.to_octets(core.ours).to_vec()))
        })?;
        let (ep, private_data) = match begun {
            Ok(begun) => begun,
            Err(Error::Rdma(error)) => {
                self.failed(End::Here(Arc::new(error)))?;
                return Ok(false);
            }
            Err(_) => return Err(Over),
        };
        let params = AcceptParams { private_data, ..AcceptParams::default() };
        if let Err(error) = request.start_accept_with(&ep, params) {
            self.failed(End::Here(Arc::new(error)))?;
            return Ok(false);
        }
        let bound = Instant::now() + ATTEMPT;
        let failed = self.until(bound, |_, state| {
            match &mut state.resume.as_mut()?.away.as_mut()?.attempt {
                Attempt::Failed(event) => Some(End::Event((**event).clone())),
                Attempt::None => Some(End::Refused(Refusal::Contradiction)),
                Attempt::Begun => None,
            }
        });
        match failed {
            // It is not without a connection any more.
            Err(over) => self.core.upgrade().map(|_| true).ok_or(over),
            Ok(Some(cause)) => self.failed(cause).map(|()| false),
            Ok(None) => {
                let _ = ep.start_disconnect(Disconnect::Abrupt);
                Ok(false)
            }
        }
    }
}
