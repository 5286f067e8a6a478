//! Errors: what was refused and what did not succeed. No state.
//!
//! Connection errors carry the access layer's own sentence, which names both ends, the probable
//! cause and what to do.

use std::io;

use thiserror::Error;
use ual::{ConnEvent, ConnectionEnd};
use vp_api::{VpError, VpStatus, WcStatus};

use crate::completion::{Operation, WorkId, meaning};

/// Result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Result of a post: the work request's name, or what was to be posted, memory included.
pub type PostResult<T> = std::result::Result<WorkId, Box<Refused<T>>>;

/// Why a call did not do what it should.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The access layer refused.
    #[error(transparent)]
    Access(#[from] ual::Error),
    /// An argument is not allowed; the text says which, and what is.
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
        /// Octets that there are.
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
    #[error("cannot post a {operation}: {status}")]
    Post {
        /// Which.
        operation: Operation,
        /// Why.
        status: VpStatus,
    },
    /// A work request completed without success.
    #[error("the {operation} did not succeed: {}{}", meaning(*status), because(end.as_deref()))]
    Incomplete {
        /// Which.
        operation: Operation,
        /// How it ended.
        status: WcStatus,
        /// How the connection ended, if it did and the provider tells.
        end: Option<Box<ConnectionEnd>>,
    },
    /// There is no connection, or no longer.
    #[error("{0}")]
    Connection(Box<ConnEvent>),
    /// The runtime cannot watch a dispatcher's descriptor.
    #[error("cannot watch the event dispatcher: {0}")]
    Watch(io::Error),
    /// Nothing happened in time.
    #[error("nothing happened within {0:?}")]
    Timeout(std::time::Duration),
}

/// The end of a sentence that says that something did not succeed.
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

/// Gives up what was to be posted.
impl<T> From<Box<Refused<T>>> for Error {
    fn from(refused: Box<Refused<T>>) -> Self {
        refused.error
    }
}
