//! Unmodified verbs programs on Warpline's `libibverbs.so.1` and `librdmacm.so.1`: building the libraries,
//! reading what a library exports, finding programs and what they come in.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // helpers of tests are tests

pub mod exports;
pub mod libraries;

pub use libraries::Libraries;
pub use warpline_skip::skip;
