//! Tuning constants of this crate, each with the measurement that chose it, or the reason for its value.

/// While octets are copied, they are published to the other end each time this many are in the ring.
///
/// *Not measured by itself*: a sixteenth of the default ring, so that the other end copies out while this one
/// copies in. Each publication is a store that the other core must fetch. For the sizes of rings see
/// docs/findings.md, "Local streams".
pub(crate) const PUBLISH: u32 = 16 << 10;

/// Copies into a ring of at least this many octets bypass the caches, on processors that can.
///
/// *Measured* by `cargo run --release -p warpline-benches --bin ring_copy`, on AMD EPYCs of the Zen 3 and Zen 4 classes; of the latter:
/// between cores that share no cache, copies through it made 1 to 2 GB/s, non-temporal stores 12 to 20 GB/s wherever
/// the cores are; for few octets the transfer of the line is faster (docs/findings.md).
pub const NON_TEMPORAL_MIN: usize = 4 << 10;

/// An end that finds its ring empty prefetches so many cache lines from where the next octets will be: after the peer
/// wrote them, the processor loads them together with the position, not after it.
///
/// *Measured*, half a round trip of Sends, as ratio to none: 1: 0.87 for 8 octets, 0.99 for 64; 2: 0.87 and 0.90. Rate and
/// bandwidth stay within 2 %.
pub(crate) const PREFETCHED: usize = 2;

/// A [`crate::Companion`] publishes octets, and room, each time this many were copied.
///
/// *Not measured by itself*: an eighth of the ring that sockets have, so that both ends copy at the same time.
pub(crate) const STEP: u64 = 32 << 10;
