//! Memory windows (ibv_alloc_mw(3), ibv_bind_mw(3)).
//!
//! A window of type 1 is bound by ibv_bind_mw, which chooses its key; one of type 2 by a work request
//! that gives the key octet.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use ibv_sys::*;
use vp_api::{Data, MwId, MwKind, SendOp, SendWr, Stag, VpStatus};

use crate::errno::{self, EINVAL, Errno};
use crate::object::{self, Handle};
use crate::qp::takes_sends;
use crate::send;
use crate::verbs::pd::Pd;

/// A memory window.
pub struct Mw {
    pd: Arc<Pd>,
    id: MwId,
    kind: MwKind,
}

impl Handle for ibv_mw {
    type Whole = Self;
    type Private = Mw;
    const NAME: &'static str = "struct ibv_mw";
}

pub(super) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: c_uint) -> *mut ibv_mw {
    // SAFETY: the caller's protection domain.
    let private = unsafe { object::with(pd) };
    errno::pointer(private.and_then(|private| {
        let own = match kind {
            IBV_MW_TYPE_1 => MwKind::Wide,
            IBV_MW_TYPE_2 => MwKind::Narrow,
            _ => return Err(EINVAL),
        };
        let id = private.adapter()?.rnic().alloc_mw(private.id, own)?;
        private.enter();
        let whole = ibv_mw {
            context: private.context.handle(),
            pd,
            rkey: Stag::new(id.0, 0).0,
            handle: id.0,
            type_: kind,
        };
        Ok(object::new(whole, Arc::new(Mw { pd: private.clone(), id, kind: own })))
    }))
}

pub(super) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the caller's window.
    let private = unsafe { object::with(mw) };
    errno::code(private.and_then(|private| {
        private.pd.adapter()?.rnic().dealloc_mw(private.id)?;
        private.pd.remove_user();
        // SAFETY: the caller gives it up.
        unsafe { object::destroy(mw) }.map(drop)
    }))
}

/// The operation of a request that binds a window of type 2.
pub(super) unsafe fn bind_op(bind: wr_bind_mw) -> Result<SendOp, VpStatus> {
    // SAFETY: the caller's window.
    let window = unsafe { object::with(bind.mw) }.map_err(|_| VpStatus::InvalidWr)?;
    if window.kind != MwKind::Narrow {
        return Err(VpStatus::InvalidWr);
    }
    // SAFETY: the caller's region.
    unsafe { operation(window.id, bind.rkey, &bind.bind_info) }
}

unsafe fn operation(window: MwId, rkey: u32, info: &ibv_mw_bind_info) -> Result<SendOp, VpStatus> {
    let region = match info.length {
        0 => Stag(0),
        // SAFETY: the caller's region.
        _ => unsafe { object::with(info.mr) }.map_err(|_| VpStatus::InvalidWr)?.stag(),
    };
    send::bind(window, rkey, region, (info.addr, info.length), info.mw_access_flags)
}

pub(super) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    // SAFETY: the caller's queue pair.
    let qp = unsafe { object::with(qp) };
    // SAFETY: the caller's window.
    let window = unsafe { object::with(mw) };
    // SAFETY: the caller's structure.
    let bind = unsafe { bind.as_ref() }.ok_or(EINVAL);
    errno::code(qp.and_then(|qp| {
        let (window, bind) = (window?, bind?);
        takes_sends(qp.state()).map_err(Errno::from)?;
        if window.kind != MwKind::Wide || !Arc::ptr_eq(&window.pd, &qp.init().pd) {
            return Err(EINVAL);
        }
        // SAFETY: the caller's window.
        let old = unsafe { (*mw).rkey };
        let key = (old as u8).wrapping_add(1);
        let rkey = Stag::new(window.id.0, key).0;
        // SAFETY: the caller's region.
        let op = unsafe { operation(window.id, rkey, &bind.bind_info) }?;
        let flags = send::flags(bind.send_flags, qp.init().signal_all);
        let request = SendWr { wr_id: bind.wr_id, op, data: Data::Sgl(&[]), flags };
        qp.post_send(&[request]).map_err(Errno::from)?;
        // SAFETY: the caller's window; the new key is its own from now on.
        unsafe { (*mw).rkey = rkey };
        Ok(())
    }))
}
