//! Which protocol error a refused memory access is, by operation (RFC 5040 section 7.2, RFC 5041
//! section 7.1, RFC 7306 section 8.2).
//!
//! Pure functions.

use crate::error::ProtocolError;
use crate::host::AccessError;

/// An inbound RDMA Write or Read Response segment [ERR-13, ERR-14, ERR-15, ERR-16, ERR-17,
/// SEC-01].
pub(crate) fn tagged(error: AccessError) -> ProtocolError {
    match error {
        AccessError::InvalidStag | AccessError::CannotInvalidate => ProtocolError::TaggedStag,
        AccessError::Bounds | AccessError::Unaligned => ProtocolError::TaggedBounds,
        AccessError::Access => ProtocolError::TaggedAccess,
        AccessError::NotAssociated => ProtocolError::TaggedNotAssociated,
        AccessError::Wrap => ProtocolError::TaggedWrap,
    }
}

/// The source of an inbound RDMA Read [ERR-18, RDMAP-07].
pub(crate) fn read_source(error: AccessError) -> ProtocolError {
    match error {
        AccessError::InvalidStag | AccessError::CannotInvalidate => ProtocolError::ReadStag,
        AccessError::Bounds | AccessError::Unaligned => ProtocolError::ReadBounds,
        AccessError::Access => ProtocolError::ReadAccess,
        AccessError::NotAssociated => ProtocolError::ReadNotAssociated,
        AccessError::Wrap => ProtocolError::ReadWrap,
    }
}

/// The target of an inbound Atomic [EXT-08, EXT-15].
pub(crate) fn atomic(error: AccessError) -> ProtocolError {
    match error {
        AccessError::InvalidStag | AccessError::CannotInvalidate => ProtocolError::AtomicStag,
        AccessError::Bounds => ProtocolError::AtomicBounds,
        AccessError::Access => ProtocolError::AtomicAccess,
        AccessError::NotAssociated => ProtocolError::AtomicNotAssociated,
        AccessError::Wrap => ProtocolError::AtomicWrap,
        AccessError::Unaligned => ProtocolError::AtomicUnaligned,
    }
}
