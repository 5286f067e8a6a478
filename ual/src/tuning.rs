//! Tuning constants of this crate: how long a wait for a connection spins, and batches of completions. Each has
//! the measurement that chose it and the command that repeats it, or the reason for its value where there was none.

/// A wait for a connection event spins this many times as long as a wait for a completion (`spin_us`).
///
/// *Not measured by itself*: a connection needs two messages, and an action of the peer's application between them.
/// With no spin at all, connections come at 0.71 of raw TCP's rate instead of 1.07 (docs/findings.md); `warpline perf
/// local --mode connect --wait`, against `--spin 0`.
pub(crate) const CONNECTION_SPINS: u32 = 2;

/// Completions moved to a staging queue in one go, under its lock.
///
/// *Not measured*: a lock and a call of the provider for each 32 completions are small beside moving them; the
/// array is 2 to 3 KiB of stack.
pub(crate) const STAGED_BATCH: usize = 32;

/// Completions of datagrams polled at once with their senders.
///
/// *Not measured*: as [`STAGED_BATCH`]; each takes room for its sender, too.
pub(crate) const DATAGRAM_BATCH: usize = 16;
