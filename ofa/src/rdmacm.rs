//! Connections as librdmacm has them, on the connection manager of `ual-cm`: event channels, identifiers
//! (`rdma_cm_id`), and what they go through from an address to a connection and its end.
//!
//! - [`Id`] is an identifier's state and what may be asked of it in that state; [`Channel`] the queue of events
//!   behind a descriptor. Both are safe code; `calls` has the functions for C.
//! - A `Party` joins an identifier and a queue pair for one connection: it is the manager's endpoint. The end of
//!   a connection belongs to the identifier: it is told once, also when the queue pair went before.
//! - Identifiers of connection requests are made when the event is fetched, as in rdma-core, in the
//!   application's thread. A request that nobody answers is rejected when it is dropped.
//!
//! The application owns an identifier until rdma_destroy_id, which takes back the events that are queued and
//! waits for those that are not acknowledged. Events come from the connection manager's thread, or from a
//! caller that does its work. Locks: an identifier's state, then its place at a channel, then the channel's
//! queue; the connection manager is called under none of them but to bind and to listen.

mod address;
pub mod calls;
mod channel;
mod connect;
mod event;
mod id;
mod listen;
mod option;
mod party;
mod port;
mod request;

pub use channel::Channel;
pub use id::Id;
