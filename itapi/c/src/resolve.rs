//! Finds the posted request of a completion.
//!
//! Looking one up takes no lock but that of its queue, and allocates nothing. Any thread; each request
//! is resolved once.

use std::sync::Arc;

use kal_os::lock;
use ual::vp_api::{WcStatus, WorkCompletion};

use super::completion::{Resolved, status_of};
use super::ep::EpObject;
use super::event::text;
use super::ring::Request;
use super::srq::SrqObject;
use super::types::*;
use super::{boundary, object, stags, wr_id};

/// A completion in C's terms. `None`: its endpoint is gone, and the completion with it; or it is of
/// datagrams (`ud::post`).
#[inline]
pub(crate) fn resolve(completion: &WorkCompletion) -> Option<Resolved> {
    let (slot, receive, number) = wr_id::parts(completion.wr_id);
    if let Some(ep) = object::at::<EpObject>(slot) {
        if ep.qp != completion.qp {
            return None;
        }
        let ring = if receive { &ep.receives } else { &ep.sends };
        let request = ring.take(number, completion.status == WcStatus::Success)?;
        return Some(describe(&ep, &request, completion));
    }
    let srq = object::at::<SrqObject>(slot)?;
    let ep = srq.inner.pz().ia().ep(completion.qp)?;
    // If not, it is left over from a queue that had the slot before.
    ep.srq().filter(|used| Arc::ptr_eq(used, &srq.inner))?;
    let request = lock(&srq.receives).complete(number, completion.qp)?;
    let ep = object::find::<EpObject>(object::handle(ep.tag().get())).ok()?;
    Some(describe(&ep, &request, completion))
}

#[inline]
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
    boundary::set_last_failure(text::not_done(event, status, &ep.inner));
    status
}
