//! Unreliable datagrams: no transport here has them. Handles are checked, then the calls say so.
//! No state.

use std::ffi::c_void;

use super::boundary;
use super::evd::EvdObject;
use super::failure::{Failure, Outcome};
use super::object::{find, find_or, refuse_kind};
use super::ptr::Out;
use super::pz::PzObject;
use super::status::{self, Status};
use super::types::*;

fn unsupported() -> Outcome {
    let text = "this transport has no unreliable datagrams; supported_service_types of it_ia_query \
                says which services there are";
    Err(Failure::new(status::IT_ERR_OP_NOT_SUPPORTED, text))
}

/// No address handle was ever given out, so each is wrong.
fn no_address(handle: it_addr_handle_t) -> Status {
    boundary::call(|| Err(refuse_kind(handle.cast(), "address handle", status::IT_ERR_INVALID_AH)))
}

/// No service request was ever given out, so each is wrong.
fn no_request(handle: it_ud_svc_req_handle_t) -> Status {
    boundary::call(|| {
        Err(refuse_kind(handle.cast(), "UD service request", status::IT_ERR_INVALID_UD_SVC))
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ep_ud_create(
    pz_handle: it_pz_handle_t,
    request_sevd_handle: it_evd_handle_t,
    recv_sevd_handle: it_evd_handle_t,
    ep_attr: *const it_ep_attributes_t,
    _spigot_id: usize,
    ep_handle: *mut it_ep_handle_t,
) -> Status {
    boundary::call(|| {
        find::<PzObject>(pz_handle.cast())?;
        find_or::<EvdObject>(request_sevd_handle.cast(), status::IT_ERR_INVALID_REQ_EVD)?;
        find_or::<EvdObject>(recv_sevd_handle.cast(), status::IT_ERR_INVALID_RECV_EVD)?;
        not_null(ep_attr, "ep_attr")?;
        not_null(ep_handle, "ep_handle")?;
        unsupported()
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_address_handle_create(
    pz_handle: it_pz_handle_t,
    destination_path: *const it_path_t,
    ah_flags: it_ah_flags_t,
    addr_handle: *mut it_addr_handle_t,
) -> Status {
    boundary::call(|| {
        find::<PzObject>(pz_handle.cast())?;
        not_null(destination_path, "destination_path")?;
        let wrong = status::IT_ERR_INVALID_FLAGS;
        super::check_bits(ah_flags, IT_AH_PATH_COMPLETE, wrong, "ah_flags")?;
        // SAFETY: contract of a C caller.
        unsafe { Out::new(addr_handle, "addr_handle") }?;
        unsupported()
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_address_handle_free(addr_handle: it_addr_handle_t) -> Status {
    no_address(addr_handle)
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_address_handle_modify(
    addr_handle: it_addr_handle_t,
    _mask: it_addr_param_mask_t,
    _params: *const it_addr_param_t,
) -> Status {
    no_address(addr_handle)
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_address_handle_query(
    addr_handle: it_addr_handle_t,
    _mask: it_addr_param_mask_t,
    _params: *mut it_addr_param_t,
) -> Status {
    no_address(addr_handle)
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ud_service_reply(
    _ud_svc_req_id: it_ud_svc_req_identifier_t,
    _status: it_ud_svc_req_status_t,
    _ep_info: it_remote_ep_info_t,
    _private_data: *const u8,
    _private_data_length: usize,
) -> Status {
    boundary::call(unsupported)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_ud_service_request(ud_svc_handle: it_ud_svc_req_handle_t) -> Status {
    no_request(ud_svc_handle)
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ud_service_request_handle_create(
    conn_qual: *const it_conn_qual_t,
    reply_evd: it_evd_handle_t,
    destination_path: *const it_path_t,
    _private_data: *const u8,
    _private_data_length: usize,
    ud_svc_handle: *mut it_ud_svc_req_handle_t,
) -> Status {
    boundary::call(|| {
        not_null(conn_qual, "conn_qual")?;
        find::<EvdObject>(reply_evd.cast())?;
        not_null(destination_path, "destination_path")?;
        not_null(ud_svc_handle, "ud_svc_handle")?;
        unsupported()
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_ud_service_request_handle_free(
    ud_svc_handle: it_ud_svc_req_handle_t,
) -> Status {
    no_request(ud_svc_handle)
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ud_service_request_handle_query(
    ud_svc_handle: it_ud_svc_req_handle_t,
    _mask: it_ud_svc_req_param_mask_t,
    _ud_svc_handle_info: *mut std_abi::it_ud_svc_req_param_t,
) -> Status {
    no_request(ud_svc_handle)
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ud_service_request_handle_query_zrl(
    ud_svc_handle: it_ud_svc_req_handle_t,
    _mask: it_ud_svc_req_param_mask_t,
    _ud_svc_handle_info: *mut zrl::it_ud_svc_req_param_t,
) -> Status {
    no_request(ud_svc_handle)
}

fn not_null<T>(pointer: *const T, name: &str) -> Outcome {
    if pointer.cast::<c_void>().is_null() { Err(super::ptr::null(name)) } else { Ok(()) }
}
