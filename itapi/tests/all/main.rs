//! IT-API's Rust face over SoftRDMA, both ends in one process on loopback.
#![forbid(unsafe_code)]

mod connections;
mod data;
mod memory;
mod pair;
