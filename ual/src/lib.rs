//! The access layer: everything above a verbs provider that all RDMA transports share.
//!
//! [`Ual`] lists the providers and opens devices. An open device is an [`Ia`]; everything else is
//! created from it and closed explicitly:
//!
//! | object | made by | uses (keeps in use) |
//! |---|---|---|
//! | [`Pz`] | [`Ia::create_pz`] | the Ia |
//! | [`Evd`] | [`Ia::create_evd`] | the Ia |
//! | [`Listen`] | [`Ia::listen`] | the Ia, an Evd |
//! | [`Srq`], [`Lmr`], [`Rmr`] | [`Pz::create_srq`], [`Pz::create_lmr`], [`Pz::create_rmr`] | the Pz |
//! | [`Ep`] | [`Pz::create_ep`] | the Pz, its Evds, its Srq |
//! | [`UdEp`], [`AddressHandle`] | [`Pz::create_ud_ep`], [`Pz::create_address_handle`] | the Pz, its Evds |
//! | [`UdService`] | [`Ia::create_ud_service`] | the Ia, its Evd |
//!
//! `close` is refused ([`Error::InUse`]) while something uses the object, and a second `close` returns
//! [`Error::Closed`]. Dropping the last `Arc` of an open object closes it, too. Every object has a
//! [`Tag`], the face's number for it.
//!
//! Connections: [`Ep::connect`] on one side; [`Event::Request`] then [`Ep::accept`] or [`cm::reject`] on
//! the other, or [`cm::handoff`] to another listener of the process; both get a [`ConnEvent`].
//! [`Ep::convert`] makes a connected TCP socket an endpoint. One thread per Ia owns all connection state
//! and never waits for a peer. Data: [`Ep::post_send`] and [`Ep::post_recv`] go straight to the
//! provider; completions come straight from its queue ([`Evd::poll`]), unless a caller waits for more
//! than the next one: a threshold, an aggregate dispatcher, a callback.
//!
//! Datagrams, where the transport supports them: a [`UdService`] sends a request, its listener's side
//! gets an [`Event::ServiceRequest`] and replies with a [`UdEp`]'s address ([`cm::reply`]); the
//! [`Event::ServiceReply`] has the address to send to, through an [`AddressHandle`].
#![forbid(unsafe_code)]

pub mod cm;
pub mod config;
pub mod error;
pub mod event;
pub mod gid;
pub mod guid;
mod life;
pub mod observe;
mod posted;
mod registry;
pub mod resource;
mod secure;
mod shared_posted;
mod tag;
mod tuning;

pub use cm::{
    AcceptParams, Bound, BrokenCause, CmCounters, ConnEvent, ConnRequest, ConnectError,
    ConnectParams, ConnectionEnd, ConvertError, ConvertParams, Disconnect, Established, FailReason,
    Handoff, Lost, PrivateData, RequestId, ServiceReply, ServiceRequest,
};
pub use config::{Config, ConfigError};
pub use error::{Error, Object, Result};
pub use event::{AsyncSource, Evd, EvdInfo, EvdInit, Event, NOTIFY, Overflow, Stream};
use kal_os::sync;
pub use kal_shim::limits::raise_descriptors;
pub use kal_shim::mem::lend;
pub use kal_shim::names::{node_name, resolve};
pub use kal_shim::{OutOfRange, Region, Span};
pub use posted::Posted;
pub use registry::{ProviderListing, Ual, builtin};
pub use resource::{
    AddressHandle, Datagram, Ep, EpInfo, EpInit, EpState, Ia, Keys, Listen, ListenInit, Lmr,
    LmrInit, Pz, Rmr, Serves, Srq, SrqParams, UdEp, UdEpInit, UdService, UdServiceInit,
};
pub use shared_posted::SharedPosted;
pub use tag::Tag;
pub use ual_cm::{
    Crc, Denied, Ends, LocalStreams, Markers, Network, Node, NotLocal, PeerToPeer, Policies,
    Policy, node, policy,
};
pub use vp_api;
pub use vp_hooks;
