//! The sessions of this process that peers may resume, by their tokens.
//!
//! Owner: the process. A session is listed from its first connection until it is dropped; one that had finished stays as a name
//! for as long as its peer may ask for it, at most [`FINISHED`] of them. Any thread; the lock is held for a few instructions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use itapi::{Ia, Request};

use crate::error::{Error, Result};
use crate::wire::{Greeting, Offer, Purpose, Token};

/// Most names of finished sessions.
const FINISHED: usize = 4096;

/// A request of the peer to resume the session.
pub(crate) struct Knock {
    pub(crate) request: Request,
    pub(crate) offer: Offer,
    pub(crate) ia: Ia,
}

/// A session that may be resumed.
pub(crate) trait Resumable: Send + Sync {
    /// Takes a request, or returns it with the reason if it is to be rejected. Nothing waits.
    fn knock(self: Arc<Self>, knock: Knock) -> Option<(Knock, Purpose)>;
}

enum Entry {
    Live(Weak<dyn Resumable>),
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
pub(crate) fn enter(token: Token, session: Weak<dyn Resumable>) {
    sessions().insert(token, Entry::Live(session));
}

/// A token is worthless from now on.
pub(crate) fn forget(token: Token) {
    sessions().remove(&token);
}

/// A session is dropped. `finished`: it had everything, and its peer may ask for so long.
pub(crate) fn leave(tokens: [Option<Token>; 2], finished: Option<Duration>) {
    let mut sessions = sessions();
    let until = finished.and_then(|lasting| Instant::now().checked_add(lasting));
    for token in tokens.into_iter().flatten() {
        let Some(Entry::Live(_)) = sessions.remove(&token) else { continue };
        if let Some(until) = until {
            sessions.insert(token, Entry::Finished(until));
        }
    }
    let names = |entry: &&Entry| matches!(entry, Entry::Finished(_));
    if sessions.len() > FINISHED && sessions.values().filter(names).count() > FINISHED {
        let now = Instant::now();
        sessions.retain(|_, entry| !matches!(entry, Entry::Finished(until) if *until < now));
        while sessions.values().filter(names).count() > FINISHED
            && let Some(token) = soonest(&sessions)
        {
            sessions.remove(&token);
        }
    }
}

/// The name that would be forgotten first.
fn soonest(sessions: &BTreeMap<Token, Entry>) -> Option<Token> {
    let until = |(token, entry): (&Token, &Entry)| match entry {
        Entry::Finished(until) => Some((*until, *token)),
        Entry::Live(_) => None,
    };
    sessions.iter().filter_map(until).min().map(|(_, token)| token)
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
