//! Two rings of octets, one each way, in memory that two processes share.
//!
//! | file | what |
//! |---|---|
//! | `memory` | the memory: made and sealed ([`create`]), verified ([`verify`]), mapped |
//! | `page` | its first page: the words that both ends read and write |
//! | `octets`, `copy` | the octets of one ring, and how they are copied |
//! | `end` | [`End`]: write, read, sleep, close |
//!
//! One process makes the memory, a memfd that can neither shrink nor grow, and passes it to the other,
//! which verifies it. Each maps it once. A ring has one producer and one consumer; each of them writes its
//! own words of the first page and reads the other's.
//!
//! **The peer is hostile.** It may write anything anywhere in the memory at any moment. So no Rust
//! reference to octets of a ring exists; they are copied by raw pointers into memory of the caller's, who
//! looks only at the copy. Positions of the peer are checked each time they are read ([`Corrupt`]); where
//! octets are copied depends on this end's positions only, which are not in the memory. What this end reads back of
//! its own words is nothing but flags, whose worst values cost a wake-up more or a sleep that a time-out ends.
//!
//! **Sleep.** An end that is about to sleep says so in the page, *then* looks at the rings once more, *then*
//! sleeps; the other publishes, *then* looks whether this one sleeps, and calls the caller's `bell` if so. Both
//! put a sequentially consistent fence between their two steps, so at least one sees the other's step. Nobody
//! who is awake is rung for: there is no system call here but at the start and the end.
//!
//! **Death.** The memory says nothing about the life of the peer: whoever uses it needs another sign.
//! What was written before the peer died can still be read. The memory is freed with the last mapping.
//!
//! **Fork.** A child has the mapping, too, and must not use it: see [`End::map`].

// The model has memory of its own.
#![cfg_attr(all(test, loom), allow(dead_code, unused_imports))]

mod copy;
mod end;
mod memory;
mod octets;
mod page;

pub use copy::NON_TEMPORAL_MIN;
pub use end::{Corrupt, End, Side};
pub use memory::{MAX_RING, MIN_RING, Refused, create, verify};

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
