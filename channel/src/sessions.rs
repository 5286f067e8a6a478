//! The sessions of this process that peers may resume, by their tokens.
//!
//! Owner: the process. A session is listed from its first connection until it is dropped; one that had finished stays as a name
//! for as long as its peer may ask for it, at most [`FINISHED`] of them. Any thread; the lock is held for a few instructions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use itapi::{Ia, Request};

use crate::core::ChannelEnd;
use crate::error::{Error, Result};
use crate::resume::Knock;
use crate::state::State;
use crate::wire::{Greeting, Offer, Purpose, Token};

/// Most names of finished sessions.
const FINISHED: usize = 4096;

enum Entry {
    Live(Weak<ChannelEnd>),
    /// Until then.
    Finished(Instant),
}

static SESSIONS: Mutex<BTreeMap<Token, Entry>> = Mutex::new(BTreeMap::new());

fn sessions() -> MutexGuard<'static, BTreeMap<Token, Entry>> {
    // Nothing panics while it is held.
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A token that nobody can guess.
pub(crate) fn new_token() -> Result<Token> {
    let mut token = [0; 16];
    let mut filled = 0;
    while filled < token.len() {
        match rustix::rand::getrandom(&mut token[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(octets) => filled += octets,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                let text = format!("no random octets for a session's token: {error}");
                return Err(Error::Rdma(itapi::Error::Argument(text)));
            }
        }
    }
    Ok(token)
}

/// Lists a session.
pub(crate) fn enter(token: Token, core: &Arc<ChannelEnd>) {
    sessions().insert(token, Entry::Live(Arc::downgrade(core)));
}

/// A token is worthless from now on.
pub(crate) fn forget(token: Token) {
    sessions().remove(&token);
}

/// The session of this state is dropped.
pub(crate) fn leave(state: &mut State) {
    let finished = state.is_complete();
    let Some(resume) = &mut state.resume else { return };
    let mut sessions = sessions();
    let until = Instant::now().checked_add(resume.lasting);
    for token in [Some(resume.token), resume.former].into_iter().flatten() {
        let Some(Entry::Live(_)) = sessions.remove(&token) else { continue };
        if let (true, Some(until)) = (finished, until) {
            sessions.insert(token, Entry::Finished(until));
        }
    }
    let names = |entry: &Entry| matches!(entry, Entry::Finished(_));
    if sessions.values().filter(|entry| names(entry)).count() > FINISHED {
        let now = Instant::now();
        sessions.retain(|_, entry| !matches!(entry, Entry::Finished(until) if *until < now));
    }
}

/// Gives a request that resumes a session to it, or rejects it with the reason; returns any other. Nothing waits.
pub(crate) fn route(request: Request, ia: &Ia, ours: Greeting) -> Option<Request> {
    let offer = match Offer::from_octets(request.private_data()) {
        Some(offer) if offer.purpose != Purpose::New => offer,
        _ => return Some(request),
    };
    let found = match sessions().get(&offer.token) {
        _ if offer.purpose != Purpose::Resume => Err(Purpose::Busy),
        Some(Entry::Live(core)) => core.upgrade().ok_or(Purpose::Unknown),
        Some(Entry::Finished(_)) => Err(Purpose::Finished),
        None => Err(Purpose::Unknown),
    };
    let knock = Knock { request, offer, ia: ia.clone() };
    let refused = match found {
        Ok(core) => core.knock(knock),
        Err(reason) => Some((knock, reason)),
    };
    if let Some((knock, reason)) = refused {
        reject(knock, ours, reason);
    }
    None
}

/// Rejects a request with a reason.
pub(crate) fn reject(knock: Knock, ours: Greeting, reason: Purpose) {
    tracing::info!(ends = %knock.request.ends(), ?reason, "a request to resume a session is rejected");
    // The peer may be gone.
    let _ = knock.request.reject(&Offer::only(reason).to_octets(ours));
}
