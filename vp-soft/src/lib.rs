//! What verbs providers in software share: registered memory, queues, and tables of objects.
//!
//! | module | what |
//! |---|---|
//! | [`memory`] | regions, windows, STags: [`memory::stag_table`], [`memory::place`] |
//! | [`queue`] | the ring behind a completion queue ([`queue::cq_ring`]), work queues, shared receive queues |
//! | [`objects`], [`events`], [`limits`], [`ports`] | tables of verbs objects, asynchronous events, common limits, network interfaces |
//!
//! It knows no wire, no sockets and no threads of its own. What a completion queue does to make progress, and
//! what a queue pair is, is the provider's.
//!
//! Between QPs nothing is shared on the data path but two lock-free structures: the ring of a CQ and the STag
//! table.
//!
//! **STag table.** Segments of slots; a slot holds its STag and a use count in one word, and its grant
//! is immutable while valid. A lookup takes no lock; deregistration makes the slot invalid and waits,
//! bounded, until no thread uses it. All 24 bits of an index are random: some of them select the slot,
//! and the slot compares the others with its own index. Key octets are random, too, and change at each
//! use. Every access is checked.
//!
//! **Memory.** Registered memory is never a Rust reference. [`memory::place`] copies with raw pointers. A
//! `MemRange` with an owner keeps the memory alive while any region covers it, so safe Rust cannot
//! free what a peer may still write.

pub mod events;
pub mod limits;
pub mod memory;
pub mod objects;
pub mod ports;
pub mod queue;
#[cfg(all(any(test, feature = "testing"), not(loom)))]
pub mod testing;

use kal_os::sync;
