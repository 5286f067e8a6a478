//! Event channels and events: rdma_create_event_channel(3), rdma_get_cm_event(3), rdma_ack_cm_event(3),
//! rdma_event_str(3).
//!
//! The application owns an event from fetching to acknowledging it. A request's identifier is created
//! here, with its event.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut, with_exposed_provenance};
use std::sync::Arc;

use ibv_sys::*;
use vp_api::VpStatus;

use super::id::{self, show};
use crate::errno::{self, EINVAL, Errno};
use crate::notify;
use crate::object::{self, Handle};
use crate::rdmacm::channel::{Channel, ChannelEvent, Pending};
use crate::rdmacm::event::{self, Conn, Event, Service};
use crate::rdmacm::id::Id;
use crate::rdmacm::request::Asked;
use crate::verbs::context::PORT;

impl Handle for rdma_event_channel {
    type Whole = Self;
    type Private = Channel;
    const NAME: &'static str = "struct rdma_event_channel";
}

/// An event that the application has not acknowledged.
pub struct Given {
    /// The identifier that counts its acknowledgement.
    id: Arc<Id>,
    data: Vec<u8>,
}

impl Handle for rdma_cm_event {
    type Whole = Self;
    type Private = Given;
    const NAME: &'static str = "struct rdma_cm_event";
}

/// A private channel, and its handle.
pub(super) fn make() -> Result<(Arc<Channel>, *mut rdma_event_channel), Errno> {
    let channel = Channel::new()?;
    let handle = object::new(rdma_event_channel { fd: channel.fd() }, channel.clone());
    Ok((channel, handle))
}

#[unsafe(no_mangle)]
pub extern "C" fn warpline_rdma_create_event_channel() -> *mut rdma_event_channel {
    errno::pointer(id::any_device().and_then(|()| make()).map(|(_, handle)| handle))
}

/// A thread of rping may fetch its next event when the channel is destroyed already: the structure stays, so
/// that this call is refused, two seconds later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: the caller's channel, which it gives up.
    let private = unsafe { object::retire(channel) };
    if private.as_ref().is_ok_and(|private| private.queue().is_waited_at()) {
        std::mem::forget(private);
    }
}

/// The private channel of an identifier ends with it.
pub(super) unsafe fn destroy_own(channel: *mut rdma_event_channel) {
    // SAFETY: the caller's channel, which it gives up; no other call has it.
    drop(unsafe { object::destroy(channel) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn warpline_rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    if event.is_null() {
        return errno::minus(Err(EINVAL));
    }
    // SAFETY: the caller's channel.
    let next = unsafe { next(channel) };
    errno::minus(next.map(|next| {
        // SAFETY: the caller's variable.
        unsafe { event.write(next) };
    }))
}

/// Milliseconds before a call on a destroyed channel is refused. rping's main thread destroys the channel and
/// ends the process; its other thread, if it is then between two calls, would end it first, with an error.
const FOR_THE_END: c_int = 2000;

/// The next event; waits for it unless the descriptor is nonblocking. A cancellation point.
pub(super) unsafe fn next(channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event, Errno> {
    loop {
        let enter = |private: &Arc<Channel>| {
            private.queue().enter();
            Arc::as_ptr(private)
        };
        // SAFETY: the caller's channel.
        let Ok(private) = (unsafe { object::unless_retired(channel, enter) }) else {
            if !channel.is_null() {
                notify::pause(FOR_THE_END);
            }
            return Err(EINVAL);
        };
        // SAFETY: a channel that a thread has entered is not freed.
        let queue = unsafe { &*private }.queue();
        let Pending { id, event } = queue.take_entered(|_, _| Err(VpStatus::Unsupported))?;
        match event {
            ChannelEvent::Event(event) => return Ok(give(id, event)),
            // SAFETY: the caller's channel.
            ChannelEvent::Request(asked) => match unsafe { introduce(channel, &id, asked) } {
                Ok(event) => return Ok(event),
                // Rejected: this process has no descriptor left for it.
                Err(Errno(errno)) => {
                    id.acks().acked(1);
                    tracing::warn!("a connection request is rejected: error {errno}");
                }
            },
        }
    }
}

fn give(id: Arc<Id>, event: Event) -> *mut rdma_cm_event {
    let Event { kind, status, conn } = event;
    let (about, given) = (id.handle(), Given { id, data: Vec::new() });
    shown(about, null_mut(), (kind, status), conn, given)
}

/// Creates the identifier of a request, on its listener's channel or, if that is synchronous, on a
/// private one.
unsafe fn introduce(
    channel: *mut rdma_event_channel,
    listener: &Arc<Id>,
    mut asked: Box<Asked>,
) -> Result<*mut rdma_cm_event, Errno> {
    asked.fetched();
    let conn = asked.conn.clone();
    let (of_listener, synchronous) = listener.channel();
    let (place, place_handle) = if synchronous { make()? } else { (of_listener, channel) };
    let child = Id::of_request(asked, place, synchronous);
    let parent = listener.handle();
    // SAFETY: the listener lives until this event is acknowledged.
    let public = unsafe { &*parent };
    let handle = id::make(child, place_handle, public.context, public.ps);
    // SAFETY: made just now.
    unsafe { show(handle) };
    let given = Given { id: listener.clone(), data: Vec::new() };
    Ok(shown(handle, parent, (RDMA_CM_EVENT_CONNECT_REQUEST, 0), conn, given))
}

/// The event as the application sees it.
fn shown(
    id: *mut rdma_cm_id,
    listen_id: *mut rdma_cm_id,
    (event, status): (u32, i32),
    conn: Conn,
    mut given: Given,
) -> *mut rdma_cm_event {
    given.data = conn.data;
    let private_data = if given.data.is_empty() { null() } else { given.data.as_ptr().cast() };
    let private_data_len = given.data.len() as u8;
    if let Some(service) = conn.service {
        // An event of a multicast group has what the application gave in place of private data.
        let private_data = match conn.context {
            0 => private_data,
            context => with_exposed_provenance(context),
        };
        let ud = ud_param(&service, private_data, private_data_len);
        let whole = rdma_cm_event { id, listen_id, event, status, param: cm_param { ud } };
        return object::new(whole, Arc::new(given));
    }
    // An event for datagrams begins with the same two fields; the others are zeroes.
    let terms = conn.terms.unwrap_or_default();
    let conn = rdma_conn_param {
        private_data,
        private_data_len,
        responder_resources: conn.responder_resources,
        initiator_depth: conn.initiator_depth,
        flow_control: 0,
        retry_count: terms.retry_count,
        rnr_retry_count: terms.rnr_retry,
        srq: terms.srq.into(),
        qp_num: terms.qpn,
    };
    let whole = rdma_cm_event { id, listen_id, event, status, param: cm_param { conn } };
    object::new(whole, Arc::new(given))
}

fn ud_param(service: &Service, data: *const c_void, len: u8) -> rdma_ud_param {
    let Service { address, path, sgid_index } = service;
    rdma_ud_param {
        private_data: data,
        private_data_len: len,
        ah_attr: ibv_ah_attr {
            grh: ibv_global_route {
                dgid: ibv_gid { raw: path.remote_gid },
                flow_label: path.flow_label,
                sgid_index: *sgid_index,
                hop_limit: path.hop_limit,
                traffic_class: path.traffic_class,
            },
            is_global: 1,
            port_num: PORT,
            ..ibv_ah_attr::default()
        },
        qp_num: address.qpn,
        qkey: address.qkey,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    // SAFETY: the caller's event, which it gives up.
    let given = unsafe { object::destroy(event) };
    errno::minus(given.map(|given| given.id.acks().acked(1)))
}

#[unsafe(no_mangle)]
pub extern "C" fn warpline_rdma_event_str(event: u32) -> *const c_char {
    event::name(event).as_ptr()
}
