//! RoCE over UDP sockets between processes, with peers that are hostile, and over a path that loses packets.
//!
//! Each test runs itself again in a network namespace of its own, since one process has RoCE's port of an address.
#![allow(clippy::unwrap_used)] // a test fails loudly

mod alone;
mod anew;
mod bits;
mod congestion;
mod datagrams;
mod early;
mod end;
mod hostile;
mod kept;
mod loss;
mod multicast;
mod owed;
mod own_ends;
mod paths;
mod peer;
mod polled;
mod port;
mod processes;
mod published;
mod refused;
mod services;
mod sharing;
mod stale;
mod strangers;
mod uc;
mod ud_end;
mod unready;
