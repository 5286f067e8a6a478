//! Errors of connection management that a caller gets: misuse, verbs, operating system. No state.
//!
//! What a peer does is never an `Err` here: it arrives as a [`crate::ConnEvent`].

pub mod text;

use std::fmt::{self, Formatter};
use std::io;
use std::net::SocketAddr;

use kal_os::Use;
use thiserror::Error;
use vp_api::{VpError, VpStatus};

use crate::ruled::Denied;

/// Result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call was refused.
#[derive(Debug, Error)]
pub enum Error {
    /// The connection request was replied to before, or its peer is gone.
    #[error(fmt = no_request)]
    NoRequest,
    /// The same for a service request.
    #[error(fmt = no_service_request)]
    NoServiceRequest,
    /// Not possible in this state.
    #[error(fmt = endpoint_state)]
    InvalidState {
        /// Its state.
        state: &'static str,
        /// What was attempted.
        attempt: &'static str,
        /// The state that is needed.
        needed: &'static str,
    },
    /// An argument is not allowed; the text names it, its value, and the allowed values.
    #[error("{0}")]
    InvalidArgument(String),
    /// Private data longer than the connection can carry (RFC 5044 7.1 [CONN-07]).
    #[error(fmt = text::private_data_too_long)]
    PrivateDataTooLong {
        /// Octets given.
        len: usize,
        /// Octets that fit.
        max: usize,
    },
    /// The port is in use; the text has the address and the purpose.
    #[error(fmt = text::address_in_use)]
    AddressInUse(String),
    /// No listener of this process matches the hand-off.
    #[error(fmt = text::no_listener)]
    NoListener(String),
    /// The socket cannot become an endpoint's stream; the text has the reason and the remedy. It was not
    /// touched.
    #[error(fmt = text::socket)]
    Socket(String),
    /// A rule of the configuration refuses the connection.
    #[error("{0}")]
    Denied(Denied),
    /// The provider refused.
    #[error("{attempt}: {source}")]
    Verb {
        /// What was attempted.
        attempt: &'static str,
        /// Why it refused.
        source: VpError,
    },
    /// The operating system refused.
    #[error(fmt = text::os)]
    Os {
        /// What was attempted, with names and addresses.
        attempt: String,
        /// Why it refused.
        source: io::Error,
    },
    /// This host refuses the address: it is none of its own, lacks its interface, or is not permitted.
    #[error(fmt = text::address)]
    Address {
        /// What was attempted, with the address.
        attempt: String,
        /// Its error.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
}

fn no_request(f: &mut Formatter<'_>) -> fmt::Result {
    text::closed(&"connection request", f)
}

fn no_service_request(f: &mut Formatter<'_>) -> fmt::Result {
    text::closed(&"service request", f)
}

fn endpoint_state(state: &str, attempt: &str, needed: &str, f: &mut Formatter<'_>) -> fmt::Result {
    text::state(&"endpoint", state, attempt, needed, f)
}

impl Error {
    /// A verb's refusal.
    pub(crate) fn verb(attempt: &'static str) -> impl Fn(VpError) -> Self {
        move |source| Self::Verb { attempt, source }
    }

    /// A system call's refusal.
    pub(crate) fn os(attempt: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let attempt = attempt.into();
        move |source| Self::Os { attempt, source }
    }

    /// For devices with a connection manager of their own.
    pub(crate) fn unsupported(attempt: &'static str) -> Self {
        let why = "this device makes its connections itself and has no such choice";
        Self::verb(attempt)(VpError::new(VpStatus::Unsupported, why))
    }

    /// A refusal of an address; a port in use gives an error of its own.
    pub(crate) fn at(
        attempt: String,
        address: SocketAddr,
        purpose: Use,
    ) -> impl FnOnce(io::Error) -> Self {
        move |error| match kal_os::address_remedy(&error, &address, purpose) {
            _ if error.kind() == io::ErrorKind::AddrInUse => Self::AddressInUse(attempt),
            Some(remedy) => Self::Address { attempt, source: error, remedy },
            None => Self::os(attempt)(error),
        }
    }

    /// The same for a provider's refusal; `what`: what was attempted, with the address.
    pub(crate) fn busy_or_verb(attempt: &'static str, what: String, error: VpError) -> Self {
        match error.status {
            VpStatus::InUse => Self::AddressInUse(what),
            _ => Self::verb(attempt)(error),
        }
    }
}

/// Refuses private data of more than `max` octets.
pub(crate) fn check_length(len: usize, max: usize) -> Result<()> {
    if len <= max { Ok(()) } else { Err(Error::PrivateDataTooLong { len, max }) }
}
