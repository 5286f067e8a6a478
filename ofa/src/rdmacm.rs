//! librdmacm on the connection manager of `ual-cm`: event channels, identifiers (`rdma_cm_id`), and
//! their states from an address to a connection and its end.
//!
//! - [`Id`] is an identifier's state and the calls allowed in it; [`Channel`] the queue of events behind
//!   a descriptor. Both are safe code; `calls` has the functions for C.
//! - An `IdEndpoint` joins an identifier and a queue pair for one connection: it is the manager's
//!   endpoint. The end of a connection belongs to the identifier: it is reported once, also if the queue
//!   pair was destroyed first.
//! - Identifiers of connection requests are created when the event is fetched, as in rdma-core, in the
//!   application's thread. A request that is neither accepted nor rejected is rejected when it is
//!   dropped.
//!
//! The application owns an identifier until rdma_destroy_id, which removes its queued events and waits
//! for those that are not acknowledged. Events come from the connection manager's thread, or from a
//! caller that does its work. Lock order: an identifier's state, then its channel reference, then the
//! channel's queue; the connection manager is called under none of them except to bind and to listen.

mod address;
pub mod calls;
mod carrier;
mod channel;
mod connect;
mod datagrams;
mod endpoint;
mod event;
mod group;
mod id;
mod listen;
mod multicast;
mod option;
mod port;
mod ports;
mod request;

pub use channel::Channel;
pub use id::Id;
