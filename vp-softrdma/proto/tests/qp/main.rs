//! The QP as a whole: vectors, pairs under a simulated stream, states, errors.
//!
//! Owner of the state: each test its own; one thread. The peer is another QP or a list of octets.

mod close;
#[path = "../common/mod.rs"]
mod common;
mod craft;
mod direct;
mod errors;
mod hold;
mod immediate;
mod order;
mod pair;
mod read;
mod script;
mod short;
mod sim;
mod states;
mod vectors;
