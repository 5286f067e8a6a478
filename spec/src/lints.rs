//! Checks of the source tree's rules.
//!
//! - [`arrows`]: which crate may depend on which.
//! - [`circles`]: which files of a crate may import one another.
//! - [`table`]: the table of crates in `ARCHITECTURE.md` is what [`arrows`] checks.
//! - [`constants`]: the C header's numbers and the Rust ones are the same.
//! - [`pages`]: pages of a forge have no broken links, and nothing that only rustdoc understands.
//! - [`house`]: where `unsafe` may stand, what must never be in the tree.

pub mod arrows;
pub mod circles;
pub mod constants;
pub mod house;
pub mod pages;
pub mod table;
