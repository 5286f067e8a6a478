//! The failure of a case, and checks that return one.

use vp_api::{PostFailure, VpError, VpStatus};

/// One sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fail(pub String);

impl From<String> for Fail {
    fn from(text: String) -> Self {
        Self(text)
    }
}

macro_rules! reasons {
    ($($reason:ty)+) => {$(
        impl From<$reason> for Fail {
            fn from(why: $reason) -> Self {
                Self(why.to_string())
            }
        }
    )+};
}

reasons! { &str VpError VpStatus PostFailure std::io::Error kal_shim::OutOfRange }

/// Fails unless both values are equal.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: T,
    expected: T,
) -> Result<(), Fail> {
    if found == expected {
        return Ok(());
    }
    Err(Fail(format!("{what}: {found:?} where {expected:?} is expected")))
}

/// Fails unless `found` is a refusal with this status.
pub(crate) fn refused<T, E: Into<Refusal>>(
    what: &str,
    found: Result<T, E>,
    expected: VpStatus,
) -> Result<(), Fail> {
    match found.map_err(Into::into) {
        Ok(_) => Err(Fail(format!("{what}: accepted where \"{expected}\" is expected"))),
        Err(Refusal(status)) if status == expected => Ok(()),
        Err(Refusal(status)) => {
            Err(Fail(format!("{what}: \"{status}\" where \"{expected}\" is expected")))
        }
    }
}

/// The status in any kind of refusal.
pub(crate) struct Refusal(VpStatus);

impl From<VpError> for Refusal {
    fn from(error: VpError) -> Self {
        Self(error.status)
    }
}

impl From<PostFailure> for Refusal {
    fn from(failure: PostFailure) -> Self {
        Self(failure.status)
    }
}

impl From<VpStatus> for Refusal {
    fn from(status: VpStatus) -> Self {
        Self(status)
    }
}
