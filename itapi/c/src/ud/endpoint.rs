//! Endpoints for datagrams: creation, attributes, reset. The calls for endpoints of both types come
//! here from `any_ep`.
//!
//! The object owns the access layer's endpoint, what C posted on it, and what it was granted. Any
//! thread; a lock per queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ual::vp_api::{QpId, UdState};
use ual::{Ia, Stream, UdEp, UdEpInit};

use crate::attr::{self, MAX_SEGMENTS, limit};
use crate::evd::dispatcher;
use crate::failure::{Failure, Outcome};
use crate::object::{CloseOrder, Kind, Object};
use crate::path::check_spigot;
use crate::ptr::{self, Out, Plain};
use crate::pz::PzObject;
use crate::ring::Ring;
use crate::status::{self, Status};
use crate::types::*;
use crate::{boundary, check_mask, object};

/// The object behind the handle of an endpoint for datagrams.
pub(crate) struct UdEpObject {
    pub(crate) inner: Arc<UdEp>,
    /// Its own handle.
    pub(crate) handle: u64,
    /// Its slot in the table of handles: part of the ids of its work requests.
    pub(crate) slot: u32,
    pub(crate) qp: QpId,
    /// The send queue's requests.
    pub(crate) sends: Ring,
    /// The receive queue's requests.
    pub(crate) receives: Ring,
    granted: Granted,
    /// Octets that a datagram may have.
    pub(crate) payload: AtomicU64,
    spigot_id: usize,
    /// The handle of its adapter.
    pub(crate) ia: u64,
    request_sevd: u64,
    recv_sevd: u64,
}

impl Object for UdEpObject {
    fn kind() -> &'static Kind {
        &Kind {
            number: IT_HANDLE_TYPE_EP,
            name: "endpoint for datagrams",
            wrong: status::IT_ERR_INVALID_EP,
        }
    }

    fn ia(&self) -> Arc<Ia> {
        self.inner.ia().clone()
    }

    fn close_order(&self) -> CloseOrder {
        CloseOrder::Endpoints
    }

    fn close(&self) -> ual::Result<()> {
        self.inner.close()
    }
}

/// The granted attributes, which cannot change.
#[derive(Clone, Copy)]
pub(crate) struct Granted {
    /// The longest datagram of the spigot.
    longest: u32,
    requests: u32,
    receives: u32,
    pub(crate) send_segments: u32,
    pub(crate) recv_segments: u32,
}

impl UdEpObject {
    pub(crate) fn granted(&self) -> &Granted {
        &self.granted
    }
}

/// The refusal where the transport has no datagrams.
pub(crate) fn check_datagrams(ia: &Ia) -> Outcome {
    if ia.datagram_attrs().is_some() {
        return Ok(());
    }
    Err(unsupported(ia.device()))
}

pub(crate) fn unsupported(device: &str) -> Failure {
    let text = format!(
        "the transport of {device} has no unreliable datagrams; supported_service_types of \
         it_ia_query says which services there are"
    );
    Failure::new(status::IT_ERR_OP_NOT_SUPPORTED, text)
}

/// The attributes that C requested, checked. Queues have at least one entry; 0 means the default payload.
fn grant(asked: &it_ep_attributes_t, ia: &Ia, longest: u32) -> Outcome<(Granted, u64)> {
    let most = ia.attrs();
    let payload = payload(asked, longest)?;
    let segments =
        |name, asked, most: u32, status| limit(name, asked, most.min(MAX_SEGMENTS), status);
    let granted = Granted {
        longest,
        requests: attr::requests(asked.max_request_dtos, most)?,
        receives: attr::own_receives(asked.max_recv_dtos, most)?,
        send_segments: segments(
            "max_send_segments",
            asked.max_send_segments,
            most.max_sge_send,
            status::IT_ERR_RESOURCE_SSEG,
        )?,
        recv_segments: segments(
            "max_recv_segments",
            asked.max_recv_segments,
            most.max_sge_recv,
            status::IT_ERR_RESOURCE_RSEG,
        )?,
    };
    Ok((granted, payload))
}

fn payload(asked: &it_ep_attributes_t, longest: u32) -> Outcome<u64> {
    let octets = asked.max_dto_payload_size;
    let octets = if octets == 0 { longest as usize } else { octets };
    let payload = limit("max_dto_payload_size", octets, longest, status::IT_ERR_PAYLOAD_SIZE)?;
    Ok(payload.into())
}

/// What C wrote into the part for these endpoints.
fn info_of(asked: &it_ep_attributes_t) -> it_remote_ep_info_t {
    // SAFETY: plain data: every pattern of bits is a value.
    unsafe { asked.srv.ud }.ep_info
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ep_ud_create(
    pz_handle: it_pz_handle_t,
    request_sevd_handle: it_evd_handle_t,
    recv_sevd_handle: it_evd_handle_t,
    ep_attr: *const it_ep_attributes_t,
    spigot_id: usize,
    ep_handle: *mut it_ep_handle_t,
) -> Status {
    boundary::create(|| {
        let pz = object::find::<PzObject>(pz_handle.cast())?;
        let ia = pz.inner.ia();
        let dto = [Stream::Completion];
        let request = dispatcher(request_sevd_handle, ia, &dto, status::IT_ERR_INVALID_REQ_EVD)?;
        let recv = dispatcher(recv_sevd_handle, ia, &dto, status::IT_ERR_INVALID_RECV_EVD)?;
        // SAFETY: contract of a C caller.
        let asked = unsafe { ptr::read(ep_attr, "ep_attr") }?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(ep_handle, "ep_handle") }?;
        check_datagrams(ia)?;
        check_spigot(ia, spigot_id)?;
        let port = spigot_id as u32;
        let longest = ia.max_datagram(port).map_err(Failure::by(status::IT_ERR_INVALID_SPIGOT))?;
        let (granted, payload) = grant(&asked, ia, longest)?;
        let init = UdEpInit {
            recv_evd: recv.inner.clone(),
            send_depth: granted.requests,
            recv_depth: granted.receives,
            max_send_sge: granted.send_segments.max(1),
            max_recv_sge: granted.recv_segments.max(1),
            max_inline: 0,
            port,
            // 0: the default.
            key: Some(info_of(&asked).ud_ep_key).filter(|key| *key != 0),
            ..UdEpInit::new(&request.inner)
        };
        let (sends, receives) = (Ring::new(granted.requests)?, Ring::new(granted.receives)?);
        let inner = pz.inner.create_ud_ep(init);
        let inner = inner.map_err(Failure::by(status::IT_ERR_INVALID_EP_ATTR))?;
        let raw = object::insert(|raw| {
            inner.tag().set(raw.number());
            UdEpObject {
                handle: raw.number(),
                slot: raw.slot().unwrap_or(0),
                qp: inner.id(),
                inner,
                sends,
                receives,
                granted,
                payload: AtomicU64::new(payload),
                spigot_id,
                ia: ia.tag().get(),
                request_sevd: request_sevd_handle.addr() as u64,
                recv_sevd: recv_sevd_handle.addr() as u64,
            }
        })?;
        out.write(object::handle(raw.number()));
        Ok(())
    })
}

/// `it_ep_free`.
pub(crate) fn free(ep: &UdEpObject) -> Outcome {
    ep.inner.close().map_err(Failure::by(status::IT_ERR_EP_BUSY))?;
    object::forget(object::handle(ep.handle));
    Ok(())
}

/// `it_ep_reset`: operational again; unsignalled requests count as completed.
pub(crate) fn reset(ep: &UdEpObject) -> Outcome {
    let sends = ep.sends.block_posts();
    ep.inner.reset().map_err(Failure::by(status::IT_ERR_CANNOT_RESET))?;
    sends.ended(0, None);
    Ok(())
}

/// Members of `it_ep_attributes_t` that these endpoints have; all but the first stay as they are.
const MODIFIABLE: it_ep_param_mask_t = IT_EP_PARAM_MAX_PAYLOAD
    | IT_EP_PARAM_EP_ID
    | IT_EP_PARAM_EP_KEY
    | IT_EP_PARAM_MAX_REQ_DTO
    | IT_EP_PARAM_MAX_RECV_DTO
    | IT_EP_PARAM_MAX_SEND_SEG
    | IT_EP_PARAM_MAX_RECV_SEG
    | IT_EP_PARAM_PRIV_OPS_ENABLE;

/// `it_ep_modify`: the payload can change; other members may be named with their value.
pub(crate) fn modify(
    ep: &UdEpObject,
    mask: it_ep_param_mask_t,
    asked: &it_ep_attributes_t,
) -> Outcome {
    check_mask(mask, MODIFIABLE)?;
    let same = attributes(ep);
    let (wanted, info) = (info_of(asked), info_of(&same));
    let fixed = [
        (IT_EP_PARAM_EP_ID, wanted.ud_ep_id == info.ud_ep_id),
        (IT_EP_PARAM_EP_KEY, wanted.ud_ep_key == info.ud_ep_key),
        (IT_EP_PARAM_MAX_REQ_DTO, asked.max_request_dtos == same.max_request_dtos),
        (IT_EP_PARAM_MAX_RECV_DTO, asked.max_recv_dtos == same.max_recv_dtos),
        (IT_EP_PARAM_MAX_SEND_SEG, asked.max_send_segments == same.max_send_segments),
        (IT_EP_PARAM_MAX_RECV_SEG, asked.max_recv_segments == same.max_recv_segments),
        (IT_EP_PARAM_PRIV_OPS_ENABLE, asked.priv_ops_enable == same.priv_ops_enable),
    ];
    if fixed.iter().any(|(bit, same)| mask & bit != 0 && !same) {
        let text = "of an endpoint for datagrams only max_dto_payload_size can change";
        return Err(Failure::new(status::IT_ERR_OP_NOT_SUPPORTED, text));
    }
    if mask & IT_EP_PARAM_MAX_PAYLOAD != 0 {
        ep.payload.store(payload(asked, ep.granted.longest)?, Ordering::Relaxed);
    }
    Ok(())
}

fn attributes(ep: &UdEpObject) -> it_ep_attributes_t {
    let address = ep.inner.address();
    let ep_info = it_remote_ep_info_t { ud_ep_id: address.qpn, ud_ep_key: address.qkey };
    it_ep_attributes_t {
        max_dto_payload_size: ep.payload.load(Ordering::Relaxed) as usize,
        max_request_dtos: ep.granted.requests as usize,
        max_recv_dtos: ep.granted.receives as usize,
        max_send_segments: ep.granted.send_segments as usize,
        max_recv_segments: ep.granted.recv_segments as usize,
        srv: it_service_attributes_t { ud: it_ud_only_attributes_t { ep_info } },
        priv_ops_enable: IT_FALSE,
    }
}

/// `it_ep_query`. `states`: what this layout calls operational and nonoperational.
pub(crate) fn describe(ep: &UdEpObject, states: [it_ep_state_ud_t; 2]) -> it_ep_param_t {
    let operational = ep.inner.query().is_ok_and(|qp| qp.state == UdState::Operational);
    it_ep_param_t {
        ia: object::handle(ep.ia),
        spigot_id: ep.spigot_id,
        ep_state: it_ep_state_t { ud: if operational { states[0] } else { states[1] } },
        service_type: IT_UD_SERVICE,
        dst_path: Plain::zeroed(),
        pz: object::handle(ep.inner.pz().tag().get()),
        request_sevd: object::handle(ep.request_sevd),
        recv_sevd: object::handle(ep.recv_sevd),
        connect_sevd: object::handle(0),
        attr: attributes(ep),
    }
}
