//! RDMAP (RFC 5040, 7306): RDMA Reads and Atomics in both directions, Terminate.
//!
//! Owner: the QP that composes these; touched only by the thread that drives it.

pub(crate) mod access;
pub(crate) mod reads;
