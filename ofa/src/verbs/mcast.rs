//! Multicast groups (ibv_attach_mcast(3), ibv_detach_mcast(3)), on devices that have them. RoCE has no LIDs: they do
//! not count.

use std::ffi::c_int;
use std::net::IpAddr;
use std::sync::Arc;

use ibv_sys::*;
use ual::gid;
use vp_api::{UdQp, VpResult};

use crate::errno::{self, EINVAL, EOPNOTSUPP, Errno};
use crate::object;
use crate::qp::Qp;

/// A call on a group. EOPNOTSUPP: the device has none. EINVAL: another type of queue pair, or no group.
unsafe fn call(
    qp: *mut ibv_qp,
    group: *const ibv_gid,
    act: impl FnOnce(&Arc<dyn UdQp>, [u8; 16]) -> VpResult<()>,
) -> c_int {
    // SAFETY: the caller's queue pair.
    let private = unsafe { object::with(qp) };
    errno::code(private.and_then(|private| {
        let service = private.adapter()?.rnic().datagrams();
        if service.is_none_or(|service| service.attrs().max_groups == 0) {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: NULL, or the caller's GID.
        let group = unsafe { group.as_ref() }.ok_or(EINVAL)?.raw;
        Ok(act(private.datagrams().ok_or(EINVAL)?, group)?)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_attach_mcast(
    qp: *mut ibv_qp,
    group: *const ibv_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: the caller's queue pair and GID.
    unsafe { call(qp, group, |own, group| own.attach(group)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_detach_mcast(
    qp: *mut ibv_qp,
    group: *const ibv_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: the caller's queue pair and GID.
    unsafe { call(qp, group, |own, group| own.detach(group)) }
}

impl Qp {
    /// Attaches it to the group with this address, which an identifier joins.
    pub(crate) fn join_group(&self, group: IpAddr) -> Result<(), Errno> {
        Ok(self.datagrams().ok_or(EINVAL)?.attach(gid::gid(group))?)
    }

    /// The inverse. It may have been destroyed, or detached by its application.
    pub(crate) fn leave_group(&self, group: IpAddr) {
        if let Some(own) = self.datagrams() {
            let _ = own.detach(gid::gid(group));
        }
    }
}
