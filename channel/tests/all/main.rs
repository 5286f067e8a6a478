//! Channels over SoftRDMA: both ends in one process on loopback, or in two where one is killed.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod adapter;
mod bounds;
mod ends;
mod hostile;
mod killed;
mod links;
mod local;
mod long;
mod memory;
mod messages;
mod misuse;
mod pair;
mod relay;
mod resume;
mod served;
mod strangers;
mod tasks;
mod texts;
mod ways;
