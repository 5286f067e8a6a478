//! Events in IT-API's terms, before they are written in one of its layouts. Plain values; handles are numbers.

use ual::vp_api::DatagramSource;

use crate::completion::Resolved;
use crate::types::*;

/// An event, whatever its layout.
pub(crate) enum Fields {
    /// `it_dto_cmpl_event_t`.
    Dto(Resolved),
    /// `it_all_dto_cmpl_event_t`, for datagrams.
    Datagram(Resolved, Option<DatagramSource>),
    /// `it_ud_svc_request_event_t`.
    ServiceRequest(Request),
    /// `it_ud_svc_reply_event_t`.
    ServiceReply(Reply),
    /// `it_conn_request_event_t`.
    Request(Request),
    /// `it_connection_event_t`.
    Connection(Connection),
    /// `it_affiliated_event_t`.
    Affiliated { number: it_event_type_t, cause: u64 },
    /// `it_unaffiliated_event_t`.
    Unaffiliated { number: it_event_type_t, ia: u64, spigot_id: usize },
    /// `it_software_event_t`.
    Software(u64),
    /// `it_aevd_notification_event_t`.
    Notification { sevd: u64 },
}

/// Of a connection request, or a service request, which has no reads.
pub(crate) struct Request {
    pub(super) cn_est_id: u64,
    pub(super) conn_qual: it_conn_qual_t,
    pub(super) source_addr: it_net_addr_t,
    pub(super) spigot_id: usize,
    pub(super) rdma_read_ird: u32,
    pub(super) rdma_read_ord: u32,
    pub(super) private_data: Vec<u8>,
}

/// Of a connection event.
pub(crate) struct Connection {
    pub(super) number: it_event_type_t,
    /// Of the request that was accepted, 0 on the active side.
    pub(super) cn_est_id: u64,
    pub(super) ep: u64,
    pub(super) rdma_read_ird: u32,
    pub(super) rdma_read_ord: u32,
    pub(super) dst_path: it_path_t,
    pub(super) reject_reason_code: it_conn_reject_code_t,
    pub(super) private_data: Vec<u8>,
}

/// Of a service's reply.
pub(crate) struct Reply {
    pub(super) service: u64,
    pub(super) status: it_ud_svc_req_status_t,
    pub(super) ep_info: it_remote_ep_info_t,
    pub(super) dst_path: it_path_t,
    pub(super) private_data: Vec<u8>,
}
