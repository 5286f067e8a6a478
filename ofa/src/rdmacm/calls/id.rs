//! Identifiers: rdma_create_id(3), rdma_destroy_id(3), rdma_migrate_id(3), and their public structure.
//!
//! The structure is written only during calls of the application, by the calling thread.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::sync::Arc;

use ibv_sys::*;

use super::channel::{self, warpline_rdma_ack_cm_event};
use super::device::served;
use crate::device;
use crate::errno::{self, EINVAL, EOPNOTSUPP, Errno};
use crate::object::{self, Handle};
use crate::rdmacm::id::Id;
use crate::record;

/// The structure of an identifier, and what it points to.
#[repr(C)]
pub struct Whole {
    pub(super) id: rdma_cm_id,
    path: ibv_sa_path_rec,
    /// What rdma_create_ep keeps for the queue pairs of requests' identifiers, or NULL.
    pub(super) saved: *mut ibv_qp_init_attr,
}

impl Handle for rdma_cm_id {
    type Whole = Whole;
    type Private = Id;
    const NAME: &'static str = "struct rdma_cm_id";
}

/// The private part of an identifier.
///
/// # Safety
/// As [`object::with`].
pub(super) unsafe fn id_of<'a>(id: *mut rdma_cm_id) -> Result<&'a Arc<Id>, Errno> {
    // SAFETY: the caller's promise.
    unsafe { object::with(id) }
}

/// ENODEV if there is no device.
pub(super) fn any_device() -> Result<(), Errno> {
    if device::all()?.is_empty() { Err(Errno(libc::ENODEV)) } else { Ok(()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: u32,
) -> c_int {
    if id.is_null() {
        return errno::minus(Err(EINVAL));
    }
    // SAFETY: the caller's channel.
    let made = record::call("rdma_create_id", unsafe { create(channel, context, ps) });
    // SAFETY: the caller's variable.
    errno::minus(made.map(|made| unsafe { id.write(made) }))
}

pub(super) unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: u32,
) -> Result<*mut rdma_cm_id, Errno> {
    match ps {
        RDMA_PS_TCP | RDMA_PS_IB => {}
        // iWARP has no datagrams.
        RDMA_PS_UDP if !device::have_datagrams()? => return Err(EOPNOTSUPP),
        RDMA_PS_UDP => {}
        RDMA_PS_IPOIB => return Err(EOPNOTSUPP),
        _ => return Err(EINVAL),
    }
    any_device()?;
    let (place, handle) = if channel.is_null() {
        channel::make()?
    } else {
        // SAFETY: the caller's channel.
        (unsafe { object::with(channel) }?.clone(), channel)
    };
    let private = Id::new(place, channel.is_null(), ps == RDMA_PS_UDP);
    Ok(make(private, handle, context, ps))
}

/// The handle of an identifier on a channel.
pub(super) fn make(
    private: Arc<Id>,
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: u32,
) -> *mut rdma_cm_id {
    let id = rdma_cm_id {
        verbs: null_mut(),
        channel,
        context,
        qp: null_mut(),
        route: route(),
        ps,
        port_num: 0,
        event: null_mut(),
        send_cq_channel: null_mut(),
        send_cq: null_mut(),
        recv_cq_channel: null_mut(),
        recv_cq: null_mut(),
        srq: null_mut(),
        pd: null_mut(),
        qp_type: if private.is_datagrams() { IBV_QPT_UD } else { IBV_QPT_RC },
    };
    let whole = Whole { id, path: ibv_sa_path_rec::default(), saved: null_mut() };
    let handle = object::new(whole, private.clone());
    private.set_handle(handle);
    handle
}

fn route() -> rdma_route {
    let nowhere = storage(None);
    let addr = rdma_addr { src_storage: nowhere, dst_storage: nowhere, ibaddr: [0; 5] };
    rdma_route { addr, path_rec: null_mut(), num_paths: 0 }
}

/// Writes an identifier's addresses and device to its structure.
///
/// # Safety
/// A live identifier.
pub(super) unsafe fn show(id: *mut rdma_cm_id) {
    // SAFETY: the caller's promise.
    let Ok(private) = (unsafe { id_of(id) }) else { return };
    let view = private.view();
    // SAFETY: the structure is written in calls of its owner only; no other reference to it exists.
    let whole = unsafe { &mut *id.cast::<Whole>() };
    let shown = &mut whole.id;
    shown.route.addr.src_storage = storage(view.local);
    shown.route.addr.dst_storage = storage(view.remote);
    if view.has_route && shown.route.path_rec.is_null() {
        whole.path.numb_path = 1;
        whole.path.reversible = 1;
        whole.path.pkey = u16::MAX;
        shown.route.path_rec = (&raw mut whole.path).cast();
        shown.route.num_paths = 1;
    }
    let Some(adapter) = view.adapter.filter(|_| shown.verbs.is_null()) else { return };
    match served(&adapter) {
        Ok(served) => {
            shown.verbs = served.context();
            shown.port_num = 1;
            if shown.pd.is_null() {
                shown.pd = served.pd();
            }
        }
        Err(Errno(errno)) => tracing::warn!("no context for an identifier: error {errno}"),
    }
}

/// An address as a C structure; zeroes for none.
pub(super) fn storage(address: Option<SocketAddr>) -> libc::sockaddr_storage {
    // SAFETY: zeroes are a value of every field.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let to = &raw mut storage;
    match address {
        Some(SocketAddr::V4(v4)) => {
            let address = libc::sockaddr_in {
                sin_family: libc::AF_INET as _,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: it is large and aligned enough for every address.
            unsafe { to.cast::<libc::sockaddr_in>().write(address) };
        }
        Some(SocketAddr::V6(v6)) => {
            let address = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as _,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { to.cast::<libc::sockaddr_in6>().write(address) };
        }
        None => {}
    }
    storage
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's identifier.
    let private = unsafe { id_of(id) };
    errno::minus(private.map(|private| {
        // SAFETY: as above.
        unsafe { forget_event(id) };
        private.destroy();
        let (_, synchronous) = private.channel();
        // SAFETY: as above.
        let whole = unsafe { &*id.cast::<Whole>() };
        let (channel, saved) = (whole.id.channel, whole.saved);
        // SAFETY: the caller gives it up; nothing refers to it any more.
        drop(unsafe { object::destroy(id) });
        if synchronous {
            // SAFETY: its own.
            unsafe { channel::destroy_own(channel) };
        }
        if !saved.is_null() {
            // SAFETY: a box of `rdma_create_ep`, owned by the identifier.
            drop(unsafe { Box::from_raw(saved) });
        }
    }))
}

/// Acknowledges the event that a synchronous call left.
pub(super) unsafe fn forget_event(id: *mut rdma_cm_id) {
    // SAFETY: the caller's identifier.
    let event = std::mem::replace(unsafe { &mut (*id).event }, null_mut());
    if !event.is_null() {
        // SAFETY: given to this identifier, and not acknowledged.
        unsafe { warpline_rdma_ack_cm_event(event) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    // SAFETY: the caller's identifier and channel.
    errno::minus(unsafe { migrate(id, channel) })
}

unsafe fn migrate(id: *mut rdma_cm_id, to: *mut rdma_event_channel) -> Result<(), Errno> {
    // SAFETY: the caller's identifier.
    let private = unsafe { id_of(id) }?;
    let (_, was_synchronous) = private.channel();
    if was_synchronous && to.is_null() {
        return Err(EINVAL);
    }
    let (place, handle) = if to.is_null() {
        channel::make()?
    } else {
        // SAFETY: the caller's channel.
        (unsafe { object::with(to) }?.clone(), to)
    };
    if was_synchronous {
        // SAFETY: as above.
        unsafe { forget_event(id) };
    }
    private.migrate(place, to.is_null());
    // SAFETY: as above.
    let old = std::mem::replace(unsafe { &mut (*id).channel }, handle);
    if was_synchronous {
        // SAFETY: its own.
        unsafe { channel::destroy_own(old) };
    }
    Ok(())
}

/// Waits for the event of a call on a synchronous identifier, and leaves it there; the call returns its
/// status.
pub(super) unsafe fn complete(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the caller's identifier.
    let (_, synchronous) = unsafe { id_of(id) }?.channel();
    if !synchronous {
        return Ok(());
    }
    // SAFETY: as above.
    unsafe { forget_event(id) };
    // SAFETY: as above.
    let own = unsafe { (*id).channel };
    // SAFETY: its own channel.
    let event = unsafe { channel::next(own) }?;
    // SAFETY: as above.
    unsafe { (*id).event = event };
    // SAFETY: given just now.
    let given = unsafe { &*event };
    match (given.event, given.status) {
        (_, 0) => Ok(()),
        // A rule of this end.
        (RDMA_CM_EVENT_REJECTED, status) if status == -libc::EACCES => Err(Errno(libc::EACCES)),
        (RDMA_CM_EVENT_REJECTED, _) => Err(Errno(libc::ECONNREFUSED)),
        (_, status) => Err(Errno(status.abs())),
    }
}
