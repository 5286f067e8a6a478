//! The provider over a stand-in for rdma-core.
#![allow(clippy::unwrap_used)] // a test fails loudly

mod common;
mod faults;
mod iwarp;
mod suite;
