//! Private data of connection messages: padded on InfiniBand ([`roce_proto::cm::private`]); on iWARP the length is
//! transferred.
//!
//! Pure functions.

pub(crate) use roce_proto::cm::private::{REJECT, REPLY, REQUEST, TRAILER, pack, unpack};

/// Room in any of iWARP's: a length that fits into an octet, less MPA's 4 octets (RFC 6581 section
/// 5).
pub(super) const IWARP: usize = 251;

/// Octets that a consumer can give to a connect, an accept and a reject.
pub(crate) fn most(iwarp: bool) -> [usize; 3] {
    [REQUEST, REPLY, REJECT].map(|room| if iwarp { IWARP } else { room - TRAILER })
}
