//! Tests of the functions of libibverbs as programs call them, between queue pairs that connect over
//! loopback.
#![allow(
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block
)]
// A test acts as an application in C, and panics on errors.

mod changes;
mod data;
mod descriptors;
mod events;
mod extended;
mod fork;
mod handles;
mod immediates;
#[path = "../common/interrupt.rs"]
mod interrupt;
mod lab;
mod last_wqe;
mod man_pages;
mod misuse;
#[path = "../common/roce.rs"]
mod on_roce;
mod processes;
mod refusals;
mod rendezvous;
mod roce;
mod signals;
mod states;
mod statuses;
mod unmapped;
#[path = "../common/watch.rs"]
mod watch;
