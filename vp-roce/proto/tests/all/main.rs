//! Tests of the protocol core through its public interface: octets in, effects out.
#![allow(clippy::unwrap_used)]

mod cm;
mod codec;
mod common;
mod decode;
mod errors;
mod icrc;
mod model;
mod uc;
mod ud;
mod vectors;
mod window;
