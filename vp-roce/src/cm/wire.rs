//! Fields of connection manager messages: addresses, path, and the parameters negotiated from both ends.
//!
//! Pure functions.

use std::net::{IpAddr, SocketAddr};

use roce_proto::cm::addresses::{Addresses, Pair};
use roce_proto::cm::message::{Gid, Rep, Req};
use roce_proto::psn::Psn;
use roce_proto::rc::{Mtu, RcConfig, timeout};
use vp_api::NativeParams;

use crate::path;
use crate::qp::RoceQp;
use crate::tuning::{ACK_TIMEOUT, CM_RESPONSE, CM_RETRIES, RETRIES, RNR_TIMER, window};

/// The GUID of this provider's adapters; its first octets are "WARPL".
pub(super) const GUID: u64 = 0x5741_5250_4c00_0001;

/// The default partition.
const PKEY: u16 = 0xffff;

/// The rdma_cm header of a request from `source` to `destination`; `None` if they are of two families.
pub(super) fn addresses(source: SocketAddr, destination: IpAddr) -> Option<Addresses> {
    let pair = match (source.ip(), destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            Pair::V4 { source: source.octets(), destination: destination.octets() }
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Pair::V6 { source: source.octets(), destination: destination.octets() }
        }
        _ => return None,
    };
    Some(Addresses { source_port: source.port(), pair })
}

fn small(reads: u16) -> u8 {
    u8::try_from(reads).unwrap_or(u8::MAX)
}

/// The two ends of a path.
pub(super) struct Ends {
    pub(super) local: IpAddr,
    pub(super) peer: SocketAddr,
}

/// A connection request. The caller fills in ids, RNR retries and private data.
pub(super) fn request(ends: &Ends, qpn: u32, psn: Psn, mtu: Mtu, reads: (u16, u16)) -> Req {
    Req {
        local_id: 0,
        service: roce_proto::cm::tcp_service(ends.peer.port()),
        ca_guid: GUID,
        qpn,
        responder_resources: small(reads.0),
        initiator_depth: small(reads.1),
        remote_response_timeout: CM_RESPONSE,
        local_response_timeout: CM_RESPONSE,
        transport: 0,
        starting_psn: psn,
        retry_count: RETRIES,
        rnr_retry_count: 0,
        pkey: PKEY,
        mtu: mtu.code(),
        max_cm_retries: CM_RETRIES,
        srq: false,
        local_gid: Gid(path::gid(ends.local)),
        remote_gid: Gid(path::gid(ends.peer.ip())),
        flow_label: 0,
        rate: 0,
        traffic_class: 0,
        hop_limit: 64,
        service_level: 0,
        ack_timeout: ACK_TIMEOUT,
        private: Default::default(),
    }
}

/// The IRD and ORD that the sender of a request offers.
pub(super) fn offer_of(req: &Req) -> (u16, u16) {
    (req.responder_resources.into(), req.initiator_depth.into())
}

/// The IRD and ORD that the sender of a reply offers.
pub(super) fn offer_in(rep: &Rep) -> (u16, u16) {
    (rep.responder_resources.into(), rep.initiator_depth.into())
}

/// IRD and ORD of this end: in each direction, at most as many reads as the peer can serve or issue.
pub(super) fn settle(own: &NativeParams, peer: (u16, u16)) -> (u16, u16) {
    (own.ird.min(peer.1), own.ord.min(peer.0))
}

/// The parameters that the protocol core needs for a connection.
pub(super) fn config(
    destination: u32,
    mtu: Mtu,
    (send_psn, receive_psn): (Psn, Psn),
    reads: (u16, u16),
    qp: &RoceQp,
    retries: (u8, u8),
) -> RcConfig {
    RcConfig {
        destination,
        mtu,
        send_psn,
        receive_psn,
        retry_count: retries.0,
        rnr_retry: retries.1,
        rnr_limit: Some(qp.settings().rnr_limit()),
        ack_timeout: timeout(qp.ack_timeout()),
        count_after: timeout(ACK_TIMEOUT).unwrap_or(0),
        min_rnr_timer: RNR_TIMER,
        initiator_depth: small(reads.1),
        responder_resources: small(reads.0),
        window: window(mtu),
        // One more, for the probe.
        send_depth: qp.send_depth() + 1,
    }
}
