//! Bounds of this library, each with the reason for its value.

/// Descriptors that are followed: those with smaller numbers. A word of memory each, which costs nothing until it is used.
pub(crate) const DESCRIPTORS: usize = 1 << 16;

/// Connections that are followed at a time in one process. 128 octets each, which cost nothing until they are used.
pub(crate) const CONNECTIONS: usize = 1 << 14;

/// A free connection is looked for in so many places, from the one that was freed last: in a full table a look at all of them
/// would take as long as making a connection.
pub(crate) const SEARCHED: usize = 64;

/// A connection that moves less than this is `too-short` to gain from shared memory: to share memory takes two processes
/// 45 to 80 us, as long as four to eight requests with replies over TCP.
pub(crate) const MIN_CALLS: u64 = 16;

/// The same in octets: a connection is long enough if it has moved either.
pub(crate) const MIN_OCTETS: u64 = 64 << 10;
