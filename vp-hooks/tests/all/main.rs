//! Tests of wrapped SoftRDMA over real TCP connections on 127.0.0.1.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;
mod completions;
mod faults;
mod stats;
mod trace;
