//! Sans-IO RoCE v2: InfiniBand's transport over UDP as state machines.
//!
//! No IO, no clock, no user memory, no `unsafe`: octets in, effects out.
//!
//! | module | what it is |
//! |---|---|
//! | [`wire`] | headers: BTH, extended headers, whole packets |
//! | [`icrc`] | the invariant CRC, and its check where the IPv4 identification is unknown |
//! | [`rc`] | reliable connections: requester and responder |
//! | [`uc`] | unreliable connections |
//! | [`ud`] | unreliable datagrams |
//! | [`cm`] | the communication manager's messages, rdma_cm's inside them, and their exchange |
//! | [`decode`] | explains packets field by field, for people |
//!
//! # From a datagram to a queue pair
//!
//! 1. Parse the UDP payload: [`wire::packet::Packet::parse`]; drop what is not a packet.
//! 2. Find the queue pair of `bth.destination`; drop the packet without a NAK if there is none. On a
//!    connection, the source address must be that of the path.
//! 3. Check the invariant CRC: [`icrc::of_datagram`] for IPv6 and known identifications, [`icrc::identify`] for
//!    others; drop the packet if it fails.
//! 4. [`rc::Qp::handle_packet`], [`uc::Qp::handle_packet`], [`ud::accept`], or, for queue pair 1,
//!    [`cm::mad::Mad::parse`].
//!
//! # Choices
//!
//! - At a NAK or a lost response the requester goes back to the missing packet at once, and once: later reports
//!   of the same loss are ignored.
//! - A Read is requested in pieces of at most the window, because responses come as fast as the peer can send.
//! - Credits are neither counted nor given, as in all software and most adapters.
//! - Atomics execute in the byte order of the host, and travel in network order.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cm;
pub mod decode;
pub mod icrc;
pub mod psn;
pub mod rc;
pub mod uc;
pub mod ud;
pub mod wire;
