//! Sans-IO iWARP: RDMAP (RFC 5040, 7306), DDP (RFC 5041) and MPA (RFC 5044, 6581) as state machines.
//!
//! No IO, no clock, no user memory, no `unsafe`: octets in, effects out.
//!
//! # How to drive a [`Qp`]
//!
//! | kind | methods | who calls |
//! |---|---|---|
//! | `post_*` | work from the application | any thread that holds the QP |
//! | `handle_*` | what happened outside: octets, FIN, reset, time-out, octets sent | the caller, after IO |
//! | `poll_*` | what to do next: FPDUs to send, actions on the LLP stream | after every `post_*` and `handle_*` |
//!
//! For all that concerns memory (receive buffers, STags, scatter/gather lists) the core calls the
//! [`Host`] that the caller passes in: the core decides *what* is checked and *which* error
//! follows, the host has the tables. Order matters:
//!
//! 1. After each `post_*` and `handle_*`: `poll_action` until it returns `None`, then
//!    `poll_transmit` as long as there is room for its FPDUs, then `poll_action` again. Before each
//!    `poll_transmit`, `transmit_short` may write short messages at less cost.
//! 2. FPDUs go to the LLP in the order in which they were yielded, each whole. When the LLP has
//!    accepted one, `handle_sent` with its `sequence` (counted from 1 on each stream): this is what
//!    completes Sends and Writes, and what lets a close finish.
//! 3. All octets that came before the peer's FIN go to `handle_input` before `handle_fin`.
//! 4. While [`Qp::waiting`] says that a message waits for a receive: `handle_receives` when receives were
//!    posted, `handle_hold_timeout` when it has waited for too long, and no more octets are read from the
//!    stream than [`Qp::hold_room`] allows.
//! 5. After [`Action::CloseGracefully`] a timer runs, and ends in `handle_close_timeout`. With it,
//!    every work request completes in bounded time whatever the peer does.
//!
//! # Choices
//!
//! One `Qp` composes framing, segmentation, and RDMAP as explicit state machines: `post_*` from the
//! application, `handle_*` for what happened outside, `poll_*` for what to do. Memory is the
//! host's: the core says *what* must be checked (`Host::check_tagged` for every segment) and maps
//! the refusal to the Terminate through one total table. The CRC kernel is a function passed in.
//!
//! A `Qp` is at most 760 octets; its rings cost 80 octets per send work request, 40 per outbound
//! and 64 per inbound read. They are allocated when the QP is created; later only held messages are.
//!
//! Choices where the standards leave room:
//!
//! - Messages of one direction never interleave; the send queue and the peer's reads alternate
//!   message by message.
//! - So a long RDMA Read would delay the peer's other messages until its last octet. It is split
//!   into Requests of 4 MiB (`read`), as many at once as ORD allows; it stays one work request.
//!   During a Read of 128 MiB a ping on the same connection takes 0.8 to 1.1 ms; unsplit, 16 to 22.
//! - A Send for which no receive is posted ends the stream (RFC 5041 section 7.1). With `hold`, it and
//!   the Sends after it are buffered until one is posted, while the other queues go on. An STag that
//!   such a Send invalidates becomes invalid when the Send is delivered.
//! - An atomic executes on arrival if no earlier response is due, else when its response is sent.
//! - With CRC on nothing of an FPDU reaches the host before it is verified. With CRC and markers
//!   off a large payload may be read straight to its destination (`Want::Direct`), re-checked at
//!   each read.
//! - A zero-length RDMA Write that no consumer sees (the *zero-length kick*) wakes peers that left our first FPDU
//!   unread after their MPA Reply; the kernel's siw does, in a third of the connections. It is
//!   repeated, each time after twice as long, while nothing at all has come back: 8 times, 5
//!   seconds in all.
//! - A zero-length RDMA Read that no consumer sees (the *probe*) finds out whether a silent peer's RDMA
//!   stack still runs, while work is posted. A stopped process is found this way; TCP's keep-alive
//!   cannot.
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
pub use host::{AccessError, AtomicOp, Host, Immediate, LocalFault, Receive, TaggedUse};
pub use qp::{
    Action, AtOnce, Destination, Fpdu, Input, LlpFault, Payload, PostError, Qp, QpConfig, QpEvent,
    RefusedSegment, State, StreamConfig, StreamPosition, Want,
};
pub use stats::Stats;
pub use types::{Completion, Crc32c, Role, RtrKind, SendOp, SendWqe, Slot, Stag, Status};
