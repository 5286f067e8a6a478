//! Test fixtures: those of `vp-soft`, and connected ends.

#[cfg(not(miri))]
pub(crate) mod end;

pub(crate) use vp_soft::testing::*;
