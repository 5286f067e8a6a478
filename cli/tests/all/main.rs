//! The command as a user runs it: the real executable, two processes, real sockets on loopback.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod capture;
mod conform;
mod conform_roce;
mod decode;
mod demo;
mod doctor;
mod documented;
mod explain;
mod hosts;
mod link_local;
mod local;
mod misc;
mod mpi;
mod pages;
mod perf;
mod ping;
mod policy;
mod prometheus;
mod provider;
mod published;
mod rdma_core;
mod refusals;
mod run;
mod signals;
mod stat;
mod strangers;
mod support;
mod top;
