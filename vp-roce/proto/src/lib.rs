//! Sans-IO RoCE v2: InfiniBand's transport over UDP as state machines.
//!
//! No IO, no clock, no user memory, no `unsafe`: octets in, effects out.
//!
//! | module | what it is |
//! |---|---|
//! | [`wire`] | headers: BTH, extended headers, whole packets |
//! | [`icrc`] | the invariant CRC, and its check where the IPv4 identification is unknown |
//! | [`rc`] | reliable connections: requester and responder |
//! | [`ud`] | unreliable datagrams |
//! | [`cm`] | the communication manager's messages, rdma_cm's inside them, and their exchange |
//! | [`decode`] | explains packets field by field, for people |
//!
//! # From a datagram to a queue pair
//!
//! 1. UDP payload and addresses: [`wire::packet::Packet::parse`]; what is no packet is dropped.
//! 2. The queue pair of `bth.destination`; one that does not exist is met with silence, never with a NAK. Of a
//!    connection, the source address must be the path's.
//! 3. [`icrc::of_datagram`] for IPv6 and for known identifications, [`icrc::identify`] for others; what
//!    fails is dropped.
//! 4. [`rc::Qp::handle_packet`], [`ud::accept`], or, for queue pair 1, [`cm::mad::Mad::parse`].
//!
//! # Choices
//!
//! - A NAK or a lost response takes the requester back to what is missing at once, and once: what else arrives
//!   from before is old.
//! - A Read is asked for in pieces of the window at most, for responses come as fast as the peer can send.
//! - Credits are neither counted nor given, as by all software and most adapters.
//! - Atomics execute in the byte order of the host, and travel in network order.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cm;
pub mod decode;
pub mod icrc;
pub mod psn;
pub mod rc;
pub mod ud;
pub mod wire;
