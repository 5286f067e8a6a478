//! Connection events for rdma_get_cm_event(3): maps each result of the connection manager to an event,
//! its status and parameters. Plain values; no state.

use ibv_sys::*;
use ual_cm::{ConnEvent, ConnRequest, ConnectError, Established, FailReason};
use vp_api::{DatagramPath, PathTerms, UdAddress};

/// Concurrent reads and atomics of a peer that does not send them (MPA revision 1, RFC 6581 section 9).
const UNTOLD_READS: u16 = 16;
/// Octets of private data that fit into an event.
const MAX_DATA: usize = u8::MAX as usize;

/// `rdma_conn_param` of an event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Conn {
    pub(super) data: Vec<u8>,
    /// The reads that the peer wants to issue: its ORD.
    pub(super) responder_resources: u8,
    /// The reads that the peer accepts: its IRD.
    pub(super) initiator_depth: u8,
    /// What the peer's message says of its queue pair.
    pub(super) terms: Option<PathTerms>,
    /// Of an identifier for datagrams: the service that it found.
    pub(super) service: Option<Service>,
    /// What the application gave rdma_join_multicast, a pointer.
    pub(super) context: usize,
}

/// What the messages of the peer have said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    /// The provider shows InfiniBand's messages.
    pub(super) has_codes: bool,
    /// The code of a refusal.
    pub(super) refusal: Option<u16>,
    pub(super) terms: Option<PathTerms>,
}

/// Where datagrams for a service go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Service {
    pub(super) address: UdAddress,
    pub(super) path: DatagramPath,
    /// Index of the path's local GID.
    pub(super) sgid_index: u8,
}

impl Conn {
    /// The reply of a service.
    pub(super) fn of_service(data: Vec<u8>, service: Service) -> Self {
        Self { data: fitting(data), service: Some(service), ..Self::default() }
    }
}

/// An event without a new identifier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Event {
    /// `RDMA_CM_EVENT_…`
    pub(super) kind: u32,
    /// 0, or a negative error number.
    pub(super) status: i32,
    pub(super) conn: Conn,
}

impl Event {
    /// With status 0 and no parameters.
    pub(super) fn plain(kind: u32) -> Self {
        Self { kind, status: 0, conn: Conn::default() }
    }

    /// The multicast group that it is about.
    pub(super) fn group(&self) -> Option<[u8; 16]> {
        let is_of_group =
            matches!(self.kind, RDMA_CM_EVENT_MULTICAST_JOIN | RDMA_CM_EVENT_MULTICAST_ERROR);
        self.conn.service.filter(|_| is_of_group).map(|service| service.path.remote_gid)
    }

    /// The peer refused: the code of its message, or as the kernel's siw reports it.
    fn rejected(code: Option<u16>) -> Self {
        match code {
            Some(code) => Self { status: code.into(), ..Self::plain(RDMA_CM_EVENT_REJECTED) },
            None => Self::failed(RDMA_CM_EVENT_REJECTED, libc::ECONNRESET),
        }
    }

    /// With an error number.
    pub(super) fn failed(kind: u32, errno: i32) -> Self {
        Self { status: -errno, ..Self::plain(kind) }
    }

    /// The event for a result, at the side that connected, or that accepted (`passive`).
    pub(super) fn of(event: ConnEvent, passive: bool, said: Said) -> Self {
        match event {
            ConnEvent::Established(made) => {
                // The request has told the side that accepted.
                let terms = said.terms.filter(|_| !passive);
                let conn = Conn { terms, ..established(made) };
                Self { conn, ..Self::plain(RDMA_CM_EVENT_ESTABLISHED) }
            }
            ConnEvent::Rejected { private_data, peer_ird_ord, .. } => {
                let conn = conn(private_data, peer_ird_ord);
                Self { conn, ..Self::rejected(said.refusal) }
            }
            ConnEvent::Failed(ConnectError { reason: FailReason::Native(_), .. })
                if said.refusal.is_some() =>
            {
                Self::rejected(said.refusal)
            }
            ConnEvent::Failed(error) => {
                let (kind, errno) = failed(&error.reason, said.has_codes);
                let kind = if passive { RDMA_CM_EVENT_CONNECT_ERROR } else { kind };
                Self::failed(kind, errno)
            }
            // However it ended; results added later end a connection, too.
            _ => Self::plain(RDMA_CM_EVENT_DISCONNECTED),
        }
    }
}

fn established(made: Established) -> Conn {
    conn(made.private_data, made.peer_ird_ord.or(Some((made.ord, made.ird))))
}

/// `has_codes`: the peer's refusals have codes, and this is none.
fn failed(reason: &FailReason, has_codes: bool) -> (u32, i32) {
    match reason {
        FailReason::Refused => (RDMA_CM_EVENT_REJECTED, libc::ECONNREFUSED),
        // A rule of this end.
        FailReason::Denied(_) => (RDMA_CM_EVENT_REJECTED, libc::EACCES),
        FailReason::PeerClosed { .. } => (RDMA_CM_EVENT_REJECTED, libc::ECONNRESET),
        FailReason::Unreachable(_)
        | FailReason::Host { .. }
        | FailReason::ConnectTimeout(_)
        | FailReason::ReplyTimeout(_)
        | FailReason::RequestTimeout(_) => (RDMA_CM_EVENT_UNREACHABLE, libc::ETIMEDOUT),
        FailReason::Native(_) if has_codes => (RDMA_CM_EVENT_UNREACHABLE, libc::ETIMEDOUT),
        // No listener, or no reply: the provider's text alone says which.
        FailReason::Native(_) => (RDMA_CM_EVENT_UNREACHABLE, libc::ECONNREFUSED),
        FailReason::Resources(_) => (RDMA_CM_EVENT_CONNECT_ERROR, libc::ENOMEM),
        FailReason::Cancelled => (RDMA_CM_EVENT_CONNECT_ERROR, libc::ECONNABORTED),
        _ => (RDMA_CM_EVENT_CONNECT_ERROR, libc::EPROTO),
    }
}

/// The parameters of a request.
pub(super) fn requested(request: &ConnRequest) -> Conn {
    conn(request.private_data.clone(), request.peer_ird_ord)
}

/// Private data, cut to what `private_data_len` can tell.
fn fitting(mut data: Vec<u8>) -> Vec<u8> {
    if data.len() > MAX_DATA {
        let len = data.len();
        tracing::warn!(
            "private data is cut: the peer sent {len} octets, an event tells {MAX_DATA}"
        );
    }
    data.truncate(MAX_DATA);
    data
}

fn conn(data: Vec<u8>, peer_ird_ord: Option<(u16, u16)>) -> Conn {
    let (ird, ord) = peer_ird_ord.unwrap_or((UNTOLD_READS, UNTOLD_READS));
    // 255 would mean "as many as possible" if it is passed back.
    let reads = |reads: u16| reads.min(u16::from(RDMA_MAX_RESP_RES) - 1) as u8;
    let (responder_resources, initiator_depth) = (reads(ord), reads(ird));
    Conn { data: fitting(data), responder_resources, initiator_depth, ..Conn::default() }
}

/// The name of an event (rdma_event_str(3)).
pub(super) fn name(kind: u32) -> &'static std::ffi::CStr {
    match kind {
        RDMA_CM_EVENT_ADDR_RESOLVED => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        RDMA_CM_EVENT_ADDR_ERROR => c"RDMA_CM_EVENT_ADDR_ERROR",
        RDMA_CM_EVENT_ROUTE_RESOLVED => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        RDMA_CM_EVENT_ROUTE_ERROR => c"RDMA_CM_EVENT_ROUTE_ERROR",
        RDMA_CM_EVENT_CONNECT_REQUEST => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        RDMA_CM_EVENT_CONNECT_RESPONSE => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        RDMA_CM_EVENT_CONNECT_ERROR => c"RDMA_CM_EVENT_CONNECT_ERROR",
        RDMA_CM_EVENT_UNREACHABLE => c"RDMA_CM_EVENT_UNREACHABLE",
        RDMA_CM_EVENT_REJECTED => c"RDMA_CM_EVENT_REJECTED",
        RDMA_CM_EVENT_ESTABLISHED => c"RDMA_CM_EVENT_ESTABLISHED",
        RDMA_CM_EVENT_DISCONNECTED => c"RDMA_CM_EVENT_DISCONNECTED",
        RDMA_CM_EVENT_DEVICE_REMOVAL => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        RDMA_CM_EVENT_MULTICAST_JOIN => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        RDMA_CM_EVENT_MULTICAST_ERROR => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        RDMA_CM_EVENT_ADDR_CHANGE => c"RDMA_CM_EVENT_ADDR_CHANGE",
        RDMA_CM_EVENT_TIMEWAIT_EXIT => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        _ => c"UNKNOWN EVENT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_is_the_event_that_programs_expect() {
        assert_eq!(
            failed(&FailReason::Refused, false),
            (RDMA_CM_EVENT_REJECTED, libc::ECONNREFUSED)
        );
        let closed = FailReason::PeerClosed { have: 0 };
        assert_eq!(failed(&closed, false), (RDMA_CM_EVENT_REJECTED, libc::ECONNRESET));
        let gone = FailReason::Unreachable(String::new());
        assert_eq!(failed(&gone, false), (RDMA_CM_EVENT_UNREACHABLE, libc::ETIMEDOUT));
        assert_eq!(
            failed(&FailReason::CrcPolicy, false),
            (RDMA_CM_EVENT_CONNECT_ERROR, libc::EPROTO)
        );
    }

    #[test]
    fn private_data_keeps_its_length_as_far_as_an_event_can_report_it() {
        assert_eq!(conn(vec![7; 3], Some((1, 2))).data, [7; 3]);
        assert_eq!(conn(vec![7; 508], None).data.len(), 255);
        let limited = conn(vec![], Some((300, 2)));
        assert_eq!((limited.initiator_depth, limited.responder_resources), (254, 2));
    }
}
