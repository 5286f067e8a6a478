//! The protocol core from outside: octets in, effects out.
#![allow(clippy::unwrap_used)]

mod cm;
mod codec;
mod common;
mod decode;
mod errors;
mod icrc;
mod model;
mod ud;
mod vectors;
