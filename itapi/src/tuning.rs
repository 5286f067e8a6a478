//! Tuning constants of this crate: batches, budgets, shards. Each has the measurement that chose it and the command
//! that repeats it, or the reason for its value where there was none.

/// Work requests that go to the provider in one call.
///
/// *Not measured by itself*: a call of the provider, with its lock, is some 60 instructions; of 8 requests, more than
/// 5,000 by `cargo run --release -p warpline-benches --bin instructions` ("post and transmit in lists"). The array is
/// on the stack.
pub(crate) const POST_BATCH: usize = 8;

/// Completions taken from the provider in one call.
///
/// *Not measured by itself*: by `--bin instructions` a completion costs 85 instructions alone and 39 of 16 at once, of which
/// the call is less than 4 each by then. The array of 1 KiB is initialized by each call, also by one that finds nothing.
pub(crate) const POLL_BATCH: usize = 16;

/// Events that a stream returns before it lets other tasks run.
///
/// *Not measured*: a yield is a few hundred nanoseconds, small beside 64 events; other tasks wait some 20 us for it.
#[cfg(feature = "tokio")]
pub(crate) const EVENT_BUDGET: u8 = 64;

/// Lists of endpoints in a dispatcher. Many, so that adding one of many endpoints copies a short list.
///
/// *Not measured*: of 10,000 endpoints, adding one copies 625 entries of 16 octets instead of 10,000; a dispatcher of one
/// endpoint pays 128 octets for the empty ones. A lookup divides by this number, so a power of two.
pub(crate) const SHARDS: usize = 16;
const _: () = assert!(SHARDS.is_power_of_two());
