//! The provider over a stand-in for rdma-core.
#![allow(clippy::unwrap_used)] // a test fails loudly

mod common;
mod datagrams;
mod faults;
mod iwarp;
mod suite;
