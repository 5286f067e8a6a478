//! Multicast groups: rdma_join_multicast(3), rdma_join_multicast_ex(3), rdma_leave_multicast(3).

use std::ffi::{c_int, c_void};

use ibv_sys::*;

use super::address::read;
use super::id::{complete, id_of};
use crate::device;
use crate::errno::{self, EINVAL, EOPNOTSUPP, Errno};
use crate::qp::Qp;

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn warpline_rdma_join_multicast(
    id: *mut rdma_cm_id,
    group: *mut libc::sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's identifier and address.
    errno::minus(unsafe { join(id, group, true, context) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn warpline_rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    const BOTH: u32 = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    // SAFETY: NULL, or the caller's structure.
    let attr = unsafe { attr.as_ref() }.filter(|attr| attr.comp_mask == BOTH).ok_or(EINVAL);
    errno::minus(attr.and_then(|attr| {
        let receives = match attr.join_flags {
            RDMA_MC_JOIN_FLAG_FULLMEMBER => true,
            RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => false,
            _ => return Err(EINVAL),
        };
        // SAFETY: the caller's identifier and address.
        unsafe { join(id, attr.addr, receives, context) }
    }))
}

unsafe fn join(
    id: *mut rdma_cm_id,
    group: *const libc::sockaddr,
    receives: bool,
    context: *mut c_void,
) -> Result<(), Errno> {
    if !device::have_datagrams()? {
        return Err(EOPNOTSUPP);
    }
    // SAFETY: the caller's identifier.
    let private = unsafe { id_of(id) }?;
    // SAFETY: the caller's address.
    let group = unsafe { read(group) }?.ok_or(EINVAL)?;
    // SAFETY: as above.
    let own = unsafe { (*id).qp };
    // SAFETY: the identifier's queue pair, which lives as long as it is there.
    let qp = (receives && !own.is_null()).then(|| unsafe { Qp::of(own) }).transpose()?;
    private.join(group, qp.as_ref(), context.expose_provenance())?;
    // SAFETY: as above.
    unsafe { complete(id) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_leave_multicast(
    id: *mut rdma_cm_id,
    group: *mut libc::sockaddr,
) -> c_int {
    // SAFETY: the caller's identifier.
    errno::minus(unsafe { id_of(id) }.and_then(|private| {
        if !device::have_datagrams()? {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: the caller's address.
        private.leave(unsafe { read(group) }?.ok_or(EINVAL)?)
    }))
}
