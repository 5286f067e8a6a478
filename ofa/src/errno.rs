//! Error numbers: maps errors of the layers below to those of the C functions. One table per kind of
//! error.
//!
//! Verbs return the number itself or NULL with `errno`; the connection manager's calls return -1 with
//! `errno`. The text of an error goes to the log as one line.

use std::ffi::c_int;
use std::ptr::null_mut;

use vp_api::{PostFailure, VpError, VpStatus};

use crate::record;

/// An error number of `errno(3)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub c_int);

/// An argument is not allowed.
pub const EINVAL: Errno = Errno(libc::EINVAL);
/// The object is in use.
pub const EBUSY: Errno = Errno(libc::EBUSY);
/// No memory, or no room in a queue.
pub const ENOMEM: Errno = Errno(libc::ENOMEM);
/// Not supported.
pub const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
/// The object was inherited by fork.
pub const EIO: Errno = Errno(libc::EIO);

impl From<VpStatus> for Errno {
    fn from(status: VpStatus) -> Self {
        Self(match status {
            VpStatus::InsufficientResources | VpStatus::TooManyWrs => libc::ENOMEM,
            VpStatus::InUse | VpStatus::StagInUse | VpStatus::StillFlushing => libc::EBUSY,
            VpStatus::Interrupted => libc::EINTR,
            VpStatus::Unsupported => libc::EOPNOTSUPP,
            VpStatus::InvalidAddress => libc::EFAULT,
            VpStatus::NotPrivileged => libc::EPERM,
            VpStatus::InvalidStream => libc::ENOTCONN,
            VpStatus::CqOverrun | VpStatus::Os | VpStatus::Defect => libc::EIO,
            VpStatus::NoStatus(_) | VpStatus::NoWcStatus(_) => libc::EIO,
            VpStatus::NoWcOpcode(_) | VpStatus::LongWc(_) => libc::EIO,
            _ => libc::EINVAL,
        })
    }
}

impl From<VpError> for Errno {
    fn from(error: VpError) -> Self {
        match error.status {
            // Nothing else tells the user what the system refused.
            VpStatus::Os => tracing::warn!("{error}"),
            _ => tracing::info!("{error}"),
        }
        record::line("refused", &error.to_string());
        error.status.into()
    }
}

impl From<PostFailure> for Errno {
    fn from(failure: PostFailure) -> Self {
        failure.status.into()
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
    }
}

impl From<ual_cm::Error> for Errno {
    fn from(error: ual_cm::Error) -> Self {
        use ual_cm::Error;
        match error {
            // Nothing else tells the user which rule it is, or what the system refused.
            Error::Denied(_) => tracing::warn!("{error}"),
            Error::Verb { ref source, .. } if source.status == VpStatus::Os => {
                tracing::warn!("{error}");
            }
            _ => tracing::info!("{error}"),
        }
        record::line("refused", &error.to_string());
        match error {
            Error::Verb { source, .. } => source.status.into(),
            Error::Os { source, .. } | Error::Address { source, .. } => source.into(),
            Error::AddressInUse(_) => Self(libc::EADDRINUSE),
            Error::Denied(_) => Self(libc::EACCES),
            Error::NoRequest | Error::NoServiceRequest => EINVAL,
            _ => EINVAL,
        }
    }
}

impl From<ual::Error> for Errno {
    fn from(error: ual::Error) -> Self {
        use ual::Error;
        match error {
            // Nothing else tells the user which rule it is, or what the system refused.
            Error::Denied(_) => tracing::warn!("{error}"),
            Error::Verb { ref source, .. } if source.status == VpStatus::Os => {
                tracing::warn!("{error}");
            }
            _ => tracing::info!("{error}"),
        }
        record::line("refused", &error.to_string());
        match error {
            Error::NoDevice { .. } | Error::Unavailable { .. } => Self(libc::ENODEV),
            Error::InUse { .. } => EBUSY,
            Error::Verb { source, .. } => source.status.into(),
            Error::Os { source, .. } | Error::Address { source, .. } => source.into(),
            Error::AddressInUse(_) => Self(libc::EADDRINUSE),
            Error::Denied(_) => Self(libc::EACCES),
            _ => EINVAL,
        }
    }
}

/// Sets `errno` of the calling thread.
pub fn set(error: Errno) {
    // SAFETY: no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the C library's own variable of this thread, always there.
    unsafe { errno.write(error.0) }
}

/// For calls that return an error number: 0, or the number, and in `errno` as well.
#[inline]
pub fn code(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            set(error);
            error.0
        }
    }
}

/// For calls that return 0, or -1 with `errno`.
#[inline]
pub fn minus(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            set(error);
            -1
        }
    }
}

/// For calls that return a pointer, or NULL with `errno`.
pub fn pointer<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|error| {
        set(error);
        null_mut()
    })
}
