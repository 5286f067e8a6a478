//! `itw_event_text`: an event as text. The details of a connection event are stored with its endpoint
//! until the next one is dequeued. No state of its own; any thread.

use std::ffi::c_char;

use super::number::connection_number;
use crate::boundary;
use crate::ep::EpObject;
use crate::object;
use crate::path;
use crate::ptr::{self, Plain};
use crate::types::*;

/// Name and meaning of an event.
macro_rules! meanings {
    ($($name:ident: $text:literal;)*) => {
        fn meaning(number: it_event_type_t) -> Option<(&'static str, &'static str)> {
            Some(match number {
                $($name => (stringify!($name), $text),)*
                _ => return None,
            })
        }
    };
}

meanings! {
    IT_DTO_SEND_CMPL_EVENT: "send";
    IT_DTO_RC_RECV_CMPL_EVENT: "receive";
    IT_DTO_UD_RECV_CMPL_EVENT: "receive of a datagram";
    IT_DTO_RDMA_WRITE_CMPL_EVENT: "RDMA write";
    IT_DTO_RDMA_READ_CMPL_EVENT: "RDMA read";
    IT_RMR_LINK_CMPL_EVENT: "link or unlink of a memory window";
    IT_DTO_FETCH_ADD_CMPL_EVENT: "fetch and add";
    IT_DTO_CMP_SWAP_CMPL_EVENT: "compare and swap";
    IT_LMR_LINK_CMPL_EVENT: "link or unlink of a memory region";
    IT_CM_REQ_CONN_REQUEST_EVENT: "connection request";
    IT_CM_REQ_UD_SERVICE_REQUEST_EVENT: "request for an endpoint that takes datagrams";
    IT_CM_MSG_UD_SERVICE_REPLY_EVENT: "reply of a service for datagrams";
    IT_CM_MSG_CONN_ESTABLISHED_EVENT: "connected";
    IT_CM_MSG_CONN_DISCONNECT_EVENT: "disconnected";
    IT_CM_MSG_CONN_PEER_REJECT_EVENT: "the peer's application rejected the connection";
    IT_CM_MSG_CONN_NONPEER_REJECT_EVENT: "the connection was not established";
    IT_CM_MSG_CONN_BROKEN_EVENT: "the connection broke";
    IT_ASYNC_AFF_SEVD_ENQUEUE_FAILURE: "an event dispatcher of the endpoint overflowed";
    IT_ASYNC_AFF_EP_FAILURE: "the endpoint failed";
    IT_ASYNC_AFF_EP_RDMAR_ACCESS_VIOLATION: "the peer read memory that it may not";
    IT_ASYNC_AFF_EP_L_ACCESS_VIOLATION: "the peer accessed memory that it may not";
    IT_ASYNC_AFF_EP_L_RECV_ACCESS_VIOLATION: "a message of the peer found no receive, or a short one";
    IT_ASYNC_AFF_EP_L_TRANSPORT_ERROR: "the peer broke the DDP or RDMAP protocol";
    IT_ASYNC_AFF_EP_L_LLP_ERROR: "the stream failed: MPA, CRC or TCP";
    IT_ASYNC_AFF_EP_R_ERROR: "the peer ended the stream with an error";
    IT_ASYNC_AFF_EP_R_ACCESS_VIOLATION: "the peer found that we accessed memory that we may not";
    IT_ASYNC_AFF_EP_R_RECV_ACCESS_VIOLATION: "our message found no receive at the peer";
    IT_ASYNC_AFF_EP_R_RECV_LENGTH_ERROR: "our message was too long for the peer's receive";
    IT_ASYNC_AFF_EP_SOFT_HI_WATERMARK: "more receives are in use than the soft high watermark";
    IT_ASYNC_AFF_EP_SRQ_ERROR: "the shared receive queue of the endpoint failed";
    IT_ASYNC_AFF_SRQ_LOW_WATERMARK: "the shared receive queue is below its low watermark";
    IT_ASYNC_AFF_SRQ_CATASTROPHIC: "the shared receive queue failed";
    IT_ASYNC_AFF_SEVD_FULL_ERROR: "the event dispatcher overflowed: events were lost";
    IT_ASYNC_AFF_SEVD_OP_ERROR: "the event dispatcher failed";
    IT_ASYNC_UNAFF_SPIGOT_ONLINE: "the spigot can be used, or has new addresses";
    IT_ASYNC_UNAFF_SPIGOT_OFFLINE: "the spigot cannot be used any more";
    IT_ASYNC_UNAFF_LISTEN_SHORTAGE: "a listener cannot accept: no descriptors or memory (`ulimit -n`)";
    IT_SOFTWARE_EVENT: "posted by the application";
    IT_AEVD_NOTIFICATION_EVENT: "an event dispatcher has events";
}

/// Name and meaning of an `it_dto_status_t`.
fn outcome(status: it_dto_status_t) -> &'static str {
    match status {
        IT_DTO_SUCCESS => "done",
        IT_DTO_ERR_LOCAL_LENGTH => "IT_DTO_ERR_LOCAL_LENGTH: the local memory is too short",
        IT_DTO_ERR_LOCAL_EP => "IT_DTO_ERR_LOCAL_EP: the endpoint failed",
        IT_DTO_ERR_LOCAL_PROTECTION => {
            "IT_DTO_ERR_LOCAL_PROTECTION: the local memory may not be used for this (it_lmr_create: a receive, \
             RDMA Read or atomic needs IT_PRIV_LOCAL_WRITE, what is sent IT_PRIV_LOCAL_READ), or is freed"
        }
        IT_DTO_ERR_FLUSHED => "IT_DTO_ERR_FLUSHED: the connection ended before",
        IT_RMR_OPERATION_FAILED => "IT_RMR_OPERATION_FAILED: the window cannot be linked this way",
        IT_DTO_ERR_BAD_RESPONSE => {
            "IT_DTO_ERR_BAD_RESPONSE: the peer's response was a different one"
        }
        IT_DTO_ERR_REMOTE_ACCESS => {
            "IT_DTO_ERR_REMOTE_ACCESS: the peer's memory may not be used for this (its it_lmr_create or \
             it_rmr_link: a Write needs IT_PRIV_REMOTE_WRITE, a Read IT_PRIV_REMOTE_READ, an atomic IT_PRIV_ATOMIC)"
        }
        IT_DTO_ERR_REMOTE_RESPONDER => "IT_DTO_ERR_REMOTE_RESPONDER: the peer could not execute it",
        IT_DTO_ERR_TRANSPORT => "IT_DTO_ERR_TRANSPORT: the stream failed",
        IT_DTO_ERR_LOCAL_MM_OPERATION => {
            "IT_DTO_ERR_LOCAL_MM_OPERATION: the memory cannot be linked or unlinked this way"
        }
        _ => "an unknown status",
    }
}

/// Why a work request did not succeed, with how its connection ended.
pub(crate) fn not_done(event: it_event_type_t, status: it_dto_status_t, ep: &ual::Ep) -> String {
    let what = meaning(event).map_or("work request", |(_, meaning)| meaning);
    format!("the {what} did not succeed: {}{}", outcome(status), because(ep))
}

/// How the connection of an endpoint ended, for the end of a text.
fn because(ep: &ual::Ep) -> String {
    ep.connection_end().map_or_else(String::new, |end| format!("; {end}"))
}

/// The same of an endpoint by its handle, which may be gone.
fn because_of(ep: it_ep_handle_t) -> String {
    object::try_find::<EpObject>(ep.cast()).map_or_else(String::new, |ep| because(&ep.inner))
}

fn connection(number: it_event_type_t, ep: it_ep_handle_t, code: u32, dst: &it_path_t) -> String {
    match object::try_find::<EpObject>(ep.cast()).and_then(|ep| ep.last_event()) {
        Some(event) if connection_number(&event) == number => event.to_string(),
        // The endpoint is gone, or has a newer event.
        _ => match path::ends_of(dst) {
            Ok((_, remote)) => format!("endpoint {ep:?}, peer {remote}, reason code {code}"),
            Err(_) => format!("endpoint {ep:?}, reason code {code}"),
        },
    }
}

/// A service's reply.
fn service(status: it_ud_svc_req_status_t, info: it_remote_ep_info_t) -> String {
    match status {
        IT_UD_SVC_EP_INFO_VALID => format!("endpoint {:#x} receives them", info.ud_ep_id),
        IT_UD_SVC_ID_NOT_SUPPORTED => {
            "IT_UD_SVC_ID_NOT_SUPPORTED: that machine has no such service".into()
        }
        IT_UD_SVC_REQ_REJECTED => "IT_UD_SVC_REQ_REJECTED: the application there refused".into(),
        IT_UD_NO_EP_AVAILABLE => "IT_UD_NO_EP_AVAILABLE: no endpoint can be given".into(),
        IT_UD_REQ_REDIRECTED => "IT_UD_REQ_REDIRECTED: the service is at another address".into(),
        other => format!("unknown status {other}"),
    }
}

/// # Safety
/// `event` is not NULL, and by its number it has the member of type `U`.
unsafe fn member<T, U: Plain>(event: *const T) -> U {
    // SAFETY: an event has the member, perhaps unaligned, and every pattern of bits is a value.
    unsafe { event.cast::<U>().read_unaligned() }
}

/// Events that are the same in both layouts.
///
/// # Safety
/// `event` is not NULL, and points to the event of this number.
unsafe fn short(event: *const it_any_event_t, number: it_event_type_t) -> String {
    match number & IT_EVENT_STREAM_MASK {
        IT_ASYNC_AFF_EVENT_STREAM => {
            // SAFETY: an event of this number has this member.
            let event = unsafe { member::<_, it_affiliated_event_t>(event) };
            // SAFETY: plain data, and each member is a handle.
            let object = unsafe { event.cause.sevd };
            // An object of another kind is not an endpoint: no cause to add.
            format!("object {object:?}{}", because_of(object.cast()))
        }
        IT_ASYNC_UNAFF_EVENT_STREAM => {
            // SAFETY: an event of this number has this member.
            let event = unsafe { member::<_, it_unaffiliated_event_t>(event) };
            format!("spigot {} of {:?}", event.spigot_id, event.ia)
        }
        IT_SOFTWARE_EVENT_STREAM => {
            // SAFETY: an event of this number has this member.
            let event = unsafe { member::<_, it_software_event_t>(event) };
            format!("data {:?}", event.data)
        }
        IT_AEVD_NOTIFICATION_EVENT_STREAM => {
            // SAFETY: an event of this number has this member.
            let event = unsafe { member::<_, it_aevd_notification_event_t>(event) };
            format!("event dispatcher {:?}", event.sevd)
        }
        _ => String::new(),
    }
}

macro_rules! layout {
    ($call:ident, $types:ident) => {
        /// # Safety
        /// Pointers obey the contract of a C caller (see `ptr`).
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $call(
            event: *const $types::it_event_t,
            buf: *mut c_char,
            len: usize,
        ) -> usize {
            // SAFETY: contract of a C caller: an event that was dequeued.
            let text = boundary::text(|| unsafe { $types::text(event) });
            // SAFETY: contract of a C caller.
            unsafe { ptr::write_text(buf, len, &text) }
        }

        /// Texts of this layout.
        mod $types {
            use super::*;
            pub(super) use crate::types::$types::*;

            /// # Safety
            /// `event` is NULL or points to an event that was dequeued: its number says which
            /// member of the union is there.
            pub(super) unsafe fn text(event: *const it_event_t) -> String {
                // SAFETY: every event has a number.
                let number = match unsafe { ptr::read(event.cast::<u32>(), "event") } {
                    Ok(number) => number,
                    Err(_) => return "no event: the pointer is NULL".into(),
                };
                let Some((name, meaning)) = meaning(number) else {
                    return format!("{number:#x} is no event of this library");
                };
                // SAFETY: the number determines the member.
                let details = unsafe { details(event, number) };
                format!("{name}: {meaning}{}{details}", if details.is_empty() { "" } else { ": " })
            }

            /// # Safety
            /// As [`text`], and `event` is not NULL.
            unsafe fn details(event: *const it_event_t, number: it_event_type_t) -> String {
                match number & IT_EVENT_STREAM_MASK {
                    IT_DTO_EVENT_STREAM => {
                        // SAFETY: an event of this number has this member.
                        let event = unsafe { member::<_, it_dto_cmpl_event_t>(event) };
                        let (ep, octets) = (event.ep, event.transferred_length);
                        let outcome = outcome(event.dto_status);
                        let because = match event.dto_status {
                            IT_DTO_SUCCESS => String::new(),
                            _ => because_of(ep),
                        };
                        format!("endpoint {ep:?}, {octets} octets: {outcome}{because}")
                    }
                    IT_CM_REQ_EVENT_STREAM => {
                        // SAFETY: the number says that this member is there, or the one of services,
                        // which begins with the same members.
                        let event = unsafe { member::<_, it_conn_request_event_t>(event) };
                        match path::ip_of(&event.source_addr) {
                            Ok(from) => format!("number {:#x} from {from}", event.cn_est_id),
                            Err(_) => format!("number {:#x}", event.cn_est_id),
                        }
                    }
                    IT_CM_MSG_EVENT_STREAM if number == IT_CM_MSG_UD_SERVICE_REPLY_EVENT => {
                        // SAFETY: an event of this number has this member.
                        let event = unsafe { member::<_, it_ud_svc_reply_event_t>(event) };
                        service(event.status, event.ep_info)
                    }
                    IT_CM_MSG_EVENT_STREAM => {
                        // SAFETY: an event of this number has this member.
                        let event = unsafe { member::<_, it_connection_event_t>(event) };
                        connection(number, event.ep, event.reject_reason_code, &event.dst_path)
                    }
                    // SAFETY: same contract.
                    _ => unsafe { short(event.cast(), number) },
                }
            }
        }
    };
}

layout!(itw_event_text, std_abi);
layout!(itw_event_text_zrl, zrl);
