//! Maps the ends of RoCE requests and connections to statuses and events of the provider interface.
//!
//! Pure functions. A refusal names no reason on the wire, unlike RDMAP's Terminate messages: the code of what the peer
//! refused is "unspecified".

use roce_proto::rc::{Broken, Post, SendOp, Status};
use roce_proto::wire::aeth::Nak;
use vp_api::{AsyncEvent, RefusedOperation, RefusedSegment, Stag, Terminate, WcStatus};
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

/// The event of a connection that broke. `refused`: the peer's request that this end refused; `failed`: the one of this end.
pub(crate) fn of_end(
    broken: Broken,
    refused: Option<Terminate>,
    failed: Option<Post>,
) -> AsyncEvent {
    match broken {
        Broken::Refused(Nak::RemoteAccess | Nak::InvalidRequest) if let Some(why) = refused => {
            AsyncEvent::TerminateSent(why)
        }
        Broken::Refused(Nak::RemoteAccess) => sent(PROTECTION),
        // The request was correct; this end could not execute it.
        Broken::Refused(Nak::RemoteOperational) => sent(CATASTROPHIC),
        Broken::Refused(_) => sent(OPERATION),
        Broken::Failed(status) => match status {
            Status::RemoteAccess => received_for(PROTECTION, failed),
            Status::RemoteInvalidRequest => received_for(OPERATION, failed),
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
    sent(CATASTROPHIC)
}

fn sent(etype: u8) -> AsyncEvent {
    let code = if etype == CATASTROPHIC { 0 } else { UNSPECIFIED };
    AsyncEvent::TerminateSent(Terminate::new(true, 0, etype, code))
}

fn received(etype: u8) -> AsyncEvent {
    received_for(etype, None)
}

fn received_for(etype: u8, failed: Option<Post>) -> AsyncEvent {
    let code = if etype == CATASTROPHIC { 0 } else { UNSPECIFIED };
    let refused = failed.map(|post| {
        let (operation, target) = match post.op {
            SendOp::Send { .. } => (RefusedOperation::Send, None),
            SendOp::Write { address, rkey, .. } => (RefusedOperation::Write, Some((rkey, address))),
            SendOp::Read { address, rkey } => (RefusedOperation::Read, Some((rkey, address))),
            SendOp::Atomic { address, rkey, .. } => {
                (RefusedOperation::Atomic, Some((rkey, address)))
            }
        };
        segment(operation, post.len, target.map(|(rkey, address)| (Stag(rkey), address)))
    });
    let mut terminate = Terminate::new(false, 0, etype, code);
    terminate.refused = refused;
    AsyncEvent::TerminateReceived(terminate)
}

/// A whole request.
pub(crate) fn segment(
    operation: RefusedOperation,
    octets: u32,
    target: Option<(Stag, u64)>,
) -> RefusedSegment {
    RefusedSegment { operation, octets, whole: true, target, region: None }
}

/// Why this end refuses a request for its memory: the codes of RFC 5040 4.8.
pub(crate) fn refusal(why: AccessError, refused: RefusedSegment) -> Terminate {
    let (etype, code) = match why {
        AccessError::InvalidStag => (PROTECTION, 0),
        AccessError::Bounds => (PROTECTION, 1),
        AccessError::Access => (PROTECTION, 2),
        AccessError::NotAssociated => (PROTECTION, 3),
        AccessError::Wrap => (PROTECTION, 4),
        AccessError::CannotInvalidate => (PROTECTION, 9),
        // RFC 7306 8.2
        AccessError::Unaligned => (OPERATION, 7),
    };
    let mut terminate = Terminate::new(true, 0, etype, code);
    terminate.refused = Some(refused);
    terminate
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
