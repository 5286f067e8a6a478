//! Conversion of events for C: from the access layer's types to one internal form, and from there
//! into `it_event_t` of either layout. No state; the thread that dequeues.

mod affiliated;
mod fields;
mod number;
mod service;
pub(crate) mod text;
pub(crate) mod write;

use std::sync::atomic::Ordering;

use ual::vp_api::WorkCompletion;
use ual::{ConnEvent, ConnRequest, ConnectError, Event, FailReason, Ia};

pub(crate) use fields::Fields;
use fields::{Connection, Request};
use number::{connection_number, unaffiliated};
#[cfg(test)]
pub(crate) use text::{itw_event_text, itw_event_text_zrl};

use super::ep::EpObject;
use super::object::{self, Ref};
use super::ptr::Plain;
use super::types::*;
use super::{path, resolve, ud};

/// The event in C's terms. `None`: its object is gone, or IT-API has no such event.
pub(crate) fn fields_of(event: Event, ia: &Ia) -> Option<Fields> {
    Some(match event {
        Event::Completion(completion) => match resolve::resolve(&completion) {
            Some(dto) => Fields::Dto(dto),
            None => datagram_of(&completion)?,
        },
        Event::ServiceRequest(request) => Fields::ServiceRequest(service::request_of(*request)),
        Event::ServiceReply { service, reply } => {
            Fields::ServiceReply(service::reply_of(service.upgrade()?.tag().get(), *reply))
        }
        Event::Request(request) => Fields::Request(request_of(*request, ia)),
        Event::Connection { ep, event, .. } => {
            let handle = ep.upgrade()?.tag().get();
            let ep: Option<Ref<EpObject>> = object::try_find(object::handle(handle));
            let cn_est_id = ep.as_ref().map_or(0, |ep| ep.cn_est_id.load(Ordering::Acquire));
            let connection = connection_of(handle, cn_est_id, &event, ia);
            ep.inspect(|ep| ep.set_last_event(event));
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

/// A completion of datagrams in C's terms.
#[cold]
pub(crate) fn datagram_of(completion: &WorkCompletion) -> Option<Fields> {
    ud::post::resolve(completion).map(|(resolved, source)| Fields::Datagram(resolved, source))
}

/// An IRD and ORD that stand for "not to be negotiated" (RFC 6581 9.1 [CONN-26]).
const SUPPRESSED: (u16, u16) = (0x3FFF, 0x3FFF);

fn request_of(request: ConnRequest, ia: &Ia) -> Request {
    let limits = request.peer_ird_ord.filter(|limits| *limits != SUPPRESSED);
    let (ird, ord) = limits.unwrap_or_default();
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

fn connection_of(ep: u64, cn_est_id: u64, event: &ConnEvent, ia: &Ia) -> Connection {
    let none = Vec::new();
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

/// `it_conn_reject_code_t`: coarser than our reasons, whose texts `itw_event_text` gives.
fn reject_code(event: &ConnEvent) -> it_conn_reject_code_t {
    let ConnEvent::Failed(ConnectError { reason, .. }) = event else { return IT_CN_REJ_OTHER };
    match reason {
        FailReason::Unreachable(_) | FailReason::Host { .. } => IT_CN_REJ_BAD_PATH,
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
