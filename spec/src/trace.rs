//! Traceability: from a requirement or promise to its code and its tests.
//!
//! - [`requirements`], [`scan`], [`report`]: which requirement of the iWARP documents is obeyed where
//!   and tested by what, from `[MPA-09]`-style ids in comments.
//! - [`contract`]: which case of the provider suite tests each promise of the provider interface, and
//!   which seeded fault shows that it sees it.
//! - [`functions`]: which test calls each function of the C header.

pub mod contract;
pub mod functions;
pub mod report;
pub mod requirements;
pub mod scan;
