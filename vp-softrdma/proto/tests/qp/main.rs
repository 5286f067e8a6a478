//! The QP as a whole: vectors, pairs under a simulated stream, states, errors.
//!
//! Owner of the state: each test its own; one thread. The peer is another QP or a list of octets.

#[path = "../common/mod.rs"]
mod common;
mod pair;
mod sim;
mod vectors;
