//! Connection management seen from the layer above, over SoftRDMA.
#![allow(clippy::unwrap_used)]

mod common;
mod face;
mod local;
mod octets;
mod processes;
mod rendezvous;
mod shortage;
mod strangers;
mod takes;
