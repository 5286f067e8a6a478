//! Writes events as `it_event_t`, in either layout. No state.
//!
//! Only the member of the union that the event uses is written.

use ual::Event;
use ual::vp_api::DatagramSource;

use crate::completion::{IMMEDIATE, Resolved};
use crate::object::handle;
use crate::ptr::{Out, Plain};
use crate::types::*;
use crate::ud::path::to_c;

use super::fields::{Connection, Fields, Reply, Request};
use super::number::{has_number, is_loss};

/// A layout of events.
pub(crate) trait Abi {
    /// `it_event_t`.
    type Event: Plain;

    /// Whether applications of this layout get the event.
    fn hears_of(event: &Event) -> bool;

    /// Stores an event of the dispatcher `evd`.
    fn write(out: &Out<Self::Event>, evd: u64, fields: &Fields);
}

/// Cookies of 8 octets, private data after the rest.
pub(crate) struct Standard;

/// Cookies of 24 octets, private data in front.
pub(crate) struct Zurich;

/// A cookie of either layout.
trait Cookie {
    fn of(numbers: [u64; 3]) -> Self;
}

impl Cookie for crate::types::std_abi::it_dto_cookie_t {
    fn of([first, ..]: [u64; 3]) -> Self {
        first
    }
}

impl Cookie for crate::types::zrl::it_dto_cookie_t {
    fn of([first, second, extend]: [u64; 3]) -> Self {
        Self { first, second, extend }
    }
}

/// The private data, cut to the room in an event, and whether there is any.
fn private<const N: usize>(data: &[u8]) -> ([u8; N], it_boolean_t) {
    if data.len() > N {
        // The structure has no member that could say so.
        let len = data.len();
        tracing::warn!(
            "private data is cut: the peer sent {len} octets, an event has room for {N}"
        );
    }
    let mut out = [0; N];
    out.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
    (out, if data.is_empty() { IT_FALSE } else { IT_TRUE })
}

macro_rules! layout {
    ($layout:ident, $types:ident, $hears_of:expr) => {
        impl Abi for $layout {
            type Event = crate::types::$types::it_event_t;

            fn hears_of(event: &Event) -> bool {
                $hears_of(event)
            }

            #[inline]
            fn write(out: &Out<Self::Event>, evd: u64, fields: &Fields) {
                match fields {
                    Fields::Dto(dto) => $types::completion(out, evd, dto),
                    Fields::Datagram(dto, source) => $types::datagram(out, evd, dto, source),
                    Fields::ServiceRequest(request) => $types::service_request(out, evd, request),
                    Fields::ServiceReply(reply) => $types::service_reply(out, evd, reply),
                    Fields::Request(request) => $types::request(out, evd, request),
                    Fields::Connection(connection) => $types::connection(out, evd, connection),
                    other => short(&out.narrow(), evd, other),
                }
            }
        }

        /// Writers of this layout.
        mod $types {
            use super::*;
            use crate::types::$types::*;

            #[inline]
            pub(super) fn completion(out: &Out<it_event_t>, evd: u64, dto: &Resolved) {
                let event = it_dto_cmpl_event_t {
                    event_number: dto.event,
                    evd: handle(evd),
                    ep: handle(dto.ep),
                    cookie: Cookie::of(dto.cookie),
                    dto_status: dto.status,
                    transferred_length: dto.length,
                    unlinked_mr_handle: handle(dto.unlinked),
                };
                out.narrow().write(event);
                if dto.event == IT_DTO_RC_RECV_CMPL_EVENT {
                    receive(out, dto);
                }
            }

            /// The members that only receives have.
            fn receive(out: &Out<it_event_t>, dto: &Resolved) {
                let flags = std::mem::offset_of!(it_all_dto_cmpl_event_t, flags);
                let timeout = std::mem::offset_of!(it_all_dto_cmpl_event_t, src_path.timeout);
                out.part::<u32>(flags).write(dto.immediate.map_or(0, |_| IMMEDIATE));
                if let Some(data) = dto.immediate {
                    out.part::<u64>(timeout).write(data);
                }
            }

            pub(super) fn datagram(
                out: &Out<it_event_t>,
                evd: u64,
                dto: &Resolved,
                source: &Option<DatagramSource>,
            ) {
                completion(out, evd, dto);
                if dto.event != IT_DTO_UD_RECV_CMPL_EVENT {
                    return;
                }
                let at = std::mem::offset_of!(it_all_dto_cmpl_event_t, flags);
                let grh = source.is_some_and(|source| source.grh);
                out.part::<u32>(at).write(if grh { IT_UD_IB_GRH_PRESENT } else { 0 });
                let at = std::mem::offset_of!(it_all_dto_cmpl_event_t, ud_ep_id);
                out.part::<u32>(at).write(source.map_or(0, |source| source.qpn));
                let path = source.and_then(|source| source.path).unwrap_or_default();
                let at = std::mem::offset_of!(it_all_dto_cmpl_event_t, src_path);
                out.part::<it_path_t>(at).write(to_c(&path));
            }

            pub(super) fn service_request(out: &Out<it_event_t>, evd: u64, request: &Request) {
                let (private_data, private_data_present) = private(&request.private_data);
                out.narrow().write(it_ud_svc_request_event_t {
                    event_number: IT_CM_REQ_UD_SERVICE_REQUEST_EVENT,
                    evd: handle(evd),
                    ud_svc_req_id: request.cn_est_id,
                    conn_qual: request.conn_qual,
                    source_addr: request.source_addr,
                    spigot_id: request.spigot_id,
                    private_data,
                    private_data_present,
                });
            }

            pub(super) fn service_reply(out: &Out<it_event_t>, evd: u64, reply: &Reply) {
                let (private_data, private_data_present) = private(&reply.private_data);
                out.narrow().write(it_ud_svc_reply_event_t {
                    event_number: IT_CM_MSG_UD_SERVICE_REPLY_EVENT,
                    evd: handle(evd),
                    ud_svc: handle(reply.service),
                    status: reply.status,
                    ep_info: reply.ep_info,
                    dst_path: reply.dst_path,
                    private_data,
                    private_data_present,
                });
            }

            pub(super) fn request(out: &Out<it_event_t>, evd: u64, request: &Request) {
                let (private_data, private_data_present) = private(&request.private_data);
                out.narrow().write(it_conn_request_event_t {
                    event_number: IT_CM_REQ_CONN_REQUEST_EVENT,
                    evd: handle(evd),
                    cn_est_id: request.cn_est_id,
                    conn_qual: request.conn_qual,
                    source_addr: request.source_addr,
                    spigot_id: request.spigot_id,
                    // Not negotiated: `max_message_size_support` is IT_FALSE.
                    max_message_size: 0,
                    rdma_read_ird: request.rdma_read_ird,
                    rdma_read_ord: request.rdma_read_ord,
                    private_data,
                    private_data_present,
                });
            }

            pub(super) fn connection(out: &Out<it_event_t>, evd: u64, event: &Connection) {
                let (private_data, private_data_present) = private(&event.private_data);
                out.narrow().write(it_connection_event_t {
                    event_number: event.number,
                    evd: handle(evd),
                    cn_est_id: event.cn_est_id,
                    ep: handle(event.ep),
                    rdma_read_ird: event.rdma_read_ird,
                    rdma_read_ord: event.rdma_read_ord,
                    dst_path: event.dst_path,
                    reject_reason_code: event.reject_reason_code,
                    private_data,
                    private_data_present,
                });
            }
        }
    };
}

layout!(Standard, std_abi, has_number);
// These applications exit at any affiliated event, so a peer's reset is not one for them.
layout!(Zurich, zrl, |event| has_number(event) && !is_loss(event));

/// Events that are the same in both layouts; the largest of them gives the room.
fn short(out: &Out<it_unaffiliated_event_t>, evd: u64, fields: &Fields) {
    let evd = handle(evd);
    match *fields {
        Fields::Affiliated { number, cause } => out.narrow().write(it_affiliated_event_t {
            event_number: number,
            evd,
            cause: it_affiliated_cause_u { sevd: handle(cause) },
        }),
        Fields::Unaffiliated { number, ia, spigot_id } => {
            let ia = handle(ia);
            let event = it_unaffiliated_event_t { event_number: number, evd, ia, spigot_id };
            out.narrow().write(event);
        }
        Fields::Software(data) => {
            let (event_number, data) = (IT_SOFTWARE_EVENT, handle(data));
            out.narrow().write(it_software_event_t { event_number, evd, data });
        }
        Fields::Notification { sevd } => out.narrow().write(it_aevd_notification_event_t {
            event_number: IT_AEVD_NOTIFICATION_EVENT,
            aevd: evd,
            sevd: handle(sevd),
        }),
        Fields::Dto(_)
        | Fields::Datagram(..)
        | Fields::ServiceRequest(_)
        | Fields::ServiceReply(_)
        | Fields::Request(_)
        | Fields::Connection(_) => {}
    }
}
