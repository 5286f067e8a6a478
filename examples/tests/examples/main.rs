//! Runs the examples as users do: two processes, in Rust, in C, and one of each; and checks the
//! line counts of their README.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod c;
mod piped;
mod program;
mod readme;
mod rust;
mod scenes;
