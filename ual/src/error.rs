//! Errors of the access layer: misuse, verbs, operating system, configuration. No state.
//!
//! A peer's misbehaviour is never an `Err` here: it is reported by a [`crate::ConnEvent`].

use std::io;
use std::time::Duration;

use thiserror::Error;
use ual_cm::{Denied, error_text as text};
use vp_api::{PostFailure, Unavailable, VpError, VpStatus};

use crate::config::ConfigError;

/// Result of an access-layer call.
pub type Result<T> = std::result::Result<T, Error>;

/// Kinds of objects, for messages and handles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // the IT-API names
pub enum Object {
    Ia,
    Pz,
    Evd,
    Ep,
    Lmr,
    Rmr,
    Srq,
    Listen,
    Request,
    ServiceRequest,
    AddressHandle,
    Service,
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ia => "interface adapter",
            Self::Pz => "protection zone",
            Self::Evd => "event dispatcher",
            Self::Ep => "endpoint",
            Self::Lmr => "memory region",
            Self::Rmr => "memory window",
            Self::Srq => "shared receive queue",
            Self::Listen => "listener",
            Self::Request => "connection request",
            Self::ServiceRequest => "service request",
            Self::AddressHandle => "address handle",
            Self::Service => "service",
        })
    }
}

/// Why a call was refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// No provider has a device of this name.
    #[error("no device `{name}`; there is: {known}")]
    NoDevice {
        /// As requested.
        name: String,
        /// Names that would work, or why there is none.
        known: String,
    },
    /// The provider of the device cannot work here.
    #[error("provider {provider} is not usable: {why}")]
    Unavailable {
        /// Its name.
        provider: String,
        /// Why, and the remedy.
        why: Unavailable,
    },
    /// The object was closed before, or the handle is stale.
    #[error(fmt = text::closed)]
    Closed(Object),
    /// Other objects still use the object.
    #[error("the {object} is still used by {users} other object(s); close them first")]
    InUse {
        /// The object.
        object: Object,
        /// The number of users.
        users: u32,
    },
    /// Not possible in this state.
    #[error(fmt = text::state)]
    InvalidState {
        /// Which object.
        object: Object,
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
    /// The port is in use; the text has the address and the purpose (IT-API `IT_ERR_CONN_QUAL_BUSY`).
    #[error(fmt = text::address_in_use)]
    AddressInUse(String),
    /// No listener of this process matches the hand-off.
    #[error(fmt = text::no_listener)]
    NoListener(String),
    /// The socket cannot become an endpoint's stream; the text has the reason and the remedy. It was not
    /// touched (IT-API `IT_ERR_MISMATCH_FD`).
    #[error(fmt = text::socket)]
    Socket(String),
    /// The queue of a software event dispatcher is full.
    #[error("the event queue is full ({depth} events); dequeue some or create it deeper")]
    QueueFull {
        /// Its depth.
        depth: u32,
    },
    /// Events of a dispatcher were lost.
    #[error("the event dispatcher overflowed and lost {0} event(s)")]
    Overflow(u64),
    /// No event arrived in time.
    #[error("nothing happened within {0:?}")]
    Timeout(Duration),
    /// [`crate::Evd::interrupt`] was called.
    #[error("the wait was interrupted")]
    Interrupted,
    /// A signal handler ran in the waiting thread, or the process was stopped and continued (signal(7)): wait again.
    #[error("the wait was ended by a signal")]
    Signal,
    /// [`crate::Evd::abort`] was called, or the dispatcher was closed.
    #[error("the event dispatcher is being torn down")]
    Aborted,
    /// The dispatcher has a callback.
    #[error("the event dispatcher has a callback already; detach it first")]
    CallbackExists,
    /// A rule of the configuration refuses the connection (IT-API `IT_ERR_ACCESS`).
    #[error("{0}")]
    Denied(Denied),
    /// The provider refused.
    #[error("{attempt}: {source}")]
    Verb {
        /// What was attempted.
        attempt: &'static str,
        /// Its error.
        source: VpError,
    },
    /// The operating system refused.
    #[error(fmt = text::os)]
    Os {
        /// What was attempted, with names and addresses.
        attempt: String,
        /// Its error.
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
    /// The configuration file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl From<ual_cm::Error> for Error {
    fn from(error: ual_cm::Error) -> Self {
        match error {
            ual_cm::Error::NoRequest => Self::Closed(Object::Request),
            ual_cm::Error::NoServiceRequest => Self::Closed(Object::ServiceRequest),
            ual_cm::Error::InvalidState { state, attempt, needed } => {
                Self::InvalidState { object: Object::Ep, state, attempt, needed }
            }
            ual_cm::Error::InvalidArgument(text) => Self::InvalidArgument(text),
            ual_cm::Error::PrivateDataTooLong { len, max } => Self::PrivateDataTooLong { len, max },
            ual_cm::Error::AddressInUse(text) => Self::AddressInUse(text),
            ual_cm::Error::NoListener(text) => Self::NoListener(text),
            ual_cm::Error::Socket(text) => Self::Socket(text),
            ual_cm::Error::Denied(denied) => Self::Denied(denied),
            ual_cm::Error::Verb { attempt, source } => Self::Verb { attempt, source },
            ual_cm::Error::Os { attempt, source } => Self::Os { attempt, source },
            ual_cm::Error::Address { attempt, source, remedy } => {
                Self::Address { attempt, source, remedy }
            }
        }
    }
}

impl Error {
    /// A verb's refusal.
    pub(crate) fn verb(attempt: &'static str) -> impl Fn(VpError) -> Self {
        move |source| Self::Verb { attempt, source }
    }

    /// A refusal of a verb that returns a status only.
    pub(crate) fn status(attempt: &'static str, status: VpStatus) -> Self {
        Self::Verb { attempt, source: VpError::new(status, "the provider gives no detail") }
    }

    /// A system call's refusal.
    pub(crate) fn os(attempt: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let attempt = attempt.into();
        move |source| Self::Os { attempt, source }
    }

    /// What happened, without [`Error::remedy`], which the text of the error has at its end.
    pub fn what(&self) -> String {
        match self {
            Self::AddressInUse(attempt) => format!("{attempt}: the port is in use"),
            Self::Os { attempt, source } | Self::Address { attempt, source, .. } => {
                format!("{attempt}: {source}")
            }
            Self::Unavailable { provider, why } => {
                format!("provider {provider} is not usable: {}", why.reason)
            }
            _ => self.to_string(),
        }
    }

    /// What to do about it; `None`: the text has no more to say.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Self::AddressInUse(_) => Some(text::IN_USE),
            Self::Os { source, .. } => kal_os::remedy(source),
            Self::Address { remedy, .. } => Some(remedy),
            Self::Unavailable { why, .. } => Some(&why.remedy),
            _ => None,
        }
    }

    /// The provider's status, if this is a provider's refusal.
    pub fn verb_status(&self) -> Option<VpStatus> {
        match self {
            Self::Verb { source, .. } => Some(source.status),
            _ => None,
        }
    }
}

/// A post that was refused as a whole.
#[cold]
pub(crate) fn unposted(status: VpStatus) -> PostFailure {
    PostFailure { posted: 0, status }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_of_connection_management_have_their_texts() {
        let (state, attempt, needed) = ("closed", "to connect", "open");
        let io = || io::Error::from_raw_os_error(libc::EMFILE);
        let verb = || VpError::new(VpStatus::InUse, "so it says");
        for error in [
            ual_cm::Error::NoRequest,
            ual_cm::Error::NoServiceRequest,
            ual_cm::Error::InvalidState { state, attempt, needed },
            ual_cm::Error::InvalidArgument("no".into()),
            ual_cm::Error::PrivateDataTooLong { len: 9, max: 8 },
            ual_cm::Error::AddressInUse("port 9".into()),
            ual_cm::Error::NoListener("port 9".into()),
            ual_cm::Error::Socket("it listens".into()),
            ual_cm::Error::Denied(Denied { place: "w.toml:1".into(), why: "no".into() }),
            ual_cm::Error::Verb { attempt, source: verb() },
            ual_cm::Error::Os { attempt: attempt.into(), source: io() },
            ual_cm::Error::Address { attempt: attempt.into(), source: io(), remedy: "do" },
        ] {
            let text = error.to_string();
            assert_eq!(Error::from(error).to_string(), text);
        }
    }

    #[test]
    fn a_limit_comes_with_what_to_do() {
        let text = |errno| Error::os("open")(io::Error::from_raw_os_error(errno)).to_string();
        assert!(
            text(libc::EMFILE).ends_with("raise the process's limit of descriptors (`ulimit -n`)")
        );
        assert!(!text(libc::EPERM).contains(';'));
    }
}
