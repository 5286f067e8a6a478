//! Byte streams between two processes: a pair of ring buffers in shared memory, one for each direction.
//!
//! | file | what |
//! |---|---|
//! | `memory` | the memory: made and sealed ([`create`]), verified ([`verify`]), mapped |
//! | `page` | its first page: the words that both ends read and write |
//! | `octets`, `copy` | the octets of one ring, and how they are copied |
//! | `end` | [`End`]: write, read, sleep, close |
//! | `companion` | [`Companion`]: rings beside a TCP connection, whose octets go by either |
//!
//! One process makes the memory, a memfd that can neither shrink nor grow, and passes it to the other,
//! which verifies it. Each maps it once. A ring has one producer and one consumer; each of them writes its
//! own words of the first page and reads the other's.
//!
//! **The peer is hostile.** It may write anything anywhere in the memory at any moment. So no Rust
//! reference to octets of a ring exists; they are copied by raw pointers into memory of the caller, which
//! reads only the copy. The peer's positions are checked each time they are read ([`Corrupt`]). The addresses that
//! octets are copied to and from depend only on this end's positions, which are not in the shared memory. The only
//! words of its own that this end reads back are flags; a wrong flag costs at most one wake-up too many, or a sleep
//! that a time-out ends.
//!
//! **Few octets** travel in the cache line of the position ([`SHORT`]), so that the peer waits for one line and not for
//! two. The producer stores them there and publishes the position; only then it copies them into the ring. The consumer
//! takes them from that line if the position is unchanged after it read them, else from the ring: before the producer
//! writes again, it has completed the copy.
//!
//! **Sleep.** An end that is about to sleep sets its flag in the page, *then* checks the rings once more, *then*
//! sleeps. The other end publishes, *then* reads that flag, and calls the caller's `bell` if it is set. Both put a
//! sequentially consistent fence between their two steps, so at least one sees the other's step. `bell` is not
//! called for an end that is awake: without sleep there are no system calls except at the start and at the end.
//!
//! **Death.** The memory does not show whether the peer process is alive: the user of this crate needs another way
//! to find out. Octets written before the peer died can still be read. The memory is freed with the last mapping.
//!
//! **Fork.** A child inherits the mapping, and must not use it: see [`End::map`].

// Loom's model has its own memory.
#![cfg_attr(all(test, loom), allow(dead_code, unused_imports))]

#[cfg(not(loom))]
mod companion;
mod copy;
mod end;
mod memory;
mod octets;
mod page;
mod tuning;

#[cfg(not(loom))]
pub use companion::Companion;
pub use end::{Corrupt, End, Side};
pub use memory::{MAX_RING, MIN_RING, Refused, create, verify};
pub use page::SHORT;
pub use tuning::NON_TEMPORAL_MIN;

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod companion_tests;
#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
