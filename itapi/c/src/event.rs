//! Events on their way to C: from the access layer's types to one internal form, and from there
//! into `it_event_t` of either layout. No state; the thread that dequeues.

mod affiliated;
mod service;
pub(crate) mod text;
mod write;

use std::sync::atomic::Ordering;

use ual::vp_api::{AsyncEvent, DatagramSource, WorkCompletion};
use ual::{AsyncSource, ConnEvent, ConnRequest, ConnectError, Event, FailReason, Ia};

use service::Reply;
#[cfg(test)]
pub(crate) use text::{itw_event_text, itw_event_text_zrl};
pub(crate) use write::{Abi, Standard, Zurich};

use super::ep::EpObject;
use super::object;
use super::path;
use super::ptr::Plain;
use super::types::*;
use super::ud;
use super::works::{self, Resolved};

/// An event in C's terms, whatever its layout. Handles are numbers.
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
    cn_est_id: u64,
    conn_qual: it_conn_qual_t,
    source_addr: it_net_addr_t,
    spigot_id: usize,
    rdma_read_ird: u32,
    rdma_read_ord: u32,
    private_data: Vec<u8>,
}

/// Of news of a connection.
pub(crate) struct Connection {
    number: it_event_type_t,
    /// Of the request that was accepted, 0 on the active side.
    cn_est_id: u64,
    ep: u64,
    rdma_read_ird: u32,
    rdma_read_ord: u32,
    dst_path: it_path_t,
    reject_reason_code: it_conn_reject_code_t,
    private_data: Vec<u8>,
}

/// The event in C's terms. `None`: it is about an object that is gone, or means nothing in IT-API.
pub(crate) fn fields_of(event: Event, ia: &Ia) -> Option<Fields> {
    Some(match event {
        Event::Completion(completion) => match works::resolve(&completion) {
            Some(dto) => Fields::Dto(dto),
            None => datagram_of(&completion)?,
        },
        Event::ServiceRequest(request) => Fields::ServiceRequest(service::request_of(*request)),
        Event::ServiceReply { service, reply } => {
            Fields::ServiceReply(service::reply_of(service.upgrade()?.tag().get(), *reply))
        }
        Event::Request(request) => Fields::Request(request_of(*request, ia)),
        Event::Connection { ep, event, .. } => {
            let ep = ep.upgrade()?.tag().get();
            let connection = connection_of(ep, &event, ia);
            object::set_news(object::handle(ep), event);
            Fields::Connection(connection)
        }
        Event::Affiliated { source, event } => {
            let (number, cause) = affiliated::of(source, event, ia)?;
            Fields::Affiliated { number, cause }
        }
        Event::Unaffiliated { port, event } => {
            let number = unaffiliated(event)?;
            let spigot_id = port.map_or(0, |port| port as usize);
            Fields::Unaffiliated { number, ia: ia.tag().get(), spigot_id }
        }
        Event::Software(data) => Fields::Software(data),
        Event::Notification { evd } => Fields::Notification { sevd: evd.tag().get() },
        _ => return None,
    })
}

/// There is an `it_event_type_t` for it.
fn has_number(event: &Event) -> bool {
    match event {
        Event::Affiliated { source: AsyncSource::Ep(_), event } => {
            affiliated::of_ep(*event).is_some()
        }
        Event::Unaffiliated { event, .. } => unaffiliated(*event).is_some(),
        _ => true,
    }
}

/// An endpoint lost its stream with no error of a protocol; its connection's event says so, too.
fn is_loss(event: &Event) -> bool {
    let Event::Affiliated { source: AsyncSource::Ep(_), event } = event else { return false };
    affiliated::is_loss(*event)
}

/// What a completion of datagrams is in C.
#[cold]
pub(crate) fn datagram_of(completion: &WorkCompletion) -> Option<Fields> {
    ud::post::resolve(completion).map(|(resolved, source)| Fields::Datagram(resolved, source))
}

/// An IRD and ORD that stand for "not to be negotiated" (RFC 6581 9.1 [CONN-26]).
const SUPPRESSED: (u16, u16) = (0x3FFF, 0x3FFF);

fn request_of(request: ConnRequest, ia: &Ia) -> Request {
    let said = request.peer_ird_ord.filter(|said| *said != SUPPRESSED);
    let (ird, ord) = said.unwrap_or_default();
    let mut conn_qual = it_conn_qual_t { r#type: IT_IANA_PORT, ..it_conn_qual_t::zeroed() };
    conn_qual.conn_qual.port = request.port.to_be();
    Request {
        cn_est_id: request.request.to_raw(),
        conn_qual,
        source_addr: path::net_addr(request.ends.remote.address.ip()),
        spigot_id: path::spigot_of(ia, request.ends.local.address.ip()),
        rdma_read_ird: ird.into(),
        rdma_read_ord: ord.into(),
        private_data: request.private_data,
    }
}

fn connection_of(ep: u64, event: &ConnEvent, ia: &Ia) -> Connection {
    let none = Vec::new();
    let endpoint = object::find::<EpObject>(object::handle(ep));
    let cn_est_id = endpoint.map_or(0, |ep| ep.cn_est_id.load(Ordering::Acquire));
    let (ends, ird_ord, private_data) = match event {
        ConnEvent::Established(it) => (Some(&it.ends), (it.ird, it.ord), &it.private_data),
        ConnEvent::Rejected { ends, private_data, peer_ird_ord } => {
            (Some(ends), peer_ird_ord.unwrap_or_default(), private_data)
        }
        ConnEvent::Failed(ConnectError { ends, .. })
        | ConnEvent::Disconnected { ends, .. }
        | ConnEvent::Broken { ends, .. } => (Some(ends), (0, 0), &none),
        _ => (None, (0, 0), &none),
    };
    Connection {
        number: connection_number(event),
        cn_est_id,
        ep,
        rdma_read_ird: ird_ord.0.into(),
        rdma_read_ord: ird_ord.1.into(),
        dst_path: ends.map_or_else(it_path_t::zeroed, |ends| path::path_of(ia, ends)),
        reject_reason_code: reject_code(event),
        private_data: private_data.clone(),
    }
}

/// Which `it_event_type_t` says this.
pub(crate) fn connection_number(event: &ConnEvent) -> it_event_type_t {
    match event {
        ConnEvent::Established(_) => IT_CM_MSG_CONN_ESTABLISHED_EVENT,
        ConnEvent::Rejected { .. } => IT_CM_MSG_CONN_PEER_REJECT_EVENT,
        // it_ep_disconnect ended the attempt: it asked for this.
        ConnEvent::Failed(ConnectError { reason: FailReason::Cancelled, .. })
        | ConnEvent::Disconnected { .. } => IT_CM_MSG_CONN_DISCONNECT_EVENT,
        ConnEvent::Failed(_) => IT_CM_MSG_CONN_NONPEER_REJECT_EVENT,
        _ => IT_CM_MSG_CONN_BROKEN_EVENT,
    }
}

/// `it_conn_reject_code_t`: coarser than our reasons, whose texts `itw_event_text` gives.
fn reject_code(event: &ConnEvent) -> it_conn_reject_code_t {
    let ConnEvent::Failed(ConnectError { reason, .. }) = event else { return IT_CN_REJ_OTHER };
    match reason {
        FailReason::Unreachable(_) => IT_CN_REJ_BAD_PATH,
        FailReason::ConnectTimeout(_)
        | FailReason::ReplyTimeout(_)
        | FailReason::RequestTimeout(_) => IT_CN_REJ_TIMEOUT,
        FailReason::NotMpa(_)
        | FailReason::Malformed(_)
        | FailReason::Revision { .. }
        | FailReason::CrcPolicy
        | FailReason::Markers
        | FailReason::NoCommonRtr => IT_CN_REJ_BAD_CONN_PARMS,
        FailReason::InsufficientIrd { .. } => IT_CN_REJ_BAD_ORD,
        FailReason::Resources(_) => IT_CN_REJ_RESOURCES,
        _ => IT_CN_REJ_OTHER,
    }
}

fn unaffiliated(event: AsyncEvent) -> Option<it_event_type_t> {
    match event {
        AsyncEvent::PortState { online: true } => Some(IT_ASYNC_UNAFF_SPIGOT_ONLINE),
        AsyncEvent::PortState { online: false } => Some(IT_ASYNC_UNAFF_SPIGOT_OFFLINE),
        AsyncEvent::ListenShortage { .. } => Some(IT_ASYNC_UNAFF_LISTEN_SHORTAGE),
        // A dead adapter has no event in 2.x: the calls say so.
        _ => None,
    }
}
