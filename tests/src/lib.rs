//! Support for the end-to-end tests: visible skips, a raw iWARP peer, test vectors.

#![forbid(unsafe_code)]

pub mod netns;
pub mod raw;
pub mod skip;
pub mod vectors;

pub use skip::skip;
