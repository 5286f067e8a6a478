//! Events of services for datagrams. No state.

use ual::vp_api::{DatagramPath, ServiceRefusal};
use ual::{ServiceReply, ServiceRequest};

use super::fields::{Reply, Request};
use crate::path;
use crate::ptr::Plain;
use crate::types::*;
use crate::ud::path::to_c;

pub(super) fn request_of(request: ServiceRequest) -> Request {
    let mut conn_qual = it_conn_qual_t { r#type: IT_IANA_PORT, ..it_conn_qual_t::zeroed() };
    conn_qual.conn_qual.port = request.port.to_be();
    Request {
        cn_est_id: request.request.to_raw(),
        conn_qual,
        source_addr: path::net_addr(request.ends.remote.address.ip()),
        spigot_id: request.spigot as usize,
        rdma_read_ird: 0,
        rdma_read_ord: 0,
        private_data: request.private_data,
    }
}

/// A peer that does not reply counts as one without the service.
pub(super) fn reply_of(service: u64, reply: ServiceReply) -> Reply {
    let none = it_remote_ep_info_t::zeroed();
    let (status, ep_info, dst_path, private_data) = match reply {
        ServiceReply::Resolved { address, path, private_data } => {
            let info = it_remote_ep_info_t { ud_ep_id: address.qpn, ud_ep_key: address.qkey };
            (IT_UD_SVC_EP_INFO_VALID, info, path, private_data)
        }
        ServiceReply::Refused { why, private_data } => {
            (refusal(why), none, DatagramPath::default(), private_data)
        }
        _ => (IT_UD_SVC_ID_NOT_SUPPORTED, none, DatagramPath::default(), Vec::new()),
    };
    Reply { service, status, ep_info, dst_path: to_c(&dst_path), private_data }
}

fn refusal(why: ServiceRefusal) -> it_ud_svc_req_status_t {
    match why {
        ServiceRefusal::NotSupported => IT_UD_SVC_ID_NOT_SUPPORTED,
        ServiceRefusal::Rejected => IT_UD_SVC_REQ_REJECTED,
        ServiceRefusal::NoQueuePair => IT_UD_NO_EP_AVAILABLE,
        ServiceRefusal::Redirected => IT_UD_REQ_REDIRECTED,
    }
}
