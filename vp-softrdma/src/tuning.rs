//! Tuning constants: how long, how much, how often; each with the measurement that chose it.
//!
//! What a constant was compared with stands behind *Measured*: the value, and the ratio of the row of
//! `warpline perf local` that depends most on it, other value to this one. `scripts/tune NAME VALUE...`
//! repeats it: it builds the command with each value and measures them in turns, with the options behind
//! `tune:`. Below 0.98 a value is slower, between 0.98 and 1.02 it is no different. How a waiting thread
//! spins is in [`kal_os::Spinner`].

use crate::limits;

// Progress.

/// How long the engine stays away after an application thread was inside: at first.
pub(crate) const FIRST_BACK_OFF_NS: u64 = 50_000;

/// The same at most, while applications keep coming.
pub(crate) const BACK_OFF_NS: u64 = 1_000_000;

/// Looks at a socket within one back-off of the engine that show a thread that does little else:
/// the engine's epoll set does without the socket.
pub(crate) const OFTEN: u32 = 256;

/// Up to so many QPs of a CQ are polled one by one, without asking epoll.
pub(crate) const DIRECT_QPS: usize = 4;

/// Every so many such polls the other QPs of the RNIC get a look, too.
pub(crate) const LOOK_AROUND: u32 = 128;

/// A consumer of many QPs that always finds completions flushes what is deferred all the same, every
/// so many polls: else a QP that is given new work at each of its completions keeps others from transmitting.
pub(crate) const FLUSH_EVERY: u32 = 24;

/// So many polls in vain without an arm between them end the event mode of a CQ.
pub(crate) const EVENT_MODE_POLLS: u32 = if cfg!(loom) { 2 } else { 16 };

/// A poller that finds another thread inside a QP yields its processor every so many times.
pub(crate) const SHUT_OUTS_PER_YIELD: u32 = 16;

/// Events taken per `epoll_wait`.
pub(crate) const EVENTS: usize = 64;

// Coalescing.

/// Octets of payload that are worth a system call of their own: with so many deferred, a post transmits.
pub(crate) const FULL_OCTETS: u64 = 1 << 20;

/// Longest that a post is deferred, in nanoseconds.
pub(crate) const BOUND_NS: u64 = 25_000;

/// Longest time between two looks of the engine at a QP whose consumer has polled in time again and again.
pub(crate) const LAZY_NS: u64 = 1_000_000;

// Transmit.

/// Octets of a batch: then the socket is asked to take them. The end of each batch is a packet of its own,
/// mostly a small one. 16 KiB are for headers: messages that fill a MiB are in it to their ends.
pub(crate) const BATCH_OCTETS: usize = (1 << 20) + (16 << 10);

/// Of those, octets that are copied: what fits into a core's second cache. Headers count here: so
/// messages that fill it end it, too, and the next ones begin another.
pub(crate) const ARENA_OCTETS: usize = 256 << 10;

/// FPDUs in a batch.
pub(crate) const BATCH_FPDUS: usize = 512;

/// From so many octets on a payload is sent without a copy, if there is no CRC.
pub(crate) const GATHER_MIN: u32 = 4 << 10;
// So that it is in registered memory, and not inline.
const _: () = assert!(GATHER_MIN > limits::MAX_INLINE);

/// Octets that a QP sends before others get their turn.
pub(crate) const SEND_BUDGET: usize = BATCH_OCTETS;

/// Octets whose sending takes so long that the socket is worth another look for what came meanwhile.
pub(crate) const LONG_SEND: usize = 64 << 10;

// Receive.

/// Octets asked of the socket at once: as large as still stays in the cache.
pub(crate) const STAGING: usize = 256 << 10;

/// Octets read for one QP before others get their turn.
pub(crate) const RECEIVE_BUDGET: usize = 1 << 20;

/// Octets of a payload that are worth a system call of their own, straight into registered memory.
pub(crate) const PLACE_MIN: u32 = 32 << 10;

/// Reads without news of a large payload after which none is expected.
pub(crate) const PLACE_READS: u8 = 2;

/// Pauses, of some 20 ns each, between two looks at a socket that is to bring the rest of a payload.
pub(crate) const PAUSES: u32 = 64;

// CRC32c.

/// Below so many octets, to copy first and sum then is as fast as both at once.
pub(crate) const COPIER_MIN: usize = 1024;

/// Shorter pieces are faster without folding.
pub(crate) const FOLD_MIN: usize = 256;

/// To join the sums of runs takes as long as they save in shorter pieces.
pub(crate) const MIX_MIN: usize = 6 << 10;
