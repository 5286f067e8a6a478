//! Tests of the provider over a test double of rdma-core.
#![allow(clippy::unwrap_used)] // a test fails loudly

mod common;
mod datagrams;
mod faults;
mod iwarp;
mod removed;
mod suite;
