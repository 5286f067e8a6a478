//! The rendezvous for local streams in the table ([`kal_shim::same_host`]): the end that sends the MPA request
//! listens for its peer, the end that replies connects before it replies.
//!
//! The end that sends the request has a rendezvous socket next to its TCP socket, under the token of its
//! entry, and waits for the reply only. The end that replies has an entry of its own until the other has
//! agreed, for at most [`PATIENCE`], or [`PATIENCE_REQUIRED`]. If the rendezvous fails, the start-up continues over TCP and the
//! connection event has the reason, unless the policy demands a local stream. A peer that dies, or an endpoint that is closed, ends the entry as any other.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use kal_shim::clock::after;
use kal_shim::reactor::Interest;
use kal_shim::same_host::{Dialled, NotLocal, Waiting};
use vp_api::LocalSide;

use super::outcome::{Agreed, refused};
use super::{ConnectionTable, Entry};
use crate::connection::{Connectee, id_of, open};
use crate::local::{Permit, Seeking, Shared, as_dialling, as_waiting, make, place, verify, wishes};
use crate::node::Ends;
use crate::policy::{LocalStreams, Policy};
use crate::startup::passive::Passive;
use crate::tuning::{PATIENCE, PATIENCE_REQUIRED};
use crate::types::FailReason;

/// A start-up whose peer was found and has not agreed yet.
pub(crate) struct Meeting {
    party: Weak<dyn Connectee>,
    dialled: Dialled,
    permit: Permit,
    start: Start,
}

/// The future stream.
pub(crate) struct Start {
    /// The request that was accepted, to be rejected if the provider refuses the stream.
    pub(crate) passive: Option<Box<Passive>>,
    pub(crate) agreed: Agreed,
}

impl Meeting {
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.dialled.socket()
    }
}

impl ConnectionTable {
    /// Opens a name for the peer of a connection, if the two may have a local stream.
    pub(super) fn seek(
        &self,
        token: u64,
        word: &'static str,
        policy: &Policy,
        ends: &Ends,
    ) -> Result<Seeking, NotLocal> {
        let (place, permit) = place(word, &self.attrs, policy, ends)?;
        let waiting = Waiting::bind(place, as_waiting(ends), wishes(policy))?;
        if let Some(listener) = waiting.listener() {
            self.reactor.add(listener, token, Interest::READ)?;
        }
        Ok(Seeking { waiting, permit })
    }

    /// The rendezvous socket is ready: the peer connected, or sent a message.
    pub(super) fn advance_seeking(&self, token: u64, seeking: &mut Result<Seeking, NotLocal>) {
        if let Ok(seeking) = seeking {
            let watch = &mut |fd: BorrowedFd<'_>| self.reactor.add(fd, token, Interest::READ);
            seeking.waiting.advance(verify, watch);
        }
    }

    /// Looks for the peer of a start-up whose reply is to go out, then gives the stream to the provider.
    pub(super) fn begin_meeting(
        &mut self,
        token: u64,
        party: &Arc<dyn Connectee>,
        start: Start,
        word: &'static str,
    ) {
        match self.dial(word, &start.agreed) {
            Err(why) => self.conclude(token, party, start, Err(why)),
            Ok((dialled, permit)) => {
                let watched = self.reactor.add(dialled.socket(), token, Interest::READ);
                if let Err(error) = watched {
                    return self.conclude(token, party, start, Err(error.into()));
                }
                self.by_qp.insert(id_of(&**party), token);
                let patience = match start.agreed.policy.local {
                    LocalStreams::Require => PATIENCE_REQUIRED,
                    _ => PATIENCE,
                };
                self.reactor.set_timer(token, after(patience));
                let party = Arc::downgrade(party);
                let meeting = Meeting { party, dialled, permit, start };
                self.entries.insert(token, Entry::Meeting(Box::new(meeting)));
            }
        }
    }

    fn dial(&self, word: &'static str, agreed: &Agreed) -> Result<(Dialled, Permit), NotLocal> {
        let Agreed { policy, ends, received, .. } = agreed;
        let (place, permit) = place(word, &self.attrs, policy, ends)?;
        // A peer that sends before the reply does not implement the rendezvous.
        if !received.is_empty() {
            return Err(NotLocal::PeerPlain);
        }
        let make = || make(policy);
        Ok((Dialled::dial(&place, as_dialling(ends), wishes(policy), make)?, permit))
    }

    pub(super) fn advance_meeting(&mut self, token: u64, mut meeting: Box<Meeting>) {
        match meeting.dialled.advance() {
            None => {
                self.entries.insert(token, Entry::Meeting(meeting));
            }
            Some(agreed) => self.end_meeting(token, *meeting, agreed),
        }
    }

    pub(super) fn expire_meeting(&mut self, token: u64, meeting: Meeting) {
        self.end_meeting(token, meeting, Err(NotLocal::TimedOut));
    }

    /// The rendezvous is over.
    fn end_meeting(&mut self, token: u64, meeting: Meeting, outcome: Result<(), NotLocal>) {
        let Meeting { party, dialled, permit, start } = meeting;
        self.unwatch(token, dialled.socket());
        let Some(party) = open(&party) else {
            return self.abandon_start(token, start);
        };
        self.by_qp.remove(&id_of(&*party));
        let met = outcome.and_then(|()| dialled.finish());
        let policy = &start.agreed.policy;
        let shared = |met| Box::new(Shared::new(met, LocalSide::Maker, policy, permit));
        let local = met.map(shared);
        self.conclude(token, &party, start, local);
    }

    fn conclude(
        &mut self,
        token: u64,
        party: &Arc<dyn Connectee>,
        start: Start,
        local: Result<Box<Shared>, NotLocal>,
    ) {
        let Start { passive, agreed } = start;
        let agreed = Agreed { local, ..agreed };
        let ends = agreed.ends.clone();
        let lacks = agreed.lacks_local();
        let reason = match lacks {
            Some(reason) => Some(reason),
            None => self.adopt(party, agreed).err().map(|error| refused(&error)),
        };
        let Some(reason) = reason else { return };
        self.fail(party, ends, reason);
        if let Some(passive) = passive {
            self.reject(token, passive, &[]);
        }
    }

    /// The endpoint is gone.
    fn abandon_start(&mut self, token: u64, start: Start) {
        if let Some(passive) = start.passive {
            self.reject(token, passive, &[]);
        }
    }

    pub(super) fn cancel_meeting(&mut self, token: u64, meeting: Meeting) {
        let Meeting { party, dialled, start, .. } = meeting;
        self.unwatch(token, dialled.socket());
        if let Some(party) = open(&party) {
            self.by_qp.remove(&id_of(&*party));
            self.fail(&party, start.agreed.ends.clone(), FailReason::Cancelled);
        }
        self.abandon_start(token, start);
    }
}

/// The result of the search for the peer.
pub(super) fn found(
    seeking: Result<Seeking, NotLocal>,
    policy: &Policy,
) -> Result<Box<Shared>, NotLocal> {
    let Seeking { waiting, permit } = seeking?;
    Ok(Box::new(Shared::new(waiting.finish()?, LocalSide::Other, policy, permit)))
}

/// A peer that chose shared memory and sends over TCP.
pub(super) fn twice() -> FailReason {
    FailReason::Malformed("octets came by TCP on the connection of a local stream".into())
}
