//! Limits common to all software providers, and checks against limits.
//!
//! Constants only. Each is a real limit: asking for the maximum works if there is memory.

use vp_api::{QpInit, RnicAttrs, VpError, VpResult, VpStatus};

use crate::memory::stag_table::MAX_STAGS;
use crate::queue::cq_ring::MAX_CQE;

/// Objects of one kind.
pub const MAX_OBJECTS: u32 = 1 << 20;
/// Work requests of a queue.
pub const MAX_WR: u32 = 1 << 16;
/// Scatter/gather elements of a work request.
pub const MAX_SGE: u32 = 16;
/// Octets that a work request may carry inline.
pub const MAX_INLINE: u32 = 1024;
/// Regions, and windows: each may use half of the STags.
pub const MAX_REGIONS: u32 = MAX_STAGS / 2;
/// The largest size of an address space of this process.
pub const MAX_REGION_OCTETS: u64 = 1 << 47;

/// Sets the limits above, and the maximum of reads and atomics in each direction.
pub fn set(attrs: &mut RnicAttrs, max_reads: u16) {
    attrs.max_qp = MAX_OBJECTS;
    attrs.max_wr_per_qp = MAX_WR;
    attrs.max_wr_per_srq = MAX_WR;
    attrs.max_sge_send = MAX_SGE;
    attrs.max_sge_recv = MAX_SGE;
    attrs.max_sge_write = MAX_SGE;
    attrs.max_sge_read = 1;
    attrs.max_inline = MAX_INLINE;
    attrs.max_cq = MAX_OBJECTS;
    attrs.max_cqe = MAX_CQE;
    attrs.max_srq = MAX_OBJECTS;
    attrs.max_pd = MAX_OBJECTS;
    attrs.max_mr = MAX_REGIONS;
    attrs.max_mr_octets = MAX_REGION_OCTETS;
    attrs.max_mw = MAX_REGIONS;
    attrs.max_ird = max_reads;
    attrs.max_ord = max_reads;
}

/// Checks the sizes of a new QP against them; those of its receive queue only if it has one of its own.
pub fn check_qp(init: &QpInit, max_reads: u16) -> VpResult<()> {
    check("send depth", init.send_depth, 1, MAX_WR, VpStatus::TooManyWrs)?;
    check("SGEs per send", init.max_send_sge, 1, MAX_SGE, VpStatus::InvalidSgl)?;
    check("octets inline", init.max_inline, 0, MAX_INLINE, VpStatus::InvalidModifier)?;
    check("IRD", init.ird.into(), 0, max_reads.into(), VpStatus::InvalidIrdOrd)?;
    check("ORD", init.ord.into(), 0, max_reads.into(), VpStatus::InvalidIrdOrd)?;
    if init.srq.is_some() {
        return Ok(());
    }
    check("receive depth", init.recv_depth, 1, MAX_WR, VpStatus::TooManyWrs)?;
    check("SGEs per receive", init.max_recv_sge, 1, MAX_SGE, VpStatus::InvalidSgl)
}

/// Returns an error with the numbers, unless `value` is in `min..=max`: with `status` if it is above, and
/// `InvalidModifier` if it is below.
pub fn check(what: &str, value: u32, min: u32, max: u32, status: VpStatus) -> VpResult<()> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    let status = if value < min { VpStatus::InvalidModifier } else { status };
    Err(VpError::new(status, format!("{what}: {value} requested; {min} to {max} are possible")))
}
