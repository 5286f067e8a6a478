//! The rendezvous: connections of programs that know their peer by GID and queue pair number, and use no
//! connection manager. They bring a queue pair to RTR; its stream is made under the hood, over MPA.
//!
//! A queue pair's number is `slot << 16 | port`: the TCP port of one of the process's meeting points, and its
//! place there. Of the two ends the one with the smaller name (address, number) connects to the other's point
//! and says in its private data whom it looks for and who it is ([`name`]). The other accepts when it is in RTR
//! or RTS with exactly this peer; who comes earlier waits ([`Parked`]), for as long as the access layer lets
//! requests wait. A connection that does not come about is tried again, until a send has waited as long as
//! the program's time-out and retries say ([`retry`]). No adapter and no other stack takes part in this.
//!
//! Points belong to the adapter and stay open as long as it does; a slot belongs to its queue pair. When the
//! peer dies its end is seen as any connection's, and the queue pair goes to ERR.

mod meeting;
mod name;
mod point;
mod retry;
mod steady;
pub(crate) mod to_itself;

pub(crate) use meeting::{Meeting, Peer};
pub(crate) use name::Name;
pub(crate) use point::{Came, Parked, Points, Slot, Sought};
