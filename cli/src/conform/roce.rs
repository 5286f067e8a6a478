//! The tester for RoCE v2: packets and connection manager messages from an ordinary UDP socket, judged by a small model of
//! its own. Main thread only; see [`mod@bench`] for the state.

mod access;
mod atomics;
mod bench;
mod caller;
mod catalogue;
mod datagrams;
mod exchange;
mod incoming;
mod link;
mod manager;
mod messages;
mod order;
mod packet;
mod packets;
mod peer;
mod pingpong;
mod reads;
mod requester;
mod requests;
mod stand;
mod wire;

pub(crate) use bench::Bench;

/// A case for RoCE.
type Case = super::case::Case<Bench>;
