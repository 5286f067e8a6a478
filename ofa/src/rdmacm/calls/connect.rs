//! Connections: rdma_listen(3), rdma_connect(3), rdma_accept(3), rdma_establish(3), rdma_reject(3),
//! rdma_disconnect(3), rdma_notify(3).

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use ibv_sys::*;

use super::id::{Whole, complete, id_of};
use super::queue_pair;
use crate::errno::{self, EINVAL, Errno};
use crate::rdmacm::connect::Wish;
use crate::rdmacm::endpoint::Connects;
use crate::record;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    // SAFETY: the caller's identifier.
    errno::minus(record::call("rdma_listen", unsafe { listen(id, backlog) }))
}

unsafe fn listen(id: *mut rdma_cm_id, backlog: c_int) -> Result<(), Errno> {
    // SAFETY: the caller's identifier.
    let private = unsafe { id_of(id) }?;
    // SAFETY: as above.
    private.listen(backlog, unsafe { is_of_one_device(id) })?;
    // SAFETY: as above; it may be bound by this.
    unsafe { super::id::show(id) };
    Ok(())
}

/// Whether the program has given a listener objects of one device for its requests (rdma_create_ep(3)): they could not
/// be used with a request by another device.
unsafe fn is_of_one_device(id: *mut rdma_cm_id) -> bool {
    // SAFETY: a living identifier, written in calls of its owner only.
    let whole = unsafe { &*id.cast::<Whole>() };
    // SAFETY: NULL, or a box that the identifier owns.
    let saved = unsafe { whole.saved.as_ref() };
    let has_queue = |saved: &ibv_qp_init_attr| {
        !saved.send_cq.is_null() || !saved.recv_cq.is_null() || !saved.srq.is_null()
    };
    !whole.id.pd.is_null() || saved.is_some_and(has_queue)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn warpline_rdma_connect(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: the caller's identifier and parameters.
    errno::minus(unsafe {
        begin(id, param, |private, connects, wish| match private.is_datagrams() {
            true => private.ask(&wish),
            false => private.connect(connects, wish),
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn warpline_rdma_accept(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: the caller's identifier and parameters.
    errno::minus(unsafe {
        begin(id, param, |private, connects, wish| match private.is_datagrams() {
            true => private.answer(&connects, &wish),
            false => private.accept(connects, wish),
        })
    })
}

type Begin = fn(&Arc<crate::rdmacm::Id>, Connects, Wish) -> Result<(), Errno>;

unsafe fn begin(
    id: *mut rdma_cm_id,
    param: *const rdma_conn_param,
    begin: Begin,
) -> Result<(), Errno> {
    // SAFETY: the caller's identifier.
    unsafe { start(id, param, begin) }?;
    // SAFETY: as above.
    if unsafe { id_of(id) }?.has_answered() {
        // No event follows the reply of a service.
        return Ok(());
    }
    // SAFETY: as above.
    unsafe { complete(id) }
}

unsafe fn start(
    id: *mut rdma_cm_id,
    param: *const rdma_conn_param,
    begin: Begin,
) -> Result<(), Errno> {
    // SAFETY: the caller's identifier.
    let private = unsafe { id_of(id) }?;
    // SAFETY: NULL, or the caller's parameters.
    let param = unsafe { param.as_ref() };
    // SAFETY: as above.
    let wish = param.map(|param| unsafe { wish(param) }).unwrap_or_default();
    // SAFETY: as above.
    let connects = unsafe { queue_pair::of(id, param.map(|param| param.qp_num)) }?;
    begin(private, connects, wish)
}

unsafe fn wish(param: &rdma_conn_param) -> Wish {
    let reads = |reads: u8| (reads != RDMA_MAX_RESP_RES).then_some(reads);
    let (responder_resources, initiator_depth) =
        (reads(param.responder_resources), reads(param.initiator_depth));
    // SAFETY: the caller's octets, as many as it says.
    let data = unsafe { octets(param.private_data, param.private_data_len) };
    Wish { data, responder_resources, initiator_depth }
}

unsafe fn octets(data: *const c_void, len: u8) -> Vec<u8> {
    if data.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's octets, which it does not change during the call.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len.into()) }.to_vec()
}

/// Follows `RDMA_CM_EVENT_CONNECT_RESPONSE`: only now the peer gets `RDMA_CM_EVENT_ESTABLISHED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's identifier.
    let private = unsafe { id_of(id) };
    errno::minus(private.and_then(|private| {
        // SAFETY: as above.
        let has_qp = !unsafe { (*id).qp }.is_null();
        if has_qp { Err(EINVAL) } else { private.establish() }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_reject(
    id: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
) -> c_int {
    // SAFETY: the caller's octets.
    let data = unsafe { octets(data, len) };
    // SAFETY: the caller's identifier.
    errno::minus(unsafe { id_of(id) }.and_then(|private| private.reject(&data)))
}

/// There is no enhanced connection establishment: the same as without.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_reject_ece(
    id: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { warpline_rdma_reject(id, data, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn warpline_rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's identifier.
    errno::minus(unsafe { disconnect(id) })
}

unsafe fn disconnect(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the caller's identifier.
    let private = unsafe { id_of(id) }?;
    private.disconnect()?;
    // An event will come, or has come; unless an earlier call fetched it.
    if !private.has_ended() || private.has_event() {
        // SAFETY: as above.
        unsafe { complete(id) }?;
    }
    Ok(())
}

/// Events that applications report to InfiniBand's connection manager; here it gets them itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_notify(id: *mut rdma_cm_id, _event: u32) -> c_int {
    // SAFETY: the caller's identifier.
    errno::minus(
        unsafe { id_of(id) }.and_then(
            |private| {
                if private.has_connection() { Ok(()) } else { Err(EINVAL) }
            },
        ),
    )
}
