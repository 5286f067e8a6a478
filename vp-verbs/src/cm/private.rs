//! Private data of connection messages. On InfiniBand it is padded ([`roce_proto::cm::private`]); on iWARP its
//! length is transferred.
//!
//! Pure functions.

pub(crate) use roce_proto::cm::private::{REJECT, REPLY, REQUEST, TRAILER, pack, unpack};

/// Octets of private data in any message of iWARP: rdma_cm's length fits into an octet, less MPA's 4 octets
/// (RFC 6581 section 5).
pub(super) const IWARP: usize = 251;

/// Octets of private data that a consumer can give to connect, accept and reject.
pub(crate) fn most(iwarp: bool) -> [usize; 3] {
    [REQUEST, REPLY, REJECT].map(|room| if iwarp { IWARP } else { room - TRAILER })
}
