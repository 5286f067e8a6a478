//! Sending and receiving datagrams, and their completions. The caller's thread.

use ual::Datagram;
use ual::vp_api::{
    Data, DatagramSource, PostFailure, RecvWr, SendFlags, UdAddress, VpStatus, WcOpcode, WcStatus,
    WorkCompletion,
};

use super::address::AddressObject;
use super::endpoint::UdEpObject;
use crate::completion::{Resolved, status_of};
use crate::ep::EpObject;
use crate::failure::{Failure, Outcome};
use crate::object::Ref;
use crate::post::{Cookie, Posting, check_payload, receive_notifies, refused};
use crate::ring::Request;
use crate::sgl::{Limit, Sgl};
use crate::types::*;
use crate::{object, ptr, status, wr_id};

/// The endpoint of a handle. One for connections is refused: because there is no other kind, or
/// because it is of the wrong one.
fn endpoint(handle: it_ep_handle_t) -> Outcome<Ref<UdEpObject>> {
    if let Some(ep) = object::try_find::<EpObject>(handle.cast()) {
        super::endpoint::check_datagrams(ep.inner.ia())?;
        let text = "the endpoint is for connections, not for datagrams";
        return Err(Failure::new(status::IT_ERR_INVALID_EP_TYPE, text));
    }
    object::find::<UdEpObject>(handle.cast())
}

/// The destination of a datagram.
///
/// # Safety
/// The pointer obeys the contract of a C caller (see `ptr`).
unsafe fn destination(
    remote_ep_addr: *const it_dg_remote_ep_addr_t,
) -> Outcome<(Ref<AddressObject>, UdAddress)> {
    // SAFETY: same contract.
    let remote = unsafe { ptr::read(remote_ep_addr, "remote_ep_addr") }?;
    if remote.r#type != IT_DG_TYPE_IB_UD {
        let text = format!("type of remote_ep_addr is {}, not IT_DG_TYPE_IB_UD", remote.r#type);
        return Err(Failure::new(status::IT_ERR_INVALID_AH, text));
    }
    // SAFETY: plain data: every pattern of bits is a value.
    let ud = unsafe { remote.addr.ud };
    let path = object::find::<AddressObject>(ud.addr.cast())?;
    Ok((path, UdAddress { qpn: ud.ep_info.ud_ep_id, qkey: ud.ep_info.ud_ep_key }))
}

/// `it_post_sendto`.
///
/// # Safety
/// As the entry point.
pub(crate) unsafe fn send(
    ep_handle: it_ep_handle_t,
    local_segments: *const it_lmr_triplet_t,
    num_segments: usize,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
    remote_ep_addr: *const it_dg_remote_ep_addr_t,
) -> Outcome {
    let ep = endpoint(ep_handle)?;
    let posting = Posting::new(cookie, dto_flags, IT_DTO_SEND_CMPL_EVENT)?;
    // SAFETY: same contract.
    let (path, to) = unsafe { destination(remote_ep_addr) }?;
    let most = Limit::send(ep.granted().send_segments);
    // SAFETY: same contract.
    let sgl = unsafe { Sgl::read(local_segments, num_segments, most, ep.ia) }?;
    check_payload(&ep.payload, sgl.elements())?;
    let request = Request {
        cookie: cookie.words,
        unlinks: 0,
        event: IT_DTO_SEND_CMPL_EVENT,
        terminate: None,
    };
    let signalled = dto_flags & IT_COMPLETION_FLAG != 0;
    let verbs = [
        (signalled, SendFlags::SIGNALED),
        (dto_flags & IT_COALESCE_WR_FLAG != 0, SendFlags::COALESCE),
    ];
    let datagram = |number| Datagram {
        wr_id: wr_id::id(ep.slot, false, number, dto_flags & IT_NOTIFY_FLAG != 0),
        data: Data::Sgl(sgl.elements()),
        flags: verbs.iter().filter(|(set, _)| *set).map(|(_, flag)| *flag).collect(),
        solicited: posting.is_solicited(),
        to,
    };
    let post = |number| ep.inner.post_send(&path.inner, &datagram(number));
    ep.sends.post(request, signalled, post, unsent, || ())
}

/// The status for a provider's refusal.
#[cold]
fn unsent(failure: PostFailure) -> Failure {
    match failure.status {
        VpStatus::InvalidPd => {
            let text = "the address handle is of another protection zone than the endpoint";
            Failure::new(status::IT_ERR_INVALID_AH, text)
        }
        VpStatus::InvalidHandle => {
            let text = "the address handle or the endpoint was freed during the call";
            Failure::new(status::IT_ERR_INVALID_AH, text)
        }
        _ => refused(failure, status::IT_ERR_INVALID_AH),
    }
}

/// `it_post_recvfrom`.
///
/// # Safety
/// As the entry point.
pub(crate) unsafe fn receive(
    ep_handle: it_ep_handle_t,
    local_segments: *const it_lmr_triplet_t,
    num_segments: usize,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
) -> Outcome {
    let ep = endpoint(ep_handle)?;
    let notify = receive_notifies(dto_flags)?;
    let most = Limit::receive(ep.granted().recv_segments);
    // SAFETY: same contract.
    let sgl = unsafe { Sgl::read(local_segments, num_segments, most, ep.ia) }?;
    let request = Request {
        cookie: cookie.words,
        unlinks: 0,
        event: IT_DTO_UD_RECV_CMPL_EVENT,
        terminate: None,
    };
    let post = |number| {
        let wr_id = wr_id::id(ep.slot, true, number, notify);
        ep.inner.post_recv(&[RecvWr { wr_id, sgl: sgl.elements() }])
    };
    let refused = |failure| refused(failure, status::IT_ERR_INVALID_NUM_SEGMENTS);
    ep.receives.post(request, true, post, refused, || ())
}

/// A completion of these endpoints in C's terms, and where the datagram came from. `None`: the
/// endpoint is gone, and the completion with it.
pub(crate) fn resolve(completion: &WorkCompletion) -> Option<(Resolved, Option<DatagramSource>)> {
    let (slot, receive, number) = wr_id::parts(completion.wr_id);
    let ep = object::at::<UdEpObject>(slot).filter(|ep| ep.qp == completion.qp)?;
    let source = if receive { ep.inner.take_sender(completion.wr_id) } else { None };
    let ring = if receive { &ep.receives } else { &ep.sends };
    let good = completion.status == WcStatus::Success;
    let request = ring.take(number, good)?;
    let opcode = if receive { WcOpcode::Recv } else { WcOpcode::Send };
    let resolved = Resolved {
        event: request.event,
        ep: ep.handle,
        cookie: request.cookie,
        status: status_of(request.event, opcode, completion.status, None),
        length: if good { completion.octets } else { 0 },
        unlinked: 0,
        immediate: None,
    };
    Some((resolved, source))
}
