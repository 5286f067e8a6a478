//! Limits common to all software providers, and the check of a value against a limit.
//!
//! Constants only. Each is a real limit: asking for the maximum works if there is memory.

use vp_api::{VpError, VpResult, VpStatus};

use crate::memory::stag_table::MAX_STAGS;

/// Objects of one kind.
pub const MAX_OBJECTS: u32 = 1 << 20;
/// Work requests of a queue.
pub const MAX_WR: u32 = 1 << 16;
/// Scatter/gather elements of a work request.
pub const MAX_SGE: u32 = 16;
/// Regions, and windows: each may use half of the STags.
pub const MAX_REGIONS: u32 = MAX_STAGS / 2;
/// The largest size of an address space of this process.
pub const MAX_REGION_OCTETS: u64 = 1 << 47;

/// Returns an error with `status` and the numbers, unless `value` is in `min..=max`.
pub fn check(what: &str, value: u32, min: u32, max: u32, status: VpStatus) -> VpResult<()> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(VpError::new(status, format!("{what}: {value} requested; {min} to {max} are possible")))
}
