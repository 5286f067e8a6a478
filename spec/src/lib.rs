//! Checks of the source tree as a whole, for people and for CI.
//!
//! - [`trace`]: from a promise to what keeps it and what tests it: requirements of the iWARP documents,
//!   promises of the provider interface, functions of the C header.
//! - [`lints`]: rules of the tree: which crate may depend on which, where `unsafe` may stand, what must
//!   never be in it.
//!
//! [`source`] reads the tree for both.
//!
//! Everything here reads files and prints; nothing holds state or talks to a peer.

#![forbid(unsafe_code)]

pub mod error;
pub mod lints;
pub mod source;
pub mod trace;

pub use error::Error;

use std::path::PathBuf;

/// The root of the workspace this crate belongs to.
pub fn workspace_root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(PathBuf::from).unwrap_or(here)
}
