//! From a completion back to what was posted: the meaning of work request ids.
//!
//! `notify << 63 | receive << 62 | slot << 32 | number`: the slot of the endpoint or shared receive
//! queue in the table of handles, and the number of the request in its ring. Looking one up takes
//! no lock but that ring's, and allocates nothing. Any thread; each request is resolved once.

use std::sync::Arc;

pub(crate) use kal_os::lock;
use ual::vp_api::{Terminate, WcOpcode, WcStatus, WorkCompletion};

use super::boundary;
use super::ep::EpObject;
use super::event::text;
use super::object;
use super::ring::Request;
use super::srq::SrqObject;
use super::stags;
use super::types::*;

const RECEIVE: u64 = 1 << 62;
const SLOT: u64 = (1 << 30) - 1;

/// What a completion event says in C.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Resolved {
    /// Its number.
    pub(crate) event: it_event_type_t,
    /// The endpoint's handle.
    pub(crate) ep: u64,
    /// As posted; one of 8 octets is the first number.
    pub(crate) cookie: [u64; 3],
    /// How it ended.
    pub(crate) status: it_dto_status_t,
    /// Octets.
    pub(crate) length: u32,
    /// The handle of the memory that it unlinked, or 0.
    pub(crate) unlinked: u64,
    /// Immediate Data that came with it (receives only): see [`IMMEDIATE`].
    pub(crate) immediate: Option<u64>,
}

/// In the `flags` of an `it_all_dto_cmpl_event_t`: its `src_path.timeout` is Immediate Data. A receive
/// on a connection uses neither member for anything else.
pub(crate) const IMMEDIATE: it_dto_ud_flags_t = 1 << 31;

/// The id of a request in the send queue (`receive`: a receive queue) of the object in `slot`.
pub(crate) fn id(slot: u32, receive: bool, number: u32, notify: bool) -> u64 {
    let receive = if receive { RECEIVE } else { 0 };
    let notify = if notify { ual::event::NOTIFY } else { 0 };
    notify | receive | (u64::from(slot) & SLOT) << 32 | u64::from(number)
}

/// The slot of an id, whether it is of a receive queue, and the number there.
pub(crate) fn parts(id: u64) -> (u32, bool, u32) {
    ((id >> 32 & SLOT) as u32, id & RECEIVE != 0, id as u32)
}

/// What a completion is in C. `None`: its endpoint is gone, and with it what there was to say; or
/// it is of datagrams (`ud::post`).
#[inline]
pub(crate) fn resolve(completion: &WorkCompletion) -> Option<Resolved> {
    let slot = (completion.wr_id >> 32 & SLOT) as u32;
    let number = completion.wr_id as u32;
    if let Some(ep) = object::at::<EpObject>(slot) {
        if ep.qp != completion.qp {
            return None;
        }
        let ring = if completion.wr_id & RECEIVE != 0 { &ep.receives } else { &ep.sends };
        let request = ring.take(number, completion.status == WcStatus::Success)?;
        return Some(describe(&ep, &request, completion));
    }
    let srq = object::at::<SrqObject>(slot)?;
    let ep = srq.inner.pz().ia().ep(completion.qp)?;
    // Else it is left over from a queue that had the slot before.
    ep.srq().filter(|used| Arc::ptr_eq(used, &srq.inner))?;
    let request = lock(&srq.receives).complete(number, completion.qp)?;
    let ep = object::find::<EpObject>(object::handle(ep.tag().get())).ok()?;
    Some(describe(&ep, &request, completion))
}

fn describe(ep: &EpObject, request: &Request, completion: &WorkCompletion) -> Resolved {
    let good = completion.status == WcStatus::Success;
    let unlinked = match completion.invalidated {
        Some(stag) => stags::handle(ep.inner.ia(), stag),
        None if good => request.unlinks,
        None => 0,
    };
    Resolved {
        event: request.event,
        ep: ep.handle,
        cookie: request.cookie,
        status: if good { IT_DTO_SUCCESS } else { failed(ep, request, completion) },
        length: if good { completion.octets } else { 0 },
        unlinked,
        immediate: completion.immediate,
    }
}

#[cold]
fn failed(ep: &EpObject, request: &Request, completion: &WorkCompletion) -> it_dto_status_t {
    let of_this_connection = || ep.inner.qp_info().ok().and_then(|qp| qp.terminate);
    let terminate = match completion.status {
        WcStatus::RemoteTermination => request.terminate.or_else(of_this_connection),
        _ => None,
    };
    let event = request.event;
    let status = status_of(event, completion.opcode, completion.status, terminate);
    boundary::note(text::not_done(event, status, &ep.inner));
    status
}

/// The `it_dto_status_t` of a completion. `terminate`: what the peer's Terminate said, if that was it.
pub(crate) fn status_of(
    event: it_event_type_t,
    opcode: WcOpcode,
    status: WcStatus,
    terminate: Option<Terminate>,
) -> it_dto_status_t {
    match (event, status) {
        (_, WcStatus::Success) => return IT_DTO_SUCCESS,
        (_, WcStatus::Flushed) => return IT_DTO_ERR_FLUSHED,
        (IT_LMR_LINK_CMPL_EVENT, _) => return IT_DTO_ERR_LOCAL_MM_OPERATION,
        // One number for link and unlink, which IT-API tells apart in the status.
        (IT_RMR_LINK_CMPL_EVENT, _) if opcode == WcOpcode::InvalidateLocal => {
            return IT_DTO_ERR_LOCAL_MM_OPERATION;
        }
        (IT_RMR_LINK_CMPL_EVENT, _) => return IT_RMR_OPERATION_FAILED,
        _ => (),
    }
    match status {
        // The message was longer than its receive; else outside a local region.
        WcStatus::Bounds
            if matches!(event, IT_DTO_RC_RECV_CMPL_EVENT | IT_DTO_UD_RECV_CMPL_EVENT) =>
        {
            IT_DTO_ERR_LOCAL_LENGTH
        }
        WcStatus::InvalidLength => IT_DTO_ERR_LOCAL_LENGTH,
        WcStatus::InvalidStag
        | WcStatus::Bounds
        | WcStatus::AccessViolation
        | WcStatus::InvalidPd
        | WcStatus::Wrap
        | WcStatus::CannotInvalidate
        | WcStatus::NotPrivileged => IT_DTO_ERR_LOCAL_PROTECTION,
        WcStatus::StagNotInvalid | WcStatus::InvalidWindow => IT_DTO_ERR_LOCAL_MM_OPERATION,
        WcStatus::RemoteTermination => terminated(terminate),
        // InvalidWqe, LocalCatastrophic, ZeroReadResources: the endpoint itself. And whatever a
        // provider may add.
        _ => IT_DTO_ERR_LOCAL_EP,
    }
}

// RFC 5040 4.8: layer and error type.
fn terminated(terminate: Option<Terminate>) -> it_dto_status_t {
    match terminate.map(|terminate| (terminate.layer, terminate.etype)) {
        Some((0 | 1, 1)) => IT_DTO_ERR_REMOTE_ACCESS,
        Some((2, _)) => IT_DTO_ERR_TRANSPORT,
        _ => IT_DTO_ERR_REMOTE_RESPONDER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(WcStatus, it_dto_status_t); 17] = [
        (WcStatus::Success, 0),
        (WcStatus::InvalidStag, 3),
        (WcStatus::Flushed, 4),
        (WcStatus::InvalidWqe, 2),
        (WcStatus::LocalCatastrophic, 2),
        (WcStatus::RemoteTermination, 8),
        (WcStatus::Bounds, 3),
        (WcStatus::AccessViolation, 3),
        (WcStatus::InvalidPd, 3),
        (WcStatus::Wrap, 3),
        (WcStatus::CannotInvalidate, 3),
        (WcStatus::ZeroReadResources, 2),
        (WcStatus::NotPrivileged, 3),
        (WcStatus::StagNotInvalid, 12),
        (WcStatus::InvalidWindow, 12),
        (WcStatus::InvalidLength, 1),
        (WcStatus::Flushed, 4),
    ];

    #[test]
    fn each_completion_status_has_one_of_it_api() {
        for (status, expected) in ALL {
            let found = status_of(IT_DTO_SEND_CMPL_EVENT, WcOpcode::Send, status, None);
            assert_eq!(found, expected, "{status:?}");
            for (event, opcode, failed) in [
                (IT_LMR_LINK_CMPL_EVENT, WcOpcode::FastRegister, IT_DTO_ERR_LOCAL_MM_OPERATION),
                (IT_RMR_LINK_CMPL_EVENT, WcOpcode::BindMw, IT_RMR_OPERATION_FAILED),
                (IT_RMR_LINK_CMPL_EVENT, WcOpcode::InvalidateLocal, IT_DTO_ERR_LOCAL_MM_OPERATION),
            ] {
                let expected = match status {
                    WcStatus::Success => IT_DTO_SUCCESS,
                    WcStatus::Flushed => IT_DTO_ERR_FLUSHED,
                    _ => failed,
                };
                assert_eq!(status_of(event, opcode, status, None), expected, "{status:?}");
            }
        }
        let too_long = status_of(IT_DTO_RC_RECV_CMPL_EVENT, WcOpcode::Recv, WcStatus::Bounds, None);
        assert_eq!(too_long, IT_DTO_ERR_LOCAL_LENGTH);
    }

    #[test]
    fn a_terminate_says_what_the_peer_minded() {
        let terminate = |layer, etype| Terminate::new(false, layer, etype, 0);
        for (layer, etype, expected) in [
            (0, 1, IT_DTO_ERR_REMOTE_ACCESS),
            (1, 1, IT_DTO_ERR_REMOTE_ACCESS),
            (1, 2, IT_DTO_ERR_REMOTE_RESPONDER),
            (0, 2, IT_DTO_ERR_REMOTE_RESPONDER),
            (2, 0, IT_DTO_ERR_TRANSPORT),
        ] {
            assert_eq!(terminated(Some(terminate(layer, etype))), expected);
        }
    }

    #[test]
    fn the_parts_of_an_id_do_not_touch() {
        let parts = [id(0, false, 0, true), id(0, true, 0, false), id(0, false, u32::MAX, false)];
        let slot = id(u32::MAX, false, 0, false);
        assert_eq!(parts.iter().fold(slot, |all, part| all | part), u64::MAX);
        assert_eq!(parts.iter().map(|part| part.count_ones()).sum::<u32>() + 30, 64);
    }
}
