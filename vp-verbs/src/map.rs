//! Maps access rights, statuses, events and capabilities between `vp-api` and rdma-core. Every value of either side
//! is mapped.
//!
//! Pure functions.

use std::ffi::{c_int, c_uint};

use vp_api::{Access, AsyncEvent, Capabilities, Terminate, WcStatus};

use ibv_sys::*;

const PAIRS: [(Access, c_uint); 5] = [
    (Access::LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE),
    (Access::REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE),
    (Access::REMOTE_READ, IBV_ACCESS_REMOTE_READ),
    (Access::REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC),
    (Access::BIND, IBV_ACCESS_MW_BIND),
];

/// Access rights of a region, window or queue pair. rdma-core has no right for local reads: they are always
/// allowed.
pub(crate) fn access(rights: Access) -> c_uint {
    let set = PAIRS.iter().filter(|(ours, _)| rights.contains(*ours));
    set.fold(0, |flags, (_, theirs)| flags | theirs)
}

/// The status of a completed work request.
pub(crate) fn status(status: c_uint) -> WcStatus {
    match status {
        IBV_WC_SUCCESS => WcStatus::Success,
        IBV_WC_LOC_LEN_ERR => WcStatus::Bounds,
        IBV_WC_LOC_QP_OP_ERR | IBV_WC_LOC_EEC_OP_ERR => WcStatus::InvalidWqe,
        // A wrong key, bounds or domain: the device does not report which.
        IBV_WC_LOC_PROT_ERR => WcStatus::InvalidStag,
        IBV_WC_WR_FLUSH_ERR => WcStatus::Flushed,
        IBV_WC_MW_BIND_ERR => WcStatus::InvalidWindow,
        IBV_WC_LOC_ACCESS_ERR => WcStatus::AccessViolation,
        IBV_WC_REM_INV_REQ_ERR
        | IBV_WC_REM_ACCESS_ERR
        | IBV_WC_REM_OP_ERR
        | IBV_WC_REM_INV_RD_REQ_ERR
        | IBV_WC_REM_ABORT_ERR => WcStatus::RemoteTermination,
        _ => WcStatus::LocalCatastrophic,
    }
}

/// The Terminate code (RFC 5040 section 4.8) for a connection that ended by a failed completion. InfiniBand has no
/// such codes: where its status is less precise, the code is "unspecified".
pub(crate) fn ending(status: c_uint) -> Option<AsyncEvent> {
    let peer = |etype, code| AsyncEvent::TerminateReceived(Terminate::new(false, 0, etype, code));
    let own = |etype, code| AsyncEvent::TerminateSent(Terminate::new(true, 0, etype, code));
    match status {
        // Another completion has the reason, or no completion has one.
        IBV_WC_SUCCESS | IBV_WC_WR_FLUSH_ERR => None,
        IBV_WC_REM_ACCESS_ERR => Some(peer(PROTECTION, UNSPECIFIED)),
        IBV_WC_REM_INV_REQ_ERR | IBV_WC_REM_INV_RD_REQ_ERR => Some(peer(OPERATION, UNSPECIFIED)),
        IBV_WC_REM_OP_ERR | IBV_WC_REM_ABORT_ERR => Some(peer(CATASTROPHIC, 0)),
        IBV_WC_RETRY_EXC_ERR | IBV_WC_RNR_RETRY_EXC_ERR | IBV_WC_RESP_TIMEOUT_ERR => {
            Some(AsyncEvent::ConnectionLost)
        }
        IBV_WC_LOC_PROT_ERR | IBV_WC_LOC_ACCESS_ERR | IBV_WC_LOC_LEN_ERR | IBV_WC_MW_BIND_ERR => {
            Some(own(PROTECTION, UNSPECIFIED))
        }
        _ => Some(own(CATASTROPHIC, 0)),
    }
}

/// RDMAP error types (RFC 5040 section 4.8).
const CATASTROPHIC: u8 = 0;
const PROTECTION: u8 = 1;
const OPERATION: u8 = 2;
const UNSPECIFIED: u8 = 0xff;

/// The object of an asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum About {
    Qp,
    Cq,
    Srq,
    Port,
    Device,
}

/// Which member of an asynchronous event's union is set; unknown events have no object.
pub(crate) fn about(kind: c_uint) -> About {
    match kind {
        IBV_EVENT_CQ_ERR => About::Cq,
        IBV_EVENT_QP_FATAL
        | IBV_EVENT_QP_REQ_ERR
        | IBV_EVENT_QP_ACCESS_ERR
        | IBV_EVENT_COMM_EST
        | IBV_EVENT_SQ_DRAINED
        | IBV_EVENT_PATH_MIG
        | IBV_EVENT_PATH_MIG_ERR
        | IBV_EVENT_QP_LAST_WQE_REACHED => About::Qp,
        IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => About::Srq,
        IBV_EVENT_PORT_ACTIVE | IBV_EVENT_PORT_ERR | IBV_EVENT_GID_CHANGE => About::Port,
        _ => About::Device,
    }
}

/// Converts an asynchronous event; `None` if it does not concern the consumer.
pub(crate) fn event(kind: c_uint) -> Option<AsyncEvent> {
    let own = |etype, code| AsyncEvent::TerminateSent(Terminate::new(true, 0, etype, code));
    match kind {
        IBV_EVENT_CQ_ERR => Some(AsyncEvent::CqOverrun),
        IBV_EVENT_QP_FATAL => Some(own(CATASTROPHIC, 0)),
        IBV_EVENT_QP_REQ_ERR => Some(own(OPERATION, UNSPECIFIED)),
        IBV_EVENT_QP_ACCESS_ERR => Some(own(PROTECTION, UNSPECIFIED)),
        IBV_EVENT_COMM_EST => Some(AsyncEvent::Established),
        IBV_EVENT_DEVICE_FATAL | IBV_EVENT_SRQ_ERR => Some(AsyncEvent::Catastrophic),
        IBV_EVENT_PORT_ACTIVE | IBV_EVENT_GID_CHANGE => {
            Some(AsyncEvent::PortState { online: true })
        }
        IBV_EVENT_PORT_ERR => Some(AsyncEvent::PortState { online: false }),
        IBV_EVENT_SRQ_LIMIT_REACHED => Some(AsyncEvent::SrqLimit),
        _ => None,
    }
}

/// The capabilities that a device reports.
pub(crate) fn capabilities(attr: &ibv_device_attr, iwarp: bool) -> Capabilities {
    let has = |flags| attr.device_cap_flags & flags != 0;
    // Type 1 is wide, type 2 narrow.
    let wide = attr.max_mw > 0 && has(IBV_DEVICE_MEM_WINDOW);
    let narrow =
        attr.max_mw > 0 && has(IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
    let mut out = Capabilities::SHARED_MR | Capabilities::CQ_OVERRUN_EVENT;
    let list = [
        (Capabilities::SRQ, attr.max_srq > 0),
        (Capabilities::SRQ_RESIZE, attr.max_srq > 0 && has(IBV_DEVICE_SRQ_RESIZE)),
        (Capabilities::MW, wide || narrow),
        (Capabilities::NARROW_MW, narrow),
        (Capabilities::WIDE_MW | Capabilities::PICKS_WIDE_KEY, wide),
        (
            Capabilities::INVALIDATE,
            has(IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2B),
        ),
        (Capabilities::ATOMICS, attr.atomic_cap != IBV_ATOMIC_NONE),
        // The kernel's iWARP does not have RFC 7306's atomics.
        (Capabilities::IMMEDIATE, !iwarp),
        (Capabilities::SEND_IMMEDIATE, !iwarp),
        (Capabilities::READ_SINK_LOCAL_WRITE, !iwarp),
        (Capabilities::UD, !iwarp && attr.max_ah > 0),
    ];
    for (capability, there) in list {
        out.set(capability, there);
    }
    out
}

/// `enum ibv_mtu` in octets.
pub(crate) fn mtu(mtu: c_uint) -> u32 {
    match mtu {
        1..=5 => 128 << mtu,
        _ => 0,
    }
}

/// Converts a count that C keeps in an `int`.
pub(crate) fn count(number: c_int) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_map_one_to_one() {
        assert_eq!(access(Access::LOCAL_READ), 0);
        assert_eq!(access(Access::all()), 0x1f);
        for (ours, theirs) in PAIRS {
            assert_eq!(access(ours), theirs);
        }
    }

    #[test]
    fn every_status_is_mapped() {
        let all: Vec<_> = (0..=30).map(status).collect();
        assert_eq!(all.iter().filter(|s| **s == WcStatus::Success).count(), 1);
        assert_eq!(all.iter().filter(|s| **s == WcStatus::Flushed).count(), 1);
        assert_eq!(status(IBV_WC_REM_ACCESS_ERR), WcStatus::RemoteTermination);
        assert_eq!(status(u32::MAX), WcStatus::LocalCatastrophic);
        // Every status that breaks a connection has a reason, except a flush.
        for n in 0..=30 {
            let silent = matches!(n, IBV_WC_SUCCESS | IBV_WC_WR_FLUSH_ERR);
            assert_eq!(ending(n).is_none(), silent, "{n}");
        }
    }

    #[test]
    fn every_event_has_an_object() {
        for kind in 0..=25 {
            let (about, event) = (about(kind), event(kind));
            match event {
                Some(AsyncEvent::TerminateSent(_) | AsyncEvent::Established) => {
                    assert_eq!(about, About::Qp);
                }
                Some(AsyncEvent::PortState { .. }) => assert_eq!(about, About::Port),
                Some(AsyncEvent::CqOverrun) => assert_eq!(about, About::Cq),
                Some(AsyncEvent::SrqLimit) => assert_eq!(about, About::Srq),
                _ => {}
            }
        }
        assert_eq!(event(IBV_EVENT_DEVICE_FATAL), Some(AsyncEvent::Catastrophic));
        assert_eq!(event(IBV_EVENT_SQ_DRAINED), None);
    }

    #[test]
    fn capabilities_are_the_devices() {
        // SAFETY: plain numbers; all zeros is valid.
        let mut attr: ibv_device_attr = unsafe { std::mem::zeroed() };
        let least = capabilities(&attr, true);
        assert_eq!(least, Capabilities::SHARED_MR | Capabilities::CQ_OVERRUN_EVENT);
        assert!(capabilities(&attr, false).contains(Capabilities::IMMEDIATE));
        attr.max_mw = 1;
        assert!(!capabilities(&attr, false).contains(Capabilities::MW));
        attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
        let narrow = Capabilities::MW | Capabilities::NARROW_MW;
        assert!(capabilities(&attr, false).contains(narrow | Capabilities::INVALIDATE));
        assert!(!capabilities(&attr, false).contains(Capabilities::WIDE_MW));
        attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW;
        let wide = Capabilities::MW | Capabilities::WIDE_MW;
        assert!(capabilities(&attr, false).contains(wide));
        assert!(!capabilities(&attr, false).contains(Capabilities::NARROW_MW));
        assert_eq!([mtu(0), mtu(1), mtu(5), mtu(9)], [0, 256, 4096, 0]);
        assert_eq!([count(-1), count(7)], [0, 7]);
    }
}
