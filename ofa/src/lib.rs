//! The verbs face: implements `libibverbs.so.1` and `librdmacm.so.1` for programs that were linked
//! against rdma-core, on the access layer's devices and connection management. On the wire it is iWARP.
//!
//! Every exported function `ibv_x` or `rdma_x` is `warpline_ibv_x` or `warpline_rdma_x` here; the two shared
//! libraries give them their names and versions. Management goes through `ual`; the data path holds the
//! provider's queues directly.
//!
//! # Structure
//!
//! - A handle is a pointer to the structure that applications read, followed by the private part
//!   ([`object`]). Private parts hold references to what they use, so they are dropped in the right
//!   order.
//! - Functions for C are in `verbs`: they read C arguments and call the logic, which is safe code.
//! - Descriptors that applications poll are eventfds ([`notify`]); unacknowledged events keep their
//!   object from being destroyed ([`acks`]).
//! - Threads start when a device is opened, never by listing ([`device`], [`adapter`]).
//! - A panic never crosses into C: `extern "C"` functions abort the process with its message.

mod access;
pub mod acks;
pub mod adapter;
mod advice;
mod atomics;
mod caps;
pub mod device;
pub mod directory;
pub mod errno;
pub mod events;
mod exit;
mod fork;
mod late;
mod log;
pub mod notify;
pub mod object;
pub mod qp;
mod qp_numbers;
mod qp_state;
pub mod rdmacm;
mod record;
mod rendezvous;
mod restart;
mod send;
mod start;
mod tuning;
mod unsupported;
pub mod verbs;
mod wc;
mod wr_list;
