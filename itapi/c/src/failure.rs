//! Failures of entry points: an IT-API status and a long text. No state.

use std::borrow::Cow;
use std::io;

use ual::vp_api::{VpError, VpStatus};
use ual::{Error, Object};

use super::status::{self, Status};

/// A refusal.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The status that C gets.
    pub(crate) status: Status,
    /// The text of `itw_last_error`: what was wrong, where, what to do.
    pub(crate) text: Cow<'static, str>,
}

/// Result of an entry point's body.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// There is no event. Frequent when polling, so it allocates nothing.
    pub(crate) const EMPTY: Self = Self {
        status: status::IT_ERR_QUEUE_EMPTY,
        text: Cow::Borrowed("there is no event in the event dispatcher"),
    };

    /// The reserve of memory cannot be filled.
    pub(crate) const SHORT_OF_MEMORY: Self = Self {
        status: status::IT_ERR_RESOURCES,
        text: Cow::Borrowed(
            "the process has no memory for more (see ulimit -v, or the limits of its group): what is \
             open goes on and can be closed; nothing new is made until there is memory again",
        ),
    };

    pub(crate) fn new(status: Status, text: impl Into<Cow<'static, str>>) -> Self {
        Self { status, text: text.into() }
    }

    /// A refusal of the access layer. `fallback` is the status where the error alone does not
    /// show: which argument was wrong, which object was busy.
    #[cold]
    pub(crate) fn of(error: Error, fallback: Status) -> Self {
        Self { status: status_of(&error, fallback), text: error.to_string().into() }
    }

    /// For `map_err`.
    pub(crate) fn by(fallback: Status) -> impl Fn(Error) -> Self {
        move |error| Self::of(error, fallback)
    }

    /// A refusal with the text of a verb, for `map_err`.
    pub(crate) fn of_verb(fallback: Status) -> impl Fn(VpError) -> Self {
        move |error| Self::new(status_of_verb(error.status, fallback), error.detail)
    }

    /// A provider's refusal that comes without a text; `what` was attempted.
    #[cold]
    pub(crate) fn verb(status: VpStatus, fallback: Status, what: &str) -> Self {
        Self { status: status_of_verb(status, fallback), text: format!("{what}: {status}").into() }
    }
}

fn status_of(error: &Error, fallback: Status) -> Status {
    match error {
        Error::NoDevice { .. } => status::IT_ERR_INVALID_NAME,
        Error::Unavailable { .. } | Error::Config(_) => status::IT_ERR_RESOURCES,
        Error::Closed(object) => stale(*object),
        Error::InUse { object, .. } => busy(*object).unwrap_or(fallback),
        Error::InvalidState { object: Object::Ep, .. } => status::IT_ERR_INVALID_EP_STATE,
        Error::InvalidState { object: Object::Evd, .. } => status::IT_ERR_INVALID_EVD_STATE,
        Error::PrivateDataTooLong { .. } => status::IT_ERR_INVALID_PDATA_LENGTH,
        Error::AddressInUse(_) => status::IT_ERR_CONN_QUAL_BUSY,
        Error::Denied(_) => status::IT_ERR_ACCESS,
        Error::NoListener(_) => status::IT_ERR_INVALID_CONN_QUAL,
        Error::Socket(_) => status::IT_ERR_MISMATCH_FD,
        Error::QueueFull { .. } => status::IT_ERR_EVD_QUEUE_FULL,
        Error::Overflow(_) => status::IT_ERR_INVALID_EVD_STATE,
        Error::Timeout(_) => status::IT_ERR_TIMEOUT_EXPIRED,
        Error::Interrupted | Error::Signal => status::IT_ERR_INTERRUPT,
        Error::Aborted => status::IT_ERR_ABORT,
        Error::CallbackExists => status::IT_ERR_CALLBACK_EXISTS,
        Error::Verb { source, .. } => status_of_verb(source.status, fallback),
        Error::Os { source, .. } | Error::Address { source, .. } => status_of_os(source),
        // The text names the wrong argument; only the entry point knows IT-API's status for it. What
        // the access layer adds later is here, too.
        _ => fallback,
    }
}

/// The status for an object that is closed.
fn stale(object: Object) -> Status {
    match object {
        Object::Ia => status::IT_ERR_INVALID_IA,
        Object::Pz => status::IT_ERR_INVALID_PZ,
        Object::Evd => status::IT_ERR_INVALID_EVD,
        Object::Ep => status::IT_ERR_INVALID_EP,
        Object::Lmr => status::IT_ERR_INVALID_LMR,
        Object::Rmr => status::IT_ERR_INVALID_RMR,
        Object::Srq => status::IT_ERR_INVALID_SRQ,
        Object::Listen => status::IT_ERR_INVALID_LISTEN,
        Object::Request => status::IT_ERR_INVALID_CN_EST_ID,
        Object::ServiceRequest => status::IT_ERR_INVALID_UD_SVC_REQ_ID,
        Object::AddressHandle => status::IT_ERR_INVALID_AH,
        Object::Service => status::IT_ERR_INVALID_UD_SVC,
    }
}

/// The status for an object that others use.
fn busy(object: Object) -> Option<Status> {
    Some(match object {
        Object::Pz => status::IT_ERR_PZ_BUSY,
        Object::Evd => status::IT_ERR_EVD_BUSY,
        Object::Ep => status::IT_ERR_EP_BUSY,
        Object::Lmr => status::IT_ERR_LMR_BUSY,
        Object::Srq => status::IT_ERR_SRQ_BUSY,
        Object::Ia
        | Object::Rmr
        | Object::Listen
        | Object::Request
        | Object::ServiceRequest
        | Object::AddressHandle
        | Object::Service => return None,
    })
}

fn status_of_verb(verb: VpStatus, fallback: Status) -> Status {
    match verb {
        VpStatus::InsufficientResources | VpStatus::Os => status::IT_ERR_RESOURCES,
        VpStatus::Interrupted => status::IT_ERR_INTERRUPT,
        VpStatus::Unsupported => status::IT_ERR_OP_NOT_SUPPORTED,
        VpStatus::CqTooSmall => status::IT_ERR_INVALID_QUEUE_SIZE,
        VpStatus::InvalidPd => status::IT_ERR_INVALID_PZ,
        VpStatus::InvalidAddress => status::IT_ERR_FAULT,
        VpStatus::InvalidState | VpStatus::CannotChange => status::IT_ERR_INVALID_EP_STATE,
        VpStatus::TooManyWrs => status::IT_ERR_TOO_MANY_POSTS,
        VpStatus::InvalidSgl => status::IT_ERR_INVALID_NUM_SEGMENTS,
        VpStatus::InvalidStag => status::IT_ERR_INVALID_LMR,
        VpStatus::StagInUse => status::IT_ERR_LMR_BUSY,
        VpStatus::InvalidAccess => status::IT_ERR_INVALID_PRIVS,
        VpStatus::NotPrivileged => status::IT_ERR_PRIV_OPS_UNAVAILABLE,
        VpStatus::StillFlushing => status::IT_ERR_CANNOT_RESET,
        VpStatus::InvalidStream => status::IT_ERR_MISMATCH_FD,
        VpStatus::CqOverrun => status::IT_ERR_INVALID_EVD_STATE,
        // InvalidModifier, InUse, InvalidHandle, InvalidWr, InvalidIrdOrd: which argument or object
        // only the entry point knows.
        _ => fallback,
    }
}

fn status_of_os(error: &io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::AddrInUse => status::IT_ERR_CONN_QUAL_BUSY,
        io::ErrorKind::PermissionDenied => status::IT_ERR_NO_PERMISSION,
        io::ErrorKind::AddrNotAvailable => status::IT_ERR_ADDRESS,
        _ => status::IT_ERR_RESOURCES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FALLBACK: Status = status::IT_ERR_INVALID_EP_ATTR;

    #[test]
    fn every_freed_object_has_a_status() {
        use Object::{AddressHandle, Ep, Evd, Ia, Listen, Lmr, Pz, Request, Rmr, Service, Srq};
        let connected = [Ia, Pz, Evd, Ep, Lmr, Rmr, Srq, Listen, Request];
        let datagrams = [AddressHandle, Service, Object::ServiceRequest];
        let all = || connected.into_iter().chain(datagrams);
        let found: Vec<_> = all().map(|o| Failure::of(Error::Closed(o), 0).status).collect();
        assert_eq!(found, [42, 56, 37, 32, 46, 64, 71, 45, 27, 22, 75, 76]);
        let busy: Vec<_> =
            all().map(|object| Failure::of(Error::InUse { object, users: 1 }, 0).status).collect();
        assert_eq!(busy, [0, 86, 12, 10, 78, 0, 101, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn each_error_has_its_status_and_keeps_its_text() {
        let ep = |object| Error::InvalidState { object, state: "a", attempt: "b", needed: "c" };
        let os = |kind| Error::Os { attempt: "listen".into(), source: io::Error::from(kind) };
        let cases = [
            (Error::NoDevice { name: "x".into(), known: "y".into() }, 51),
            (ep(Object::Ep), 35),
            (ep(Object::Evd), 38),
            (ep(Object::Lmr), FALLBACK),
            (Error::InvalidArgument("wrong".into()), FALLBACK),
            (Error::PrivateDataTooLong { len: 9, max: 8 }, 54),
            (Error::QueueFull { depth: 5 }, 14),
            (Error::Overflow(3), 38),
            (Error::Timeout(std::time::Duration::ZERO), 104),
            (Error::Interrupted, 18),
            (Error::Signal, 18),
            (Error::Aborted, 1),
            (Error::CallbackExists, 7),
            (Error::AddressInUse("port 9".into()), 9),
            (Error::NoListener("port 9".into()), 29),
            (Error::Socket("it listens".into()), 79),
            (os(io::ErrorKind::AddrInUse), 9),
            (os(io::ErrorKind::PermissionDenied), 81),
            (os(io::ErrorKind::AddrNotAvailable), 3),
            (os(io::ErrorKind::OutOfMemory), 89),
        ];
        for (error, expected) in cases {
            let text = error.to_string();
            let failure = Failure::of(error, FALLBACK);
            assert_eq!((failure.status, failure.text.as_ref()), (expected, &*text));
        }
    }

    #[test]
    fn each_verb_status_has_one_of_ours() {
        use VpStatus as V;
        let cases = [
            (V::InsufficientResources, 89),
            (V::InvalidModifier, FALLBACK),
            (V::InUse, FALLBACK),
            (V::InvalidHandle, FALLBACK),
            (V::Interrupted, 18),
            (V::Unsupported, 82),
            (V::CqTooSmall, 57),
            (V::InvalidPd, 56),
            (V::InvalidAddress, 15),
            (V::InvalidState, 35),
            (V::TooManyWrs, 105),
            (V::InvalidWr, FALLBACK),
            (V::InvalidSgl, 53),
            (V::InvalidIrdOrd, FALLBACK),
            (V::CannotChange, 35),
            (V::InvalidStag, 46),
            (V::StagInUse, 78),
            (V::InvalidAccess, 55),
            (V::NotPrivileged, 85),
            (V::StillFlushing, 8),
            (V::InvalidStream, 79),
            (V::CqOverrun, 38),
            (V::Os, 89),
        ];
        for (verb, expected) in cases {
            let failure = Failure::verb(verb, FALLBACK, "try");
            assert_eq!(failure.status, expected, "{verb:?}");
            assert!(failure.text.starts_with("try: "));
        }
    }
}
