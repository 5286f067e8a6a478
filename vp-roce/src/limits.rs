//! Limits and capabilities of the RoCE device.
//!
//! Constants only. Each is a real limit: asking for the maximum works if there is memory.

use roce_proto::cm::private;
use vp_api::{
    Capabilities, ConnectionModel, QpInit, RnicAttrs, Unready, VpError, VpResult, VpStatus,
};
use vp_soft::limits::{MAX_OBJECTS, MAX_REGION_OCTETS, MAX_REGIONS, MAX_SGE, MAX_WR, check};
use vp_soft::queue::cq_ring::MAX_CQE;

/// Octets that a work request may carry inline.
const MAX_INLINE: u32 = 1024;
/// Outstanding RDMA Reads and atomics, in each direction.
const MAX_READS: u16 = 128;
/// Longest message (InfiniBand volume 1, 9.7.3).
pub(crate) const MAX_MESSAGE: u32 = 1 << 31;

/// Octets of private data in a request.
pub(crate) const PRIVATE_CONNECT: u32 = (private::REQUEST - private::TRAILER) as u32;
/// Octets of private data in a reply.
pub(crate) const PRIVATE_ACCEPT: u32 = (private::REPLY - private::TRAILER) as u32;
/// Octets of private data in a rejection.
pub(crate) const PRIVATE_REJECT: u32 = (private::REJECT - private::TRAILER) as u32;

/// The attributes that Query RNIC returns.
pub(crate) fn attrs() -> RnicAttrs {
    let model = "RoCE v2 over UDP sockets";
    let mut attrs = RnicAttrs::new("Warpline", model, ConnectionModel::Native);
    attrs.firmware = env!("CARGO_PKG_VERSION").into();
    attrs.capabilities = Capabilities::SRQ
        | Capabilities::SRQ_RESIZE
        | Capabilities::MW
        | Capabilities::NARROW_MW
        | Capabilities::WIDE_MW
        | Capabilities::INVALIDATE
        | Capabilities::FAST_REGISTER
        | Capabilities::SHARED_MR
        | Capabilities::ZERO_BASED
        | Capabilities::BASED
        | Capabilities::PRIVILEGED_STAG
        | Capabilities::ATOMICS
        | Capabilities::IMMEDIATE
        | Capabilities::SEND_IMMEDIATE
        | Capabilities::CQ_OVERRUN_EVENT
        | Capabilities::CQ_RESIZE
        | Capabilities::READ_SINK_LOCAL_WRITE;
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
    attrs.max_ird = MAX_READS;
    attrs.max_ord = MAX_READS;
    attrs.max_message = MAX_MESSAGE;
    attrs.max_private_connect = PRIVATE_CONNECT;
    attrs.max_private_accept = PRIVATE_ACCEPT;
    attrs.max_private_reject = PRIVATE_REJECT;
    attrs
}

/// Checks the sizes of a new QP.
pub(crate) fn check_qp(init: &QpInit) -> VpResult<()> {
    check("send depth", init.send_depth, 1, MAX_WR, VpStatus::TooManyWrs)?;
    check("SGEs per send", init.max_send_sge, 1, MAX_SGE, VpStatus::InvalidSgl)?;
    check("octets inline", init.max_inline, 0, MAX_INLINE, VpStatus::InvalidModifier)?;
    check("IRD", init.ird.into(), 0, MAX_READS.into(), VpStatus::InvalidIrdOrd)?;
    check("ORD", init.ord.into(), 0, MAX_READS.into(), VpStatus::InvalidIrdOrd)?;
    if init.unready != Unready::Terminate {
        return Err(init.unready.unsupported());
    }
    if init.recv_limit != 0 {
        let detail = "this device has no limit event for the receive queue of a queue pair";
        return Err(VpError::new(VpStatus::Unsupported, detail));
    }
    if init.srq.is_some() {
        return Ok(());
    }
    check("receive depth", init.recv_depth, 1, MAX_WR, VpStatus::TooManyWrs)?;
    check("SGEs per receive", init.max_recv_sge, 1, MAX_SGE, VpStatus::InvalidSgl)
}
