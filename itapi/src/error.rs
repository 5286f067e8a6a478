//! Error types of all calls. No state.
//!
//! Connection errors carry the text of the access layer, which names both ends, the probable cause and what to
//! do.

use std::io;

use thiserror::Error;
use ual::{ConnEvent, ConnectionEnd};
use vp_api::{VpError, VpStatus, WcStatus};

use crate::ids::{Operation, WorkId};

/// Result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Result of a post: the work request's id, or what was to be posted, memory included.
pub type PostResult<T> = std::result::Result<WorkId, Box<Refused<T>>>;

/// Why a call failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The access layer refused.
    #[error(transparent)]
    Access(#[from] ual::Error),
    /// An argument is not allowed; the text names it and the allowed values.
    #[error("{0}")]
    Argument(String),
    /// Octets outside their memory.
    #[error("{len} octets at offset {offset} are outside {what} of {size} octets")]
    Range {
        /// Which memory.
        what: &'static str,
        /// First octet asked for.
        offset: usize,
        /// Octets asked for.
        len: usize,
        /// Octets that the memory has.
        size: usize,
    },
    /// No memory.
    #[error("no memory for a region of {octets} octets: {source}")]
    Memory {
        /// Octets asked for.
        octets: usize,
        /// The system's error.
        source: io::Error,
    },
    /// A work request was refused. A full queue: take completions first, or create it deeper.
    #[error("cannot post {} {operation}: {}", article(*operation), not_posted(*status, *state))]
    Post {
        /// Which.
        operation: Operation,
        /// Why.
        status: VpStatus,
        /// The endpoint's state, if that is why, and what to do.
        state: Option<&'static str>,
    },
    /// A work request completed without success.
    #[error("the {operation} did not succeed: {}{}", meaning(*status, *operation), because(end.as_deref()))]
    Incomplete {
        /// Which.
        operation: Operation,
        /// How it ended.
        status: WcStatus,
        /// How the connection ended, if it did and the provider reports it.
        end: Option<Box<ConnectionEnd>>,
    },
    /// There is no connection, or it has ended.
    #[error("{0}")]
    Connection(Box<ConnEvent>),
    /// The runtime cannot watch a dispatcher's descriptor.
    #[error("cannot watch the event dispatcher: {0}")]
    Watch(io::Error),
    /// Nothing happened in time.
    #[error("nothing happened within {0:?}")]
    Timeout(std::time::Duration),
}

fn not_posted(status: VpStatus, state: Option<&str>) -> String {
    state.map_or_else(|| status.to_string(), |state| format!("the endpoint is {state}"))
}

fn article(operation: Operation) -> &'static str {
    match operation {
        Operation::Write | Operation::Immediate | Operation::Read | Operation::Atomic => "an",
        _ => "a",
    }
}

/// The local right that memory lacks, and the calls that grant it.
fn lacking(operation: Operation) -> &'static str {
    match operation {
        Operation::Send | Operation::Write => {
            "its memory lacks the right LOCAL_READ, which `Lmr::share` or `Lmr::modify` did not grant"
        }
        Operation::Link => "its region lacks the right BIND, which `LmrBuilder::bindable` grants",
        _ => {
            "its memory lacks the right LOCAL_WRITE, which `Lmr::share` or `Lmr::modify` did not grant"
        }
    }
}

/// What a status means, for messages.
fn meaning(status: WcStatus, operation: Operation) -> &'static str {
    match status {
        WcStatus::Success => "done",
        WcStatus::InvalidStag => "a region of the work request is not, or no longer, registered",
        WcStatus::Flushed => "the connection ended before it was done",
        WcStatus::InvalidWqe => "the work request is malformed",
        WcStatus::LocalCatastrophic => "the connection broke while it was under way",
        WcStatus::RemoteTermination => "the peer refused it and ended the connection",
        WcStatus::Bounds => "it reaches outside its memory, or a message is longer than its buffer",
        WcStatus::AccessViolation => lacking(operation),
        WcStatus::InvalidPd => "its memory belongs to another protection zone or endpoint",
        WcStatus::Wrap => "address plus length overflows",
        WcStatus::CannotInvalidate => "the peer took back a right that it may not",
        WcStatus::ZeroReadResources => "the connection was agreed to carry no RDMA Reads (ORD 0)",
        WcStatus::NotPrivileged => "it needs a privileged endpoint",
        WcStatus::StagNotInvalid => "the window or region is linked already",
        WcStatus::InvalidWindow => "the region, rights or window do not go together",
        WcStatus::InvalidLength => "the message is too long for the provider",
        _ => "an error that this version does not know",
    }
}

/// The cause, to append to a message.
fn because(end: Option<&ConnectionEnd>) -> String {
    end.map_or_else(String::new, |end| format!("; {end}"))
}

impl Error {
    /// There is no memory for a list.
    pub(crate) fn no_room(source: VpError) -> Self {
        Self::Access(ual::Error::Verb { attempt: "find memory", source })
    }

    pub(crate) fn range(what: &'static str, offset: usize, len: usize, size: usize) -> Self {
        Self::Range { what, offset, len, size }
    }
}

/// What was refused, and why: a post with its memory, a socket, a connection request.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct Refused<T> {
    /// Why.
    pub error: Error,
    /// As given.
    pub given: T,
}

impl<T> Refused<T> {
    pub(crate) fn new(error: Error, given: T) -> Box<Self> {
        Box::new(Self { error, given })
    }
}

/// Drops what was to be posted and keeps the error.
impl<T> From<Box<Refused<T>>> for Error {
    fn from(refused: Box<Refused<T>>) -> Self {
        refused.error
    }
}
