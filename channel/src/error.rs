//! Errors: what was refused, and how a channel ended. Plain values.

use std::sync::Arc;
use std::time::Duration;

use itapi::{ConnEvent, ConnectionEnd};
use thiserror::Error;

use crate::session::Violation;
use crate::wire::{Invalid, Unfit, VERSION};

/// Result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// RDMA refused, or the connection was not established.
    #[error(transparent)]
    Rdma(#[from] itapi::Error),
    /// The peer is not a channel of this version.
    #[error("{0}")]
    Greeting(Unfit),
    /// The peer broke the protocol; the connection was reset.
    #[error("the peer broke the channel's protocol: {0}")]
    Protocol(Violation),
    /// The connection ended before the peer had finished: messages may be missing.
    #[error("the connection ended before the peer's last message{}", because(.0.as_deref()))]
    Lost(Option<Box<End>>),
    /// By none of the ways there is a connection; the causes in their order.
    #[error("no connection by any way{}", listed(.0))]
    NoWay(Vec<Self>),
    /// The device of a listener was lost.
    #[error("the device {0} was lost; once it is back, open it again and listen there")]
    Device(String),
    /// A message longer than the peer accepts.
    #[error("a message of {octets} octets; the peer accepts at most {most}")]
    TooLong {
        /// Octets of the message.
        octets: usize,
        /// Octets that the peer accepts.
        most: u64,
    },
    /// The peer does not take messages as fast as they are sent, and this call does not wait.
    #[error("the peer has not yet taken earlier messages")]
    Full,
    /// A message after [`finish`](crate::Channel::finish).
    #[error("this end has finished: it sends no more messages")]
    Finished,
    /// A draft of one channel was sent through another.
    #[error("the draft was made for another channel")]
    ForeignDraft,
    /// A field of [`Options`](crate::Options) has a value that is not allowed.
    #[error("invalid options: {0}")]
    Options(Invalid),
    /// The time-out has passed.
    #[error("nothing happened within {0:?}")]
    Timeout(Duration),
}

/// How a connection ended.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum End {
    /// From the error of its last work request.
    #[error("{0}")]
    Work(ConnectionEnd),
    /// From its connection event.
    #[error("{0}")]
    Event(ConnEvent),
    /// Its work requests were flushed; more is not known.
    #[error("the connection has ended, and its work was flushed")]
    Flushed,
    /// The session was not resumed on another connection: every cause that was met.
    #[error("{0}")]
    Unresumed(Unresumed),
    /// The peer refused to resume the session.
    #[error("{0}")]
    Refused(Refusal),
    /// It was given up to return to a way that is preferred.
    #[error("a preferred way is back")]
    Returns,
    /// This end could not go on: there was no memory for a large message, for example.
    #[error("{0}")]
    Here(Arc<itapi::Error>),
}

/// Why a session was not resumed: the loss of its connection first, then each failure of an attempt.
#[derive(Clone, Debug)]
pub struct Unresumed {
    within: Duration,
    at_once: bool,
    causes: Vec<End>,
    attempts: u64,
}

/// Most causes that are kept.
const CAUSES: usize = 32;

impl Unresumed {
    pub(crate) fn new(within: Duration) -> Self {
        Self { within, at_once: false, causes: Vec::new(), attempts: 0 }
    }

    /// One more, unless there was the same before.
    pub(crate) fn add(&mut self, cause: End) {
        self.attempts += 1;
        let text = cause.to_string();
        let known = self.causes.iter().any(|other| other.to_string() == text);
        if !known && self.causes.len() < CAUSES {
            self.causes.push(cause);
        }
    }

    /// The first one is known better now.
    pub(crate) fn began_with(&mut self, cause: End) {
        if let Some(first) = self.causes.first_mut() {
            *first = cause;
        }
    }

    /// The peer is gone for good: the time was not waited for.
    pub(crate) fn gave_up(&mut self) {
        self.at_once = true;
    }

    /// The different causes, oldest first, at most 32.
    pub fn causes(&self) -> &[End] {
        &self.causes
    }
}

impl std::fmt::Display for Unresumed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, cause) in self.causes.iter().enumerate() {
            match at {
                0 => write!(f, "{cause}; the session was not resumed")?,
                1 if self.attempts == 2 => write!(f, " in one attempt: {cause}")?,
                1 => write!(f, " in {} attempts: {cause}", self.attempts - 1)?,
                _ => write!(f, "; {cause}")?,
            }
            if at == 0 && !self.at_once {
                write!(f, " within {:?}", self.within)?;
            }
        }
        Ok(())
    }
}

/// Why the peer did not resume a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// It does not know the session: its process is a new one, the session's time was over there, or the application dropped it.
    Unknown,
    /// Both ends had finished.
    Finished,
    /// It still has a connection of the session, or makes one.
    Busy,
    /// The session ended there with an error.
    Ended,
    /// Its reply contradicts what was agreed.
    Contradiction,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unknown => "the peer does not know the session",
            Self::Finished => "the session has finished at the peer",
            Self::Busy => "the peer has another connection of the session",
            Self::Ended => "the session has ended at the peer",
            Self::Contradiction => "the peer's reply contradicts what was agreed",
        })
    }
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stranger => f.write_str("the peer uses RDMA, but is not a Warpline channel"),
            Self::Version(peer) => {
                write!(f, "the peer has version {peer} of the channel, this end version {VERSION}")
            }
            Self::Number(what) => {
                write!(f, "the peer's greeting has a value that is not allowed: {what}")
            }
        }
    }
}

fn listed(causes: &[Error]) -> String {
    causes.iter().map(|cause| format!("; {cause}")).collect()
}

fn because(end: Option<&End>) -> String {
    let Some(end) = end else { return String::new() };
    // Every other end has its remedy.
    let closed = matches!(
        end,
        End::Event(ConnEvent::Disconnected { by_peer: true, .. })
            | End::Work(ConnectionEnd::Closed { by_peer: true, .. })
    );
    let remedy = "; to do: see why the peer ended, or let it close its channel when it is done";
    format!(": {end}{}", if closed { remedy } else { "" })
}

/// For streams of octets.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        use std::io::ErrorKind;
        let kind = match &error {
            Error::Lost(_) => ErrorKind::ConnectionReset,
            Error::Protocol(_) | Error::Greeting(_) => ErrorKind::InvalidData,
            Error::Finished => ErrorKind::BrokenPipe,
            Error::Full => ErrorKind::WouldBlock,
            Error::Timeout(_) => ErrorKind::TimedOut,
            Error::TooLong { .. } | Error::Options(_) | Error::ForeignDraft => {
                ErrorKind::InvalidInput
            }
            Error::Rdma(_) | Error::NoWay(_) | Error::Device(_) => ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
