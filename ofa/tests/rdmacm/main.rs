//! The functions of librdmacm from outside: what programs call, the events that they are told, in which order,
//! and what becomes of a wrong call. Both ends are in this process, over loopback.
#![allow(
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block
)]
// A test plays an application in C, and fails loudly.

mod common;
mod connections;
mod endpoints;
mod ends;
mod misuse;
mod ports;
