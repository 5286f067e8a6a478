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

/// Connections of a process that share memory with their peers: 512 KiB each.
pub(crate) const ATTACHED: u32 = 256;

/// Octets of the ring of each direction. *Chosen* so that two messages of 128 KiB fit, and both rings stay in a cache of 1 MiB.
pub(crate) const RING: u32 = 256 << 10;

/// Octets that count as much as a call: a connection has moved enough by [`MIN_CALLS`] or by [`MIN_OCTETS`].
pub(crate) const CALL_OCTETS: u64 = MIN_OCTETS / MIN_CALLS;

/// Names that a process has at a time, for peers to find it.
pub(crate) const NAMES: usize = 16;

/// How long a wait looks at memory before it sleeps, in microseconds, unless it is set.
pub(crate) const SPIN_MICROS: u64 = 50;

/// Between two questions to the kernel of a wait that looks at memory.
pub(crate) const ASK_NS: u64 = 3_000;

/// A wait that looks at memory and loses the processor for so long stops: others need it.
pub(crate) const AWAY_NS: u64 = 15_000;

/// After that no wait looks for so long.
pub(crate) const CROWDED_NS: u64 = 20_000_000;

/// Most waits in succession that sleep at once after some that looked in vain.
pub(crate) const MOST_SKIPPED: u32 = 31;

/// How long a full ring is waited for while the peer reads; a tenth of that in a call that must not wait.
pub(crate) const ROOM_NS: u64 = 5_000_000;

/// A peer that reads nothing for so long does something else: then the rest goes by TCP.
pub(crate) const ROOM_STEP_NS: u64 = 50_000;

/// Sets of epoll(7) that are followed at a time in one process.
pub(crate) const SETS: usize = 64;

/// A wait that finds octets in memory asks the kernel for other events if so much time has passed since it last did.
pub(crate) const FAIR_NS: u64 = 20_000;
