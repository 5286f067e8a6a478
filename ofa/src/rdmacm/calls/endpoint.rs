//! Endpoints: rdma_create_ep(3), rdma_destroy_ep(3), rdma_get_request(3): synchronous identifiers that
//! are bound or resolved and have a queue pair at once.

use std::ffi::c_int;
use std::ptr::null_mut;

use ibv_sys::*;

use super::address;
use super::channel::{self, warpline_rdma_ack_cm_event};
use super::id::{self, Whole, forget_event, id_of, warpline_rdma_destroy_id};
use super::queue_pair::{create_plain, warpline_rdma_destroy_qp, warpline_rdma_destroy_srq};
use crate::errno::{self, EINVAL, Errno};

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn warpline_rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: NULL, or the caller's address information.
    let Some(res) = (unsafe { res.as_ref() }) else { return errno::minus(Err(EINVAL)) };
    // SAFETY: it is not shared yet.
    let made = unsafe { id::create(null_mut(), null_mut(), res.ai_port_space as u32) };
    errno::minus(made.and_then(|made| {
        // SAFETY: made just now, with the caller's structures.
        let done = unsafe { set_up(made, res, pd, attr) };
        if done.is_err() || id.is_null() {
            // SAFETY: no other thread has it.
            unsafe { warpline_rdma_destroy_ep(made) };
            return done.and(Err(EINVAL));
        }
        // SAFETY: the caller's variable.
        unsafe { id.write(made) };
        Ok(())
    }))
}

unsafe fn set_up(
    id: *mut rdma_cm_id,
    res: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<(), Errno> {
    // SAFETY: NULL, or the caller's structure.
    if let Some(attr) = unsafe { attr.as_mut() } {
        attr.qp_type = res.ai_qp_type as u32;
    }
    if res.ai_flags & RAI_PASSIVE != 0 {
        // SAFETY: the identifier, and the caller's address.
        unsafe { address::bind(id, res.ai_src_addr) }?;
        // SAFETY: as above.
        unsafe { save(id, pd, attr) };
        return Ok(());
    }
    // SAFETY: as above.
    unsafe { address::resolve_address(id, res.ai_src_addr, res.ai_dst_addr) }?;
    // SAFETY: as above.
    unsafe { address::resolve_route(id) }?;
    if attr.is_null() {
        return Ok(());
    }
    // SAFETY: as above.
    unsafe { create_plain(id, pd, attr) }
}

/// Keeps the attributes for the identifiers of requests.
unsafe fn save(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *const ibv_qp_init_attr) {
    // SAFETY: an identifier that is not shared yet.
    let whole = unsafe { &mut *id.cast::<Whole>() };
    if !pd.is_null() {
        whole.id.pd = pd;
    }
    if !attr.is_null() {
        // SAFETY: the caller's structure, of plain values.
        let attr = unsafe { attr.read() };
        whole.saved = Box::into_raw(Box::new(attr));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: the caller's identifier.
    unsafe { warpline_rdma_destroy_qp(id) };
    // SAFETY: as above.
    unsafe { warpline_rdma_destroy_srq(id) };
    // SAFETY: as above.
    unsafe { warpline_rdma_destroy_id(id) };
}

/// EINVAL: the listener is not synchronous.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn warpline_rdma_get_request(
    listener: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    // SAFETY: the caller's listener and variable.
    errno::minus(unsafe { get_request(listener, id) })
}

unsafe fn get_request(listener: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the caller's listener.
    let (_, synchronous) = unsafe { id_of(listener) }?.channel();
    if !synchronous || id.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: as above.
    unsafe { forget_event(listener) };
    // SAFETY: as above.
    let own = unsafe { (*listener).channel };
    // SAFETY: its own channel.
    let event = unsafe { channel::next(own) }?;
    // SAFETY: given just now.
    let child = unsafe { (*event).id };
    // SAFETY: as above; an event of a synchronous listener is a request.
    if let Err(error) = unsafe { equip(listener, child) } {
        // SAFETY: as above; the request is rejected with it.
        unsafe { warpline_rdma_ack_cm_event(event) };
        // SAFETY: no other thread has it.
        unsafe { warpline_rdma_destroy_id(child) };
        return Err(error);
    }
    // SAFETY: made for the caller.
    unsafe { (*child).event = event };
    // SAFETY: the caller's variable.
    unsafe { id.write(child) };
    Ok(())
}

/// Gives the identifier of a request the queue pair of its listener's attributes.
unsafe fn equip(listener: *mut rdma_cm_id, child: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: a living identifier, written in calls of its owner only.
    let whole = unsafe { &*listener.cast::<Whole>() };
    // SAFETY: NULL, or a box that the identifier owns.
    let Some(saved) = (unsafe { whole.saved.as_ref() }) else { return Ok(()) };
    let mut attr = ibv_qp_init_attr { ..*saved };
    // SAFETY: as above.
    unsafe { create_plain(child, whole.id.pd, &raw mut attr) }
}
