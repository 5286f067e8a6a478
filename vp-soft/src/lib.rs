//! Shared parts of software verbs providers: registered memory, queues, and tables of objects.
//!
//! | module | what |
//! |---|---|
//! | [`memory`] | regions, windows, STags: [`memory::stag_table`], [`memory::place`] |
//! | [`queue`] | the ring behind a completion queue ([`queue::cq_ring`]), work queues, shared receive queues |
//! | [`objects`], [`events`], [`limits`], [`ports`] | tables of verbs objects, asynchronous events, common limits, network interfaces |
//!
//! This crate knows no wire protocol and has no sockets and no threads. The provider defines how a completion queue
//! makes progress, and what a queue pair is.
//!
//! On the data path QPs share only two lock-free structures: the ring of a CQ and the STag table.
//!
//! **STag table.** Segments of slots. A slot holds its STag and a use count in one word, and its grant is immutable
//! while valid. A lookup takes no lock. Deregistration makes the slot invalid and waits, for a bounded time, until
//! no thread uses it. All 24 bits of an index are random: some of them select the slot, and the slot compares the
//! others with its own index. Key octets are random, too, and change at each use. Every access is checked.
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
