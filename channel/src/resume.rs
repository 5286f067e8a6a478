//! What a session needs to go on, on another connection. Plain state without IO.
//!
//! Owner: the state of the channel, under its lock. While there is a connection, the threads that use the channel keep it up to
//! date. While there is none, one thread for the session ([`crate::away`]) makes the next, or ends the session when its time is
//! over; the application may receive, keep and drop messages meanwhile. If there is no memory for that thread, the session
//! ends with the loss of its connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use itapi::{ConnEvent, ConnectParams, Ia};

use crate::door::Door;
use crate::error::{End, Unresumed};
use crate::kept::Kept;
use crate::sessions::Knock;
use crate::wire::{Offer, Token};

/// A device and an address of the peer, by which an end connects.
#[derive(Debug)]
pub(crate) struct Way {
    ia: Mutex<Ia>,
    pub(crate) peer: ConnectParams,
}

impl Way {
    pub(crate) fn new(ia: Ia, peer: ConnectParams) -> Self {
        Self { ia: Mutex::new(ia), peer }
    }

    /// Its adapter. If the device was lost, it is opened again; an error if it is not there.
    pub(crate) fn ia(&self) -> itapi::Result<Ia> {
        // Nothing panics while it is held.
        let mut ia = self.ia.lock().unwrap_or_else(PoisonError::into_inner);
        if ia.is_lost() {
            *ia = ia.reopen()?;
        }
        Ok(ia.clone())
    }
}

/// What an end wants before the peer has agreed.
pub(crate) struct Wish {
    pub(crate) ways: Arc<[Way]>,
    /// The way of its first connection.
    pub(crate) way: usize,
    pub(crate) lasting: Duration,
    pub(crate) returns: Option<Duration>,
}

/// Which end makes the connections.
pub(crate) enum Role {
    /// This one, by one of the ways now; it tries those before it so often.
    Connects { ways: Arc<[Way]>, way: usize, returns: Option<Duration> },
    /// The peer; the door stays open for it.
    Accepts(#[expect(dead_code, reason = "kept open")] Option<Arc<Door>>),
}

/// See the module.
pub(crate) struct Resume {
    pub(crate) role: Role,
    /// By which the next request names the session.
    pub(crate) token: Token,
    /// The one before, until the peer has shown that it knows the next.
    pub(crate) former: Option<Token>,
    /// How long it goes on without a connection.
    pub(crate) lasting: Duration,
    pub(crate) kept: Kept,
    /// Messages of ours that are confirmed, the end included, modulo 2^32.
    pub(crate) confirmed: u32,
    /// Messages of the peer that have arrived whole, the end included, modulo 2^32; and how many have arrived behind a large one
    /// that is not read.
    pub(crate) whole: u32,
    pub(crate) behind: u16,
    /// Large messages that the peer had whole when the session was resumed, and has not taken.
    pub(crate) ghosts: u16,
    /// Connections that it had after the first.
    pub(crate) moves: u64,
    /// The peer was told that both ends have everything.
    pub(crate) told: bool,
    /// Why the last connection was lost.
    pub(crate) cause: Option<End>,
    /// The peer has shown since it was asked that the connection lives.
    pub(crate) heard: bool,
    /// A request for another connection while this one seems to live.
    pub(crate) knock: Option<Knock>,
    /// While there is no connection.
    pub(crate) away: Option<Box<Away>>,
}

/// How a session that may be resumed has gone so far.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Resumption {
    /// Connections that it had after the first.
    pub moves: u64,
    /// By which of its ways it is connected, or is being connected: 0 is the preferred one. At the end that accepts always 0.
    pub way: usize,
    /// It has a connection now.
    pub connected: bool,
    /// Why it lost the last connection that it lost.
    pub cause: Option<End>,
    /// How long it goes on without a connection: the smaller value of both ends.
    pub lasting: Duration,
}

/// The state without a connection.
pub(crate) struct Away {
    pub(crate) causes: Unresumed,
    pub(crate) until: Instant,
    /// The last event of the former connection came.
    pub(crate) ended: bool,
    pub(crate) attempt: Attempt,
    /// What the peer was told: messages that this end has, and how many of these are large.
    pub(crate) told: (u16, u16),
    /// What the accepting end was told with the request.
    pub(crate) offer: Option<Offer>,
    pub(crate) knock: Option<Knock>,
}

/// An attempt to connect or to accept.
pub(crate) enum Attempt {
    None,
    Begun,
    Failed(Box<ConnEvent>),
}

impl Resume {
    pub(crate) fn new(role: Role, lasting: Duration, token: Token) -> Box<Self> {
        Box::new(Self {
            role,
            token,
            former: None,
            lasting,
            kept: Kept::default(),
            confirmed: 0,
            whole: 0,
            behind: 0,
            ghosts: 0,
            moves: 0,
            told: false,
            cause: None,
            heard: false,
            knock: None,
            away: None,
        })
    }

    /// The connection is lost, for this cause.
    pub(crate) fn leave(&mut self, cause: End) {
        let mut causes = Unresumed::new(self.lasting);
        self.cause = Some(cause.clone());
        causes.add(cause);
        let until = Instant::now() + self.lasting;
        let knock = self.knock.take();
        let (attempt, told) = (Attempt::None, (0, 0));
        let away = Away { causes, until, ended: false, attempt, told, offer: None, knock };
        self.away = Some(Box::new(away));
    }

    /// The last event of the connection that was lost: it says why, if nothing has said so before.
    pub(crate) fn ended(&mut self, event: ConnEvent) {
        let Some(away) = &mut self.away else { return };
        away.ended = true;
        if matches!(self.cause, Some(End::Flushed)) {
            let cause = End::Event(event);
            away.causes.began_with(cause.clone());
            self.cause = Some(cause);
        }
    }

    /// How it has gone so far.
    pub(crate) fn so_far(&self) -> Resumption {
        let way = match self.role {
            Role::Connects { way, .. } => way,
            Role::Accepts(_) => 0,
        };
        let (moves, cause, lasting) = (self.moves, self.cause.clone(), self.lasting);
        Resumption { moves, way, connected: self.away.is_none(), cause, lasting }
    }

    /// What is published of its connection: its way, how often it has moved, and why.
    pub(crate) fn note(&self) -> String {
        let way = match &self.role {
            Role::Connects { ways, way, .. } if ways.len() > 1 => {
                format!(", way {} of {}", way + 1, ways.len())
            }
            _ => String::new(),
        };
        let last = match &self.cause {
            Some(cause) => format!(", last because: {cause}"),
            None => String::new(),
        };
        format!("session{way}, moved {} times{last}", self.moves)
    }

    /// Another connection is being made.
    pub(crate) fn is_starting(&self) -> bool {
        self.away.as_ref().is_some_and(|away| matches!(away.attempt, Attempt::Begun))
    }
}
