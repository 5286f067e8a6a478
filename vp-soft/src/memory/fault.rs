//! Reasons for refusing access to registered memory, or an operation on an STag.
//!
//! Plain values. A provider maps them to what its wire reports to the peer, and to the status of a
//! completion.

/// Why an access to registered memory was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessError {
    /// No such STag, wrong key, invalid state, or STag 0 from a peer.
    InvalidStag,
    /// Outside the region or window.
    Bounds,
    /// The right is missing.
    Access,
    /// Another protection domain or another QP's window.
    NotAssociated,
    /// TO + length exceeds 2^64 - 1.
    Wrap,
    /// Atomic target not aligned to 8 octets.
    Unaligned,
    /// The STag exists but a peer may not invalidate it (shared, window bound to it, no remote right).
    CannotInvalidate,
}

/// Why a bind, a fast registration or an invalidation through a send queue was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalFault {
    /// An STag was refused.
    Access(AccessError),
    /// Needs a privileged QP.
    NotPrivileged,
    /// Bind or fast-register on an STag that is not in the Invalid state.
    NotInvalid,
    /// A window could not be bound (wrong PD, rights, zero-based region).
    Bind,
}
