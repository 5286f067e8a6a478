//! IT-API's Rust face over SoftRDMA, both ends in one process on loopback.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // helpers of tests are tests

#[cfg(feature = "tokio")]
mod asynchronous;
mod batches;
mod causes;
mod connections;
mod convert;
mod data;
mod events;
mod existing;
mod floods;
mod memory;
mod model;
mod objects;
mod once;
mod pair;
mod question_mark;
mod regions;
mod takers;
mod windows;
