//! Wire and protocol errors, and the one table from error to Terminate code.

/// A Terminate's layer, error type and error code (RFC 5040 section 4.8, RFC 6580 registry).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct TerminateCode {
    pub layer: u8,
    pub etype: u8,
    pub code: u8,
}

/// Octets that are not what the format asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WireError {
    /// Fewer octets than the header needs.
    Truncated {
        /// Octets needed.
        need: usize,
        /// Octets there.
        have: usize,
    },
}

/// What the peer (or we) did wrong; total function to [`TerminateCode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ProtocolError {
    /// RDMAP 0/0/0.
    LocalCatastrophic,
    // one variant per row of the error table; RDMAP, DDP and MPA
}
