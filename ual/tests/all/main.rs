//! Tests of the access layer over the built-in software provider, on loopback.

mod common;
mod connections;
mod events;
mod hostile;
mod objects;
mod two_processes;
