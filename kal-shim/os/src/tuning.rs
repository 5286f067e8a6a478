//! Tuning constants of this crate: how a waiting thread spins, and how a fork waits. Each has the measurement
//! that chose it and the command that repeats it, or the reason for its value where there was none.

use std::time::Duration;

/// Checks per yield of a spinning thread while other threads use the yields: the peer may need this very processor.
///
/// *Measured*: with a yield after every check, half a round trip of 8 octets takes 10 % longer
/// (docs/findings.md); `warpline perf local --op send --mode lat --size 8 --wait`.
pub(crate) const CHECKS_PER_YIELD: u32 = 8;

/// Most checks per yield, while no thread uses the yields.
///
/// *Measured* with `--bin channel`, messages of 64 octets on IT-API: half a round trip takes 1.3 to 1.8 us instead of the 1.9 to
/// 2.0 of 8 checks. Both ends on one processor: 6.5 to 7.9 us with either, but 10 us with 32 checks before every yield.
pub(crate) const MOST_CHECKS: u32 = 64;

/// After a yield that took this long, another thread used the processor meanwhile.
///
/// *Not measured by itself*: a yield to no thread takes 0.3 to 0.7 us, one to a peer that receives and replies 3 us or more.
pub(crate) const USED_YIELD: Duration = Duration::from_nanos(1500);

/// After a yield that took this long, the processor was used by a thread that computes.
///
/// *Not measured by itself*: far above a yield to a thread that sleeps again (microseconds), far below a
/// time slice (milliseconds).
pub(crate) const LONG_YIELD: Duration = Duration::from_micros(500);

/// The number of waits without a spin after such a yield.
///
/// *Measured*, against always spinning: next to two compilers, half a round trip of a waiting program falls
/// from 522 to 34 us (docs/findings.md, "Beside busy processes"); the command as above. Other numbers were
/// not compared: with this one, a waiter next to busy threads risks a time slice in one wait of 129.
pub(crate) const WAITS_WITHOUT_SPIN: u32 = 128;

/// How often at most a fork checks whether other threads still create descriptors, a second in all: a
/// signal handler may fork in the middle of that.
///
/// *Not measured*: a bound that only a fork from a signal handler reaches.
pub(crate) const FORK_CHECKS: u32 = 10_000;

/// The pause between two such checks.
///
/// *Not measured*: creating a descriptor takes a few microseconds, so that one pause is mostly enough.
pub(crate) const FORK_PAUSE: Duration = Duration::from_micros(100);
