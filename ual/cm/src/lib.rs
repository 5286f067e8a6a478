//! Connection management: from addresses to connected queue pairs and back, for every face.
//!
//! A [`Cm`] manages the connections of one adapter. It knows no face: an endpoint is a [`Connectee`], which
//! owns a [`Connection`]; where a listener's requests go is a [`RequestSink`]; the layer above, with its
//! asynchronous events, is a [`Face`]. IT-API's access layer (`ual`) implements them, and so may any other.
//!
//! One table per adapter owns every socket and machine of connections that are not established yet. One
//! thread (`warpline-cm`) serves it; callers who connect, accept or wait for events do so themselves when it
//! is free (`driver`). Nobody waits for a peer: a slow or hostile one costs a table entry until its timer
//! fires. When a connection is established its socket belongs to the provider, and only its end is heard of.
//! Events and requests are delivered in their order and without a lock (`deliveries`).
//!
//! Connecting: [`Cm::connect`]. Listening: [`Cm::bind`], [`Cm::listen`], [`Cm::serve`], then
//! [`Cm::accept`], [`reject`] or [`handoff`]; what is bound may also be connected from
//! ([`Cm::connect_from`]). A socket that is connected: [`Cm::convert`]. The end: [`Cm::disconnect`], then
//! [`Cm::reset`] for the next.
//!
//! Two short lists are the process's, so that requests can change hands: the requests that wait for
//! a reply (`requests`), and its listeners (`registry`).
#![forbid(unsafe_code)]

mod asking;
mod calls;
mod connection;
mod counters;
mod deliveries;
mod driver;
mod error;
mod face;
mod half_open;
mod handle;
mod in_order;
mod listener;
mod listening;
mod local;
mod mailbox;
mod manager;
mod message;
mod native_events;
pub mod node;
mod offenders;
pub mod policy;
mod private;
mod questions;
mod registry;
mod requests;
mod sequence;
mod startup;
mod table;
#[cfg(feature = "testing")]
mod testing;
mod types;
mod wake;

pub use asking::reply;
pub use connection::{ConnState, Connectee, Connection};
pub use counters::CmCounters;
pub use driver::Asleep;
pub use error::{Error, Result, text as error_text};
pub use face::{Face, ReplySink, RequestSink};
pub use kal_shim::same_host::{DirectoryError, NotLocal, check_directory};
pub use kal_shim::sock::Sharing;
pub use listener::{Bound, Listening, Serves};
pub use manager::Cm;
pub use node::{Ends, Node};
pub use policy::{Crc, Local, Markers, Network, PeerToPeer, Policies, Policy};
pub use private::PrivateData;
pub use requests::{handoff, reject};
pub use sequence::Sequence;
pub use startup::socket::{ConvertError, ConvertParams};
#[cfg(feature = "testing")]
pub use testing::{Held, Testing};
pub use types::{
    AcceptParams, BrokenCause, ConnEvent, ConnRequest, ConnectError, ConnectParams, ConnectionEnd,
    Disconnect, Established, FailReason, Handoff, ListenerId, Lost, RequestId, ServiceReply,
    ServiceRequest,
};
