//! Unmodified verbs programs on Warpline's `libibverbs.so.1` and `librdmacm.so.1`: building the libraries,
//! reading what a library exports, the list of programs, running them.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // helpers of tests are tests

pub mod exports;
pub mod libraries;
pub mod process;
pub mod programs;
pub mod run;
pub mod survivor;
pub mod table;

pub use libraries::Libraries;
pub use warpline_skip::skip;
