//! Connection management seen from the layer above, over SoftRDMA.
#![allow(clippy::unwrap_used)]

mod common;
mod face;
mod local;
mod rendezvous;
mod shortage;
mod takes;
