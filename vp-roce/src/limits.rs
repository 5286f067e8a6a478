//! Limits and capabilities of the RoCE device.
//!
//! Constants only. Each is a real limit: asking for the maximum works if there is memory.

use roce_proto::cm::{private, reply};
use vp_api::{
    Capabilities, ConnectionModel, DatagramAttrs, QpInit, RnicAttrs, UdQpInit, Unready, VpError,
    VpResult, VpStatus,
};
use vp_soft::limits;
use vp_soft::limits::{MAX_INLINE, MAX_OBJECTS, MAX_SGE, MAX_WR};

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
        | Capabilities::READ_SINK_LOCAL_WRITE
        | Capabilities::ALLOW
        | Capabilities::DISCARD
        | Capabilities::UD;
    limits::set(&mut attrs, MAX_READS);
    attrs.max_message = MAX_MESSAGE;
    attrs.max_private_connect = PRIVATE_CONNECT;
    attrs.max_private_accept = PRIVATE_ACCEPT;
    attrs.max_private_reject = PRIVATE_REJECT;
    attrs
}

/// Checks the sizes of a new QP.
pub(crate) fn check_qp(init: &QpInit) -> VpResult<()> {
    limits::check_qp(init, MAX_READS)?;
    if init.unready != Unready::Terminate {
        return Err(init.unready.unsupported());
    }
    if init.recv_limit != 0 {
        let detail = "this device has no limit event for the receive queue of a queue pair";
        return Err(VpError::new(VpStatus::Unsupported, detail));
    }
    Ok(())
}

/// Multicast groups of a process. A poll looks at the socket of each.
pub(crate) const MAX_GROUPS: usize = 64;
/// Queue pairs attached to one of them.
pub(crate) const MAX_MEMBERS: usize = 256;

/// The queue key of rdma_cm's datagram services, which other providers may use alone.
const USUAL_QKEY: u32 = 0x0123_4567;

/// The limits of datagrams.
pub(crate) fn datagrams() -> DatagramAttrs {
    let mut attrs = DatagramAttrs::default();
    attrs.max_ah = MAX_OBJECTS;
    attrs.max_private_request = (reply::QUESTION - private::TRAILER) as u32;
    attrs.max_private_reply = (reply::ROOM - reply::TRAILER) as u32;
    attrs.usual_qkey = USUAL_QKEY;
    attrs.max_groups = MAX_GROUPS as u32;
    attrs.max_members = MAX_MEMBERS as u32;
    attrs
}

/// Checks the sizes of a new QP for datagrams.
pub(crate) fn check_ud(init: &UdQpInit) -> VpResult<()> {
    let (wrs, sges) = (VpStatus::TooManyWrs, VpStatus::InvalidSgl);
    limits::check("send depth", init.send_depth, 1, MAX_WR, wrs)?;
    limits::check("receive depth", init.recv_depth, 1, MAX_WR, wrs)?;
    limits::check("SGEs per send", init.max_send_sge, 1, MAX_SGE, sges)?;
    limits::check("SGEs per receive", init.max_recv_sge, 1, MAX_SGE, sges)?;
    limits::check("octets inline", init.max_inline, 0, MAX_INLINE, VpStatus::InvalidModifier)
}
