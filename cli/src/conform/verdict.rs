//! Verdicts of conformance cases, and what must be known about the peer to run them. Plain values.
//!
//! A peer that dies or stops sending is a result like any other.

use std::time::Duration;

/// The peer's role in a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// It listens, we connect.
    Responder,
    /// It connects, we listen.
    Initiator,
    /// Either.
    Both,
}

/// What a case needs of the peer beyond start-up and FPDUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Needs {
    /// Nothing.
    Nothing,
    /// It is reached by a connection manager (RoCE).
    Manager,
    /// It responds to zero-length RDMA Reads (with RoCE: it acknowledges), which shows that its connection still works.
    Probe,
    /// How it reacts to a message is known.
    Message,
    /// Memory that it grants is known.
    Memory,
    /// It reads the tester's memory on command.
    Reader,
    /// It is `warpline conform --serve`.
    Target,
}

impl Needs {
    /// The text why a case cannot be played.
    pub(super) const fn lacking(self) -> &'static str {
        match self {
            Self::Nothing => "the peer cannot be reached",
            Self::Manager => "the peer is connected by path",
            Self::Probe => {
                "the peer does not respond to a request without octets, so nothing shows it"
            }
            Self::Message => "what the peer does with a message is not known",
            Self::Memory => "no memory of the peer is known",
            Self::Reader => "nothing makes the peer read our memory",
            Self::Target => "needs a peer that executes commands: warpline conform --serve",
        }
    }
}

/// The result of a case for its requirements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Pass,
    /// What the peer did, and should have done.
    Fail(String),
    /// The reason why there is no verdict.
    Skip(String),
}

/// A case that ends early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    Fail(String),
    Skip(String),
}

/// How a case ends; `Ok`: the peer met the requirements.
pub(super) type Play<T = ()> = Result<T, Stop>;

impl From<Play> for Verdict {
    fn from(play: Play) -> Self {
        match play {
            Ok(()) => Self::Pass,
            Err(Stop::Fail(text)) => Self::Fail(text),
            Err(Stop::Skip(text)) => Self::Skip(text),
        }
    }
}

/// The case fails: the peer broke a requirement.
pub(super) fn fail<T>(text: impl Into<String>) -> Play<T> {
    Err(Stop::Fail(text.into()))
}

/// The case ends without a verdict.
pub(super) fn skip<T>(text: impl Into<String>) -> Play<T> {
    Err(Stop::Skip(text.into()))
}

/// Fails unless `holds`.
pub(super) fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Play {
    if holds { Ok(()) } else { fail(otherwise()) }
}

/// The state of a peer after a case.
#[derive(Clone, Copy, Debug)]
pub(super) enum Presence {
    There,
    /// It serves again, after this time.
    Away(Duration),
    Gone,
}

/// How far a run has come.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Progress {
    /// The last case that was played before the peer stopped serving.
    pub(super) gone: Option<&'static str>,
    /// The last case that was played.
    pub(super) last: Option<&'static str>,
}
