//! IT-API's Rust face over SoftRDMA, both ends in one process on loopback.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod connections;
mod data;
mod memory;
mod pair;
