//! Runs unmodified verbs programs on Warpline's `libibverbs.so.1` and `librdmacm.so.1`: builds the libraries,
//! reads exported symbols, has the list of programs.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // helpers of tests are tests

pub mod exports;
pub mod libraries;
pub mod process;
pub mod programs;
pub mod run;
pub mod survivor;
pub mod table;
pub mod wheels;

pub use libraries::Libraries;
pub use warpline_skip::skip;
