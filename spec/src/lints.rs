//! Rules of the tree.
//!
//! - [`arrows`]: which crate may depend on which.
//! - [`table`]: the table of crates in `ARCHITECTURE.md` is what [`arrows`] checks.
//! - [`constants`]: the C header's numbers and the Rust ones are the same.
//! - [`house`]: where `unsafe` may stand, what must never be in the tree.

pub mod arrows;
pub mod constants;
pub mod house;
pub mod table;
