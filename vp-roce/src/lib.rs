//! RoCE v2 from user space: a verbs provider that speaks InfiniBand's transport over UDP port 4791, on ordinary
//! sockets and without any right.
//!
//! | module | what |
//! |---|---|
//! | `provider`, `rnic`, `limits` | the adapter: privileged verbs |
//! | `engine` | the process's sockets at port 4791, its queue pair numbers, timers, and the thread that serves them |
//! | `cq`, `qp` | completion queues and queue pairs |
//! | `cm` | the connection manager |
//! | `tuning` | tuning constants |
//!
//! The protocol is the crate `roce-proto`; registered memory, the rings of queues and the tables of objects are
//! `vp-soft`. What it is for and what not is in `docs/roce.md`.
//!
//! # How it works
//!
//! **Sockets.** All RNICs of a process share one engine. It has a socket for each local address that a listener
//! or a connection uses, bound to that address and port 4791, never to the wildcard and never connected: then the
//! kernel sets the IPv4 identification to 0, which the invariant CRC covers (`engine/socket`). So one process has port
//! 4791 of an address; another one that asks for it gets an error that says so.
//!
//! **Integrity.** Of peers that are this provider, and over IPv6, the invariant CRC is checked in full. Of others
//! over IPv4 it is checked with the identification unknown: 2^-16 of randomly damaged packets pass, behind
//! Ethernet's own CRC. RoCE has no authentication: whoever can send from the peer's address can write to
//! memory that the peer may write. Queue pair numbers, sequence numbers and STags are random.
//!
//! **Locks.** A QP's state is under one lock. A thread that holds it sends, and never receives. One thread at a time
//! receives, for all sockets, under the engine's receive lock: the engine's thread, or a poller that finds its CQ
//! empty. Notifications and events are delivered when no lock is held. Order: receive lock, table of the connection
//! manager, a QP, an SRQ or a slot of the STag table, timers.
//!
//! **Lost peers.** A request without acknowledgement is repeated by its timer, some 2 s in all, then the
//! connection ends. An idle connection is probed by a zero-length RDMA Write every 10 s.
//!
//! **Reuse.** Each connection of a QP has a queue pair number of its own, so that late packets of an earlier one find
//! nothing.

#![forbid(unsafe_code)]

mod cm;
mod cq;
mod engine;
mod limits;
mod provider;
mod qp;
mod rnic;
mod tuning;

pub use provider::{NAME, Roce};
