//! Maps the ends of RoCE requests and connections to statuses and events of the provider interface.
//!
//! Pure functions. InfiniBand reports less than RDMAP's Terminate messages; where it does, the code is
//! "unspecified".

use roce_proto::rc::{Broken, Status};
use roce_proto::wire::aeth::Nak;
use vp_api::{AsyncEvent, Terminate, WcStatus};
use vp_soft::memory::{AccessError, LocalFault};

// RDMAP's error types (RFC 5040 section 4.8).
const CATASTROPHIC: u8 = 0;
const PROTECTION: u8 = 1;
const OPERATION: u8 = 2;
const UNSPECIFIED: u8 = 0xff;
// DDP's error type of untagged buffers, and its code for a Send without a receive (RFC 5041 section 7.2).
const UNTAGGED: u8 = 2;
const NO_BUFFER: u8 = 2;

/// The status of a send request. `fault`: why access to its memory was refused.
pub(crate) fn of_send(status: Status, fault: Option<WcStatus>) -> WcStatus {
    match status {
        Status::Success => WcStatus::Success,
        Status::LocalProtection => fault.unwrap_or(WcStatus::InvalidStag),
        Status::RemoteInvalidRequest | Status::RemoteAccess | Status::RemoteOperational => {
            WcStatus::RemoteTermination
        }
        Status::RnrRetryExceeded => WcStatus::RemoteTermination,
        Status::RetryExceeded | Status::BadResponse => WcStatus::LocalCatastrophic,
        Status::Flushed => WcStatus::Flushed,
    }
}

/// The event of a connection that broke.
pub(crate) fn of_end(broken: Broken) -> AsyncEvent {
    match broken {
        Broken::Refused(Nak::RemoteAccess) => sent(PROTECTION),
        // The request was correct; this end could not execute it.
        Broken::Refused(Nak::RemoteOperational) => sent(CATASTROPHIC),
        Broken::Refused(_) => sent(OPERATION),
        Broken::Failed(status) => match status {
            Status::RemoteAccess => received(PROTECTION),
            Status::RemoteInvalidRequest => received(OPERATION),
            Status::RemoteOperational => received(CATASTROPHIC),
            Status::RetryExceeded => AsyncEvent::ConnectionLost,
            // DDP's error "no buffer available" (RFC 5041 section 7.1).
            Status::RnrRetryExceeded => {
                AsyncEvent::TerminateReceived(Terminate::new(false, 1, UNTAGGED, NO_BUFFER))
            }
            Status::LocalProtection => local_fault(),
            Status::BadResponse | Status::Success | Status::Flushed => sent(CATASTROPHIC),
        },
    }
}

/// The event of a connection that ends because access to memory of a local request was refused.
pub(crate) fn local_fault() -> AsyncEvent {
    sent(PROTECTION)
}

fn sent(etype: u8) -> AsyncEvent {
    let code = if etype == CATASTROPHIC { 0 } else { UNSPECIFIED };
    AsyncEvent::TerminateSent(Terminate::new(true, 0, etype, code))
}

fn received(etype: u8) -> AsyncEvent {
    let code = if etype == CATASTROPHIC { 0 } else { UNSPECIFIED };
    AsyncEvent::TerminateReceived(Terminate::new(false, 0, etype, code))
}

/// The status of a request whose access to memory was refused.
pub(crate) fn of_access(error: AccessError) -> WcStatus {
    match error {
        AccessError::InvalidStag => WcStatus::InvalidStag,
        AccessError::Bounds => WcStatus::Bounds,
        AccessError::Access => WcStatus::AccessViolation,
        AccessError::NotAssociated => WcStatus::InvalidPd,
        AccessError::Wrap => WcStatus::Wrap,
        AccessError::Unaligned => WcStatus::InvalidWqe,
        AccessError::CannotInvalidate => WcStatus::CannotInvalidate,
    }
}

/// The status of a refused operation on local memory.
pub(crate) fn of_local(fault: LocalFault) -> WcStatus {
    match fault {
        LocalFault::Access(error) => of_access(error),
        LocalFault::NotPrivileged => WcStatus::NotPrivileged,
        LocalFault::NotInvalid => WcStatus::StagNotInvalid,
        LocalFault::Bind => WcStatus::InvalidWindow,
    }
}
