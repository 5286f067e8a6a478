//! Options (rdma_set_option(3)), and the only function of rsocket(7) that programs without rsockets use:
//! rpoll.

use std::ffi::{c_int, c_void};

use ibv_sys::*;

use super::id::id_of;
use crate::errno::{self, EINVAL, EOPNOTSUPP, Errno};
use crate::rdmacm::option::Change;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller's value.
    let change = unsafe { change(level, name, value, len) };
    // SAFETY: the caller's identifier.
    let private = unsafe { id_of(id) };
    errno::minus(change.and_then(|change| private?.set_option(change)))
}

unsafe fn change(
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> Result<Change, Errno> {
    match (level, name) {
        (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => {
            // SAFETY: the caller's value of this length.
            unsafe { read(value, len) }.map(Change::Tos)
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => {
            // SAFETY: as above.
            unsafe { read(value, len) }.map(Change::AckTimeout)
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => {
            // SAFETY: as above.
            unsafe { read::<c_int>(value, len) }.map(|on| Change::ReuseAddress(on != 0))
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => {
            // SAFETY: as above.
            unsafe { read::<c_int>(value, len) }.map(|on| Change::V6Only(on != 0))
        }
        // Paths are left to TCP.
        (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => Err(EOPNOTSUPP),
        _ => Err(Errno(libc::ENOSYS)),
    }
}

/// EINVAL: the value has another length.
unsafe fn read<T: Copy>(value: *const c_void, len: usize) -> Result<T, Errno> {
    if value.is_null() || len != size_of::<T>() {
        return Err(EINVAL);
    }
    // SAFETY: the caller's value, so long; it may be less aligned.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

/// poll(2): all descriptors are the system's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rpoll(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's descriptors.
    unsafe { libc::poll(fds, count, timeout) }
}
