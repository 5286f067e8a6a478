//! Sans-IO iWARP: RDMAP (RFC 5040, 7306), DDP (RFC 5041) and MPA (RFC 5044, 6581) as state machines.
//!
//! No IO, no clock, no user memory, no `unsafe`: octets in, effects out.
//!
//! # How to drive a [`Qp`]
//!
//! | kind | methods | who calls |
//! |---|---|---|
//! | `post_*` | work from the application | any thread that holds the QP |
//! | `handle_*` | what happened outside: octets, FIN, reset, time-out, octets sent | whoever did the IO |
//! | `poll_*` | what to do next: FPDUs to send, actions on the LLP stream | after every `post_*` and `handle_*` |
//!
//! Everything that concerns memory (receive buffers, STags, scatter/gather lists) is asked of the
//! [`Host`] that the caller passes in; the core decides *what* must be checked and *which* error
//! follows, the host knows the tables. The caller must call `poll_action` until it returns `None`
//! after each `handle_*`; order between actions matters.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod ddp;
pub mod decode;
pub mod error;
pub mod host;
pub mod mpa;
pub mod qp;
mod rdmap;
mod ring;
pub mod stats;
pub mod types;
pub mod wire;

pub use error::{ProtocolError, TerminateCode, WireError};
pub use host::{AccessError, AtomicOp, Host, LocalFault, Receive, TaggedUse};
pub use qp::{
    Action, Destination, Fpdu, Input, LlpFault, Payload, PostError, Qp, QpConfig, QpEvent, State,
    StreamConfig, StreamPosition, Want,
};
pub use stats::Stats;
pub use types::{Completion, Crc32c, Role, RtrKind, SendOp, SendWqe, Slot, Stag, Status};
