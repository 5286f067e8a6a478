//! Checks of the source tree as a whole, for people and for CI.
//!
//! - [`requirements`], [`scan`], [`report`]: which requirement of the iWARP documents is obeyed
//!   where and tested by what, from `[MPA-09]`-style ids in comments.
//! - [`contract`]: which case of the provider suite looks after each promise of the provider
//!   interface, and which seeded fault shows that it sees it.
//! - [`functions`]: which test calls each function of the C header.
//! - [`constants`]: the header's numbers and the Rust ones are the same.
//! - [`arrows`]: which crate may depend on which.
//! - [`house`]: where `unsafe` may stand, what must never be in the tree.
//!
//! Everything here reads files and prints; nothing holds state or talks to a peer.

#![forbid(unsafe_code)]

pub mod arrows;
pub mod constants;
pub mod contract;
pub mod error;
pub mod functions;
pub mod house;
pub mod report;
pub mod requirements;
pub mod scan;
pub mod source;

pub use error::Error;

use std::path::PathBuf;

/// The root of the workspace this crate belongs to.
pub fn workspace_root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(PathBuf::from).unwrap_or(here)
}
