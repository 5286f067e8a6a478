//! RoCE v2 from user space: a verbs provider that speaks InfiniBand's transport over UDP port 4791, on ordinary
//! sockets and without privileges.
//!
//! | module | what |
//! |---|---|
//! | `provider`, `rnic`, `limits` | the adapter: privileged verbs |
//! | `engine` | the process's sockets at port 4791, its queue pair numbers, timers, and the thread that serves them |
//! | `cq`, `qp` | completion queues and connected queue pairs |
//! | `ud`, `sources` | datagrams: queue pairs, address handles, sources of what was received |
//! | `cm` | the connection manager, and the services of datagrams |
//! | `path` | ports, GIDs and path MTUs |
//! | `settings` | keys of the configuration |
//! | `tuning` | tuning constants |
//!
//! The protocol is in the crate `roce-proto`; registered memory, the rings of queues and the tables of objects are
//! in `vp-soft`. `docs/roce.md` says what it is for and what it is not for.
//!
//! # How it works
//!
//! **Sockets.** All RNICs of a process share one engine. It has a socket for each local address that a listener or
//! a connection uses, bound to that address and port 4791. A socket is never bound to the wildcard and never
//! connected: then the kernel sets the IPv4 identification to 0, which the invariant CRC covers (`engine/socket`).
//! Processes of one user share the port; the kernel steers each packet to its process (`engine/neighbours`,
//! `engine/steering`). Another user gets an error that names the holder.
//!
//! **Integrity.** The invariant CRC is checked in full if the peer is this provider, and for all peers over IPv6.
//! For other peers over IPv4 the identification is unknown, and 2^-16 of randomly damaged packets pass; Ethernet's
//! own CRC protects them, too. RoCE has no authentication: any sender that uses the peer's address can write to
//! memory that the peer may write. Queue pair numbers, sequence numbers and STags are random, but for the four bits of a process's slot.
//!
//! **Locks.** A QP's state is under one lock. A thread that holds it sends, and never receives. One thread at a
//! time receives, for all sockets, under the engine's receive lock: the engine's thread, or a thread that polls and
//! finds its CQ empty. Notifications and events are delivered when no lock is held. Order: joining an address and
//! the lock of this user's processes, receive lock, tables of the connection manager, a QP, an SRQ or a slot of the STag table, timers.
//!
//! **Lost peers.** A timer repeats a request that is not acknowledged, for some 2 s in all; then the connection
//! ends. An idle connection is probed by a zero-length RDMA Write every 10 s.
//!
//! **Reuse.** Each connection of a QP has its own queue pair number, so late packets of an earlier connection are
//! dropped.

#![forbid(unsafe_code)]

mod cm;
mod cq;
mod engine;
mod limits;
mod path;
mod provider;
mod qp;
mod rnic;
mod settings;
mod sources;
mod tuning;
mod ud;

pub use provider::{NAME, Roce};
