//! The verbs provider interface: RDMAC Verbs 1.0 as Rust traits and plain types.
//!
//! # How a provider is used
//!
//! 1. The access layer calls [`Provider::devices`]. A provider that cannot work here returns the reason
//!    ([`Unavailable`]), which is listed and never fails the enumeration.
//! 2. [`Provider::open`] returns an [`Rnic`]: limits, capabilities, and every privileged verb. Objects
//!    are named by ids; the objects with a fast path ([`Cq`], [`Srq`], [`Qp`]) are trait objects.
//! 3. Connections. [`ConnectionModel::LlpStream`]: the access layer brings an established TCP stream
//!    and calls [`Qp::modify`] with [`QpChange::Rts`]. [`ConnectionModel::Native`]: the provider
//!    brings its own connection manager, [`NativeCm`], and may let consumers bring up queue pairs without it:
//!    [`Rnic::paths`].
//! 4. Data: [`Qp::post_send`], [`Qp::post_recv`], [`Cq::poll`], [`Cq::arm`] may be called from any
//!    thread; they are the only calls on the data path.
//! 5. Datagrams, where the transport has them: [`Rnic::datagrams`].
//! 6. Vendor-specific functions: [`Rnic::vendor_calls`], a table of functions by name.
//! 7. Asynchronous events go to the handler set with [`Rnic::set_async_handler`].
//!
//! Nothing here depends on a transport. Layers above never downcast; providers that wrap providers
//! implement the same traits. Every method may be called from any thread at any time; after an object
//! was destroyed its methods return [`VpStatus::InvalidHandle`].

pub mod abi;
pub mod access;
pub mod attr;
pub mod capture;
pub mod cm_messages;
pub mod conn;
pub mod datagram;
pub mod error;
pub mod event;
pub mod ids;
pub mod mem;
pub mod path;
pub mod provider;
pub mod room;
pub mod services;
pub mod terminate;
pub mod vendor;
pub mod wc;
pub mod wr;

pub use abi::import;
pub use access::Access;
pub use attr::*;
pub use cm_messages::{CmMessages, PathTerms};
pub use conn::*;
pub use datagram::*;
pub use error::{PostFailure, Unavailable, VpError, VpResult, VpStatus};
pub use event::{AsyncEvent, AsyncHandler, CqHandler, EventSource, Shortage};
pub use ids::{CqId, MwId, PdId, QpId, SrqId, Stag};
pub use mem::MemRange;
pub use path::{PathSender, Paths, PeerPath};
pub use provider::{Cq, NativeCm, Provider, Qp, Rnic, Srq};
pub use services::{LogLevel, Services, no_settings};
pub use state_page::{self, DeviceRef, SlotRef};
pub use terminate::{RefusedOperation, RefusedRegion, RefusedSegment, Terminate};
pub use vendor::VendorCalls;
pub use wc::{WcOpcode, WcStatus, WorkCompletion};
pub use wr::{
    AtomicOp, BindMw, Data, FastRegister, RecvWr, Remote, SendFlags, SendOp, SendWr, Sge,
};
