//! Tests of the functions of librdmacm from outside: the calls of programs, their events in order, and
//! wrong calls. Both ends are in this process, over loopback.
#![allow(
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block
)]
// A test plays an application in C, and fails loudly.

mod common;
mod connections;
mod data;
mod descriptors;
mod endpoints;
mod ends;
#[path = "../common/interrupt.rs"]
mod interrupt;
mod misuse;
mod ports;
mod signals;
#[path = "../common/watch.rs"]
mod watch;
