//! Limits of SoftRDMA beside those of `vp-soft`, and the checks against them.
//!
//! Constants only. All are real: asking for the maximum works if there is memory.

use std::time::Duration;

use vp_api::{
    Capabilities, ConnectionModel, QpInit, RnicAttrs, Unready, VpError, VpResult, VpStatus,
};
use vp_soft::limits;

pub(crate) use vp_soft::limits::{MAX_INLINE, MAX_OBJECTS, MAX_WR, check};

pub(crate) const MAX_READS: u16 = 1024;
/// Octets that one Read Request of ours asks for: the longest that a message of the peer waits after
/// it. 1 MiB cost Reads of 32 MiB a tenth of their bandwidth, and sockets hold more than this anyway.
pub(crate) const MAX_READ_REQUEST: u32 = 4 << 20;
/// Octets that a QP keeps of messages that wait for a receive.
pub(crate) const MAX_HOLD: u32 = 16 << 20;
/// The longest time that a message waits for a receive.
pub(crate) const MAX_HOLD_TIME: Duration = Duration::from_secs(3600);

/// Query RNIC.
pub(crate) fn attrs() -> RnicAttrs {
    let crc = crate::stream::crc::chosen();
    let model = format!("SoftRDMA, CRC32c by {}: {:.1} GB/s", crc.name, crc.rate());
    let mut attrs = RnicAttrs::new("Warpline", &model, ConnectionModel::LlpStream);
    attrs.firmware = env!("CARGO_PKG_VERSION").into();
    attrs.capabilities = Capabilities::all() - Capabilities::UD - Capabilities::PICKS_WIDE_KEY;
    limits::set(&mut attrs, MAX_READS);
    attrs.max_message = u32::MAX;
    attrs
}

/// Sizes of a new QP.
pub(crate) fn check_qp(init: &QpInit) -> VpResult<()> {
    limits::check_qp(init, MAX_READS)?;
    check_hold(init.unready)?;
    if init.srq.is_some() {
        return Ok(());
    }
    check("receive limit", init.recv_limit, 0, init.recv_depth, VpStatus::InvalidModifier)
}

fn check_hold(unready: Unready) -> VpResult<()> {
    let Unready::Hold { octets, time } = unready else { return Ok(()) };
    check("octets of a hold", octets, 1, MAX_HOLD, VpStatus::InvalidModifier)?;
    if !time.is_zero() && time <= MAX_HOLD_TIME {
        return Ok(());
    }
    let detail = format!(
        "time of a hold: {time:?} requested; it must be longer than 0 and at most {MAX_HOLD_TIME:?}"
    );
    Err(VpError::new(VpStatus::InvalidModifier, detail))
}
