//! Tests of librdmacm's functions as programs call them: calls, the order of their events, and
//! invalid calls. Both ends are in this process, over loopback.
#![allow(
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block
)]
// A test acts as an application in C, and panics on errors.

mod common;
mod connections;
mod data;
mod datagrams;
mod descriptors;
mod endpoints;
mod ends;
mod in_force;
#[path = "../common/interrupt.rs"]
mod interrupt;
mod misuse;
#[path = "../common/roce.rs"]
mod on_roce;
mod ports;
mod signals;
#[path = "../common/watch.rs"]
mod watch;
