//! Tests of the access layer over the built-in software provider, on loopback.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod aggregate;
mod callbacks;
mod common;
mod connections;
mod convert;
mod criteria;
mod datagrams;
mod endings;
mod ends;
mod events;
mod fake;
mod forks;
mod guesses;
mod handoff;
mod hostile;
mod lost;
mod native;
mod objects;
mod observe;
mod ports;
mod random_depths;
mod reuse;
mod rules;
mod services;
mod shortage;
mod startups;
mod two_processes;
mod vendor;
mod wire;
mod wishes;
mod wrapped;
