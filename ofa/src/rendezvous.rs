//! The rendezvous: connections of programs that name their peer by GID and queue pair number and use no
//! connection manager. When they change a queue pair to RTR, its stream is made by the library, over
//! MPA.
//!
//! A queue pair's number is `slot << 16 | port`: the TCP port of one of the process's listening points,
//! and its slot there. Of the two ends the one with the smaller name (address, number) connects to the
//! other's point; its private data names itself and the peer ([`name`]). The other accepts when it is in
//! RTR or RTS with exactly this peer; an earlier request waits ([`EarlyPeers`]), for as long as the
//! access layer lets requests wait. An attempt that fails is repeated, until a send has waited as long
//! as the program's time-out and retries allow ([`retry`]). No adapter and no other stack takes part in
//! this.
//!
//! Points belong to the adapter and stay open as long as it does; a slot belongs to its queue pair. The
//! death of the peer is detected as on any connection, and the queue pair goes to ERR.

mod meeting;
mod name;
mod point;
mod retry;
mod steady;
pub(crate) mod to_itself;

pub(crate) use meeting::{Meeting, Peer};
pub(crate) use name::Name;
pub(crate) use point::{EarlyPeers, PeerRequest, PeerTarget, Points, Slot};
pub(crate) use retry::Retry;
