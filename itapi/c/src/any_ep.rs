//! The calls for endpoints of both types, for connections and for datagrams: free, reset, modify, query. No
//! state; the caller's thread.

use super::ep::{self, EpObject};
use super::ptr::{self, Out};
use super::status::Status;
use super::types::*;
use super::ud::endpoint::{self, UdEpObject};
use super::{boundary, check_mask, object};

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_ep_free(ep_handle: it_ep_handle_t) -> Status {
    boundary::call(|| {
        if let Some(ep) = object::try_find::<UdEpObject>(ep_handle.cast()) {
            return endpoint::free(&ep);
        }
        ep::free(&*object::find::<EpObject>(ep_handle.cast())?)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_ep_reset(ep_handle: it_ep_handle_t) -> Status {
    boundary::call(|| {
        if let Some(ep) = object::try_find::<UdEpObject>(ep_handle.cast()) {
            return endpoint::reset(&ep);
        }
        ep::reset(&*object::find::<EpObject>(ep_handle.cast())?)
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ep_modify(
    ep_handle: it_ep_handle_t,
    mask: it_ep_param_mask_t,
    ep_attr: *const it_ep_attributes_t,
) -> Status {
    boundary::call(|| {
        if let Some(ep) = object::try_find::<UdEpObject>(ep_handle.cast()) {
            // SAFETY: contract of a C caller.
            let asked = unsafe { ptr::read(ep_attr, "ep_attr") }?;
            return endpoint::modify(&ep, mask, &asked);
        }
        let ep = object::find::<EpObject>(ep_handle.cast())?;
        check_mask(mask, ep::MODIFIABLE)?;
        // SAFETY: contract of a C caller.
        let asked = unsafe { ptr::read(ep_attr, "ep_attr") }?;
        ep::modify(&ep, mask, &asked)
    })
}

/// Connected endpoints have the same states in both layouts; for those for datagrams `ud` has the values
/// for operational and nonoperational.
///
/// # Safety
/// `params` obeys the contract of a C caller (see `ptr`).
unsafe fn query(
    ep_handle: it_ep_handle_t,
    mask: it_ep_param_mask_t,
    params: *mut it_ep_param_t,
    ud: [it_ep_state_ud_t; 2],
) -> Status {
    boundary::call(|| {
        let datagrams = object::try_find::<UdEpObject>(ep_handle.cast());
        let described = match &datagrams {
            Some(ep) => endpoint::describe(ep, ud),
            None => ep::describe(&*object::find::<EpObject>(ep_handle.cast())?),
        };
        // All 28 bits are members; those of the other type of endpoint are ignored.
        check_mask(mask, (IT_EP_PARAM_PRIV_OPS_ENABLE << 1) - 1)?;
        // SAFETY: contract of a C caller.
        unsafe { Out::new(params, "params") }?.write(described);
        Ok(())
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ep_query(
    ep_handle: it_ep_handle_t,
    mask: it_ep_param_mask_t,
    params: *mut it_ep_param_t,
) -> Status {
    let ud = [IT_EP_STATE_UD_OPERATIONAL, IT_EP_STATE_UD_NONOPERATIONAL];
    // SAFETY: same contract.
    unsafe { query(ep_handle, mask, params, ud) }
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ep_query_zrl(
    ep_handle: it_ep_handle_t,
    mask: it_ep_param_mask_t,
    params: *mut it_ep_param_t,
) -> Status {
    use zrl::{IT_EP_STATE_UD_NONOPERATIONAL, IT_EP_STATE_UD_OPERATIONAL};
    let ud = [IT_EP_STATE_UD_OPERATIONAL, IT_EP_STATE_UD_NONOPERATIONAL];
    // SAFETY: same contract.
    unsafe { query(ep_handle, mask, params, ud) }
}
