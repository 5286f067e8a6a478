//! Tests of the access layer over the built-in software provider, on loopback.

mod common;
mod two_processes;
