//! Connection management: from addresses to connected queue pairs and back, for every face.
//!
//! A [`Cm`] manages the connections of one adapter. It does not depend on any face: an endpoint is a
//! [`Connectee`], which owns a [`Connection`]; a listener's requests go to a [`RequestSink`]; the layer
//! above, which also gets asynchronous events, is a [`Face`]. IT-API's access layer (`ual`) implements
//! these traits, and so may any other.
//!
//! One table per adapter owns all sockets and state machines of connections that are not established
//! yet. One thread (`warpline-cm`) serves it; callers who connect, accept or wait for events do so
//! themselves when the table is free (`driver`). No thread waits for a peer: a slow or hostile one costs
//! a table entry until its timer expires. When a connection is established its socket belongs to the
//! provider, which reports only its end. Events and requests are delivered in order and without a lock
//! (`deliveries`).
//!
//! Connecting: [`Cm::connect`]. Listening: [`Cm::bind`], [`Cm::listen`], [`Cm::serve`], then
//! [`Cm::accept`], [`reject`] or [`handoff`]; a bound address may also be connected from
//! ([`Cm::connect_from`]). Converting a connected socket: [`Cm::convert`]. The end: [`Cm::disconnect`],
//! then [`Cm::reset`] before the next connection.
//!
//! Two lists are shared by the process, so that requests can move between adapters: the requests that
//! wait for a reply (`requests`), and the listeners (`registry`).
#![forbid(unsafe_code)]

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
mod invalid_stag_ends;
mod listener;
mod listening;
mod local;
mod mailbox;
mod manager;
mod message;
mod native_events;
pub mod node;
mod observed;
pub mod policy;
mod private;
mod registry;
mod requests;
mod ruled;
mod sequence;
mod service_calls;
mod service_queries;
mod startup;
mod table;
#[cfg(feature = "testing")]
mod testing;
mod tuning;
mod types;

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
pub use observed::{ConnectionObserver, ExtraDescriptor, Observed};
pub use policy::{Crc, LocalStreams, Markers, Network, PeerToPeer, Policies, Policy};
pub use private::PrivateData;
pub use requests::{handoff, native_request, reject};
pub use ruled::{AdapterRules, Denied};
pub use sequence::Sequence;
pub use service_calls::reply;
pub use startup::socket::{ConvertError, ConvertParams};
#[cfg(feature = "testing")]
pub use testing::{HeldDriver, Testing};
pub use types::{
    AcceptParams, BrokenCause, ConnEvent, ConnRequest, ConnectError, ConnectParams, ConnectionEnd,
    Disconnect, Established, FailReason, Handoff, ListenerId, Lost, RequestId, ServiceReply,
    ServiceRequest,
};
