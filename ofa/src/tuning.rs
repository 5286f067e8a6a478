//! Tuning constants of this crate: batches, intervals of checks, and how long a thread leads. Each has the
//! measurement that chose it and the command that repeats it, or the reason for its value where there was none.
//! Time-outs are beside what they end, and in docs/verbs.md where a program notices them.

use std::time::Duration;

/// Completions taken from the provider at once. Each poll initialises room for them, also one that finds none.
///
/// *Not measured by itself*: of larger ones, empty polls pay; `cargo run --release -p warpline-benches --bin
/// instructions` counts a completion alone, 16 at once, and an empty poll.
pub(crate) const POLL_BATCH: usize = 8;

/// Completions that an iteration (`ibv_start_poll`) takes at once.
///
/// *Not measured*: programs that iterate expect many; an array of 16 is 1 KiB in the queue, not on the stack.
pub(crate) const ITERATION: usize = 16;

/// Requests of a list that are passed to the provider at once.
///
/// *Not measured by itself*: one call of the provider and one lock for 16 requests are small beside the requests.
pub(crate) const POST_LIST: usize = 16;

/// Polls in vain until the processor is yielded once: with few processors, the peer may need it.
///
/// *Not measured*: some 50 us of polling, which is longer than a round trip on one machine.
pub(crate) const POLLS_PER_YIELD: u32 = 1000;

/// A reader of a completion channel serves the device's sockets for this long; then it leaves them to the device's
/// own thread and sleeps where its thread can be cancelled.
///
/// *Not measured*: ten changes a second of a thread that waits for long; a cancelled thread ends this much later.
pub(crate) const LEAD: Duration = Duration::from_millis(100);

/// Between two checks of a queue that drains, or of a stream that ends.
///
/// *Not measured*: both are rare, and end one check late at most.
pub(crate) const STATE_CHECK: Duration = Duration::from_millis(1);

/// The pause between two attempts to meet a peer by GID and number: at first, doubling.
///
/// *Not measured*: the other process is mostly a few milliseconds behind.
pub(crate) const FIRST_ATTEMPT: Duration = Duration::from_millis(5);

/// The same at most.
///
/// *Not measured*: ten connections a second to a peer that is not there yet.
pub(crate) const LONGEST_ATTEMPT: Duration = Duration::from_millis(100);

/// Between two checks of a queue pair that waits for its peer.
///
/// *Not measured*: it bounds how late a send that waits for a peer is given up.
pub(crate) const PEER_CHECK: Duration = Duration::from_millis(250);
