//! IT-API as safe Rust: RDMA connections, memory and work requests that cannot go wrong in memory.
//!
//! # Objects
//!
//! An [`Ia`] is an open device. It makes [`Evd`]s, which return completions, and [`Pz`]s, which make everything
//! else: [`Lmr`]s (registered memory, with rights for peers), [`Buffer`]s (registered memory with one owner),
//! [`Ep`]s (connections), [`Srq`]s and [`Rmr`]s. Handles are cheap to clone; an object closes when its last
//! handle is dropped, after everything that was made from it.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use itapi::{Ia, Work};
//! # fn main() -> itapi::Result<()> {
//! let ia = Ia::open()?;
//! let (pz, evd) = (ia.pz()?, ia.evd(16)?);
//! let ep = pz.ep(&evd).build()?;
//! ep.connect("192.0.2.7:7174", b"private data")?;
//! let mut buffer = pz.buffer(64)?;
//! buffer.fill(b"hello")?; // a buffer is a slice, and `io::Write`
//! ep.post(Work::send(buffer))?;
//! let buffer = evd.wait_success(Duration::from_secs(1))?.into_buffer(); // ours again
//! # drop(buffer);
//! # Ok(())
//! # }
//! ```
//!
//! # Memory
//!
//! A work request ([`Work`]) owns its memory while it is outstanding and returns it with its [`Completion`].
//! The compiler therefore rejects access to a posted [`Buffer`], dropping it, and posting it twice; see
//! [`promises`]. While it is not posted, it is a slice.
//!
//! Memory that a peer may reach at any time ([`Lmr`]) is never a slice: [`Lmr::read_at`] and [`Lmr::write_at`]
//! copy. It is newly allocated ([`Pz::lmr`]), or memory that you have already: given by value and returned
//! ([`Pz::adopt`]), or borrowed for a call ([`Pz::lend`]). Dropping never frees memory that a peer can still
//! write, and never waits for a peer.
//!
//! # Progress
//!
//! A thread that waits on an [`Evd`] makes progress for its connections itself; while none waits, a thread of
//! the provider does.
//!
//! # Logging
//!
//! Connections and unusual events are logged through [`tracing`](https://docs.rs/tracing): at `info` one line
//! for each connection that begins (both ends, CRC, MPA revision, IRD and ORD) and one for each that ends, with
//! the cause. Their targets begin with `ual`. A program sees them after it installs a subscriber, for example
//! `tracing_subscriber::fmt::init()`, with `RUST_LOG=ual=info`; so does the command `warpline`.
//!
//! # More
//!
//! `warpline-channel` offers messages with flow control, buffers, large messages and servers.
//!
//! [`guide`] turns a TCP program into an RDMA program, step by step. With the feature `tokio`, dispatchers are
//! streams (`Evd::stream`), connecting and accepting are futures (`Ep::connect_async`,
//! `Request::accept_async`).
//!
#![doc = include_str!("../doc/c-to-rust.md")]
#![forbid(unsafe_code)]

mod any;
#[cfg(feature = "tokio")]
mod asynchronous;
mod buffer;
mod completion;
mod context;
mod directory;
mod dispatcher;
mod ep;
mod error;
mod evd;
mod events;
mod flight;
pub mod guide;
mod ia;
mod ids;
mod listen;
mod lmr;
mod outstanding;
mod post;
pub mod promises;
mod receive;
mod remote;
mod rmr;
mod srq;
mod tuning;
mod ud;
mod vendor;
mod work;

pub use any::{AnyEvd, AnyEvent, Anything};
#[cfg(feature = "tokio")]
pub use asynchronous::Arrivals;
pub use buffer::Buffer;
pub use completion::Completion;
pub use dispatcher::{Aggregate, Dispatcher, EvdBuilder, EvdInfo};
pub use ep::{Ep, EpBuilder, EpLimits};
pub use error::{Error, PostResult, Refused, Result};
pub use evd::Evd;
pub use events::{
    Aevd, AsyncEvd, AsyncSource, ConnEvd, Connections, Events, Notifications, ObjectEvent, Objects,
    PortEvd, Ports, Software, SoftwareEvd,
};
pub use ia::{Ia, IaBuilder, Interface, Pz, connect_params, interfaces, providers};
pub use ids::{EpId, EvdId, Operation, SrqId, WorkId, WorkIds};
pub use listen::{Listen, ListenBuilder, Request, RequestEvd, Requests};
pub use lmr::{Adopted, Fresh, Given, Lmr, LmrBuilder, LmrRange};
pub use remote::{RemoteRange, RmrContext};
pub use rmr::Rmr;
pub use srq::Srq;
pub use ud::{AddressHandle, UdEp, UdEpBuilder, UdListen, UdRequest, UdService};
pub use vendor::VendorCalls;
pub use work::{Local, Payload, Work};

pub use ual::{
    AcceptParams, BrokenCause, Config, ConnEvent, ConnRequest, ConnectError, ConnectParams,
    ConnectionEnd, ConvertParams, Crc, Disconnect, Ends, EpInfo, EpState, Error as AccessError,
    Established, FailReason, Handoff, LocalStreams, Lost, Markers, Node, NotLocal, Overflow,
    PeerToPeer, Policy, ProviderListing, ServiceReply, ServiceRequest, Stream, resolve,
};
pub use vp_api::{
    Access, Addressing, AsyncEvent, Capabilities, DatagramAttrs, DatagramPath, DatagramSource,
    DeviceInfo, FpduSize, GRH_OCTETS, MrInfo, MwInfo, MwKind, PathSender, PeerPath, PortInfo,
    QpCounters, QpInfo, QpState, RnicAttrs, Role, Rtr, ServiceRefusal, SrqInfo, TcpInfo, Terminate,
    Transport, UdAddress, UdQpInfo, UdState, VpStatus, WcStatus,
};
