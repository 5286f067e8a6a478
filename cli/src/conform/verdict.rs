//! Verdicts of conformance cases, and what must be known about the peer to run them. Plain values.
//!
//! That a peer dies or falls silent is a result like any other.

/// What the peer does when a case is played.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// It listens, we connect.
    Responder,
    /// It connects, we listen.
    Initiator,
    /// Either.
    Both,
}

/// What must be known about the peer, or be within its power, beyond start-up and FPDUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Needs {
    /// Nothing.
    Nothing,
    /// It responds to zero-length RDMA Reads, which shows that its connection still works.
    Probe,
    /// What it does with a message is known.
    Message,
    /// Memory of its is known.
    Memory,
    /// It reads our memory when told to.
    Reader,
    /// It is `warpline conform --serve`.
    Target,
}

impl Needs {
    /// Why a case cannot be played.
    pub(super) const fn lacking(self) -> &'static str {
        match self {
            Self::Nothing => "the peer cannot be reached",
            Self::Probe => "the peer answers no zero-length RDMA Read, so nothing shows it",
            Self::Message => "what the peer does with a message is not known",
            Self::Memory => "no memory of the peer's is known",
            Self::Reader => "nothing makes the peer read our memory",
            Self::Target => "needs a peer that does as told: warpline conform --serve",
        }
    }
}

/// What came out for some requirements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Pass,
    /// What the peer did, and should have done.
    Fail(String),
    /// Why it cannot be said.
    Skip(String),
}

/// A case that ends early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    Fail(String),
    Skip(String),
}

/// How a case ends; `Ok`: the peer did as it should.
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

/// The peer did something else than it should.
pub(super) fn fail<T>(text: impl Into<String>) -> Play<T> {
    Err(Stop::Fail(text.into()))
}

/// Nothing can be said.
pub(super) fn skip<T>(text: impl Into<String>) -> Play<T> {
    Err(Stop::Skip(text.into()))
}

/// Fails unless it holds.
pub(super) fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Play {
    if holds { Ok(()) } else { fail(otherwise()) }
}
