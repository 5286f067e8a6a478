//! Tuning constants of this crate: how long a wait for a connection spins, and batches of completions. Each has
//! the measurement that chose it and the command that repeats it, or the reason for its value where there was none.

/// A wait for a connection event spins this many times as long as a wait for a completion (`spin_us`).
///
/// *Measured*: on loopback a connection takes 150 us, and the end that waits for the next one must not fall asleep
/// just before it comes. With 4 in place of 2, interleaved: 1.14 times as many connections per second with 0.90 of the
/// processor time, because the wake-up costs more than the longer spin; 8 gives 3 % more. `warpline perf local --mode
/// connect --wait`, with `--spin 100` and `--spin 200` against the default. With no spin connections come at 0.71 of
/// raw TCP's rate (docs/findings.md).
pub(crate) const CONNECTION_SPINS: u32 = 4;

/// Completions moved to a staging queue in one go, under its lock.
///
/// *Not measured*: a lock and a call of the provider for each 32 completions are small beside moving them; the
/// array is 2 to 3 KiB of stack.
pub(crate) const STAGED_BATCH: usize = 32;

/// Completions of datagrams polled at once with their senders.
///
/// *Not measured*: as [`STAGED_BATCH`]; each takes room for its sender, too.
pub(crate) const DATAGRAM_BATCH: usize = 16;
