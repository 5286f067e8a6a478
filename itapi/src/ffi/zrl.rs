//! What the Zurich stack added to IT-API (`itx_*`): memory told in private data, waits that take many
//! events. No state; the caller's thread.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use super::boundary;
use super::connect::{accept, connect, connect_params, private_data};
use super::dequeue::{next, wait_for};
use super::ep::EpObject;
use super::evd::EvdObject;
use super::event::{Abi, Zurich};
use super::failure::Outcome;
use super::lmr::LmrObject;
use super::object;
use super::ptr::{self, Out, OutList};
use super::sgl::{elsewhere, of_region};
use super::status::{self, Status};
use super::types::*;

/// Memory as a peer is told of it.
struct Told {
    context: u64,
    addr: u64,
    length: u64,
}

impl Told {
    /// What `lmr` names. `None`: the caller wants nothing told.
    ///
    /// # Safety
    /// The pointer obeys the contract of a C caller (see `ptr`).
    unsafe fn read(
        ep: &EpObject,
        lmr: *const it_lmr_triplet_t,
        context: &Option<Out<it_rmr_context_t>>,
    ) -> Outcome<Option<Self>> {
        if lmr.is_null() || context.is_none() {
            return Ok(None);
        }
        // SAFETY: same contract.
        let lmr = unsafe { ptr::read(lmr, "lmr") }?;
        // SAFETY: plain data: an address is a number, too.
        let addr = unsafe { lmr.addr.rel };
        let sge = of_region(lmr.lmr, ep.ia, addr, lmr.length)?;
        Ok(Some(Self { context: sge.stag.0.into(), addr, length: lmr.length }))
    }
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn itx_ep_accept_with_rmr(
    ep_handle: it_ep_handle_t,
    cn_est_id: it_cn_est_identifier_t,
    lmr: *mut it_lmr_triplet_t,
    rmr_context: *mut it_rmr_context_t,
) -> Status {
    boundary::call(|| {
        let ep = object::find::<EpObject>(ep_handle.cast())?;
        // SAFETY: contract of a C caller.
        let context = unsafe { Out::optional(rmr_context) };
        // SAFETY: contract of a C caller.
        let told = unsafe { Told::read(&ep, lmr, &context) }?;
        let words = told.iter().flat_map(|told| [told.context, told.addr, told.length]);
        accept(&ep, cn_est_id, words.flat_map(u64::to_be_bytes).collect())?;
        if let (Some(context), Some(told)) = (context, told) {
            context.write(told.context);
        }
        Ok(())
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn itx_ep_connect_with_rmr(
    ep_handle: it_ep_handle_t,
    path: *const it_path_t,
    _conn_attr: *const it_conn_attributes_t,
    connect_qual: *const it_conn_qual_t,
    cn_est_flags: it_cn_est_flags_t,
    private: *const u8,
    private_data_length: usize,
    lmr: *mut it_lmr_triplet_t,
    rmr_context: *mut it_rmr_context_t,
) -> Status {
    boundary::call(|| {
        let ep = object::find::<EpObject>(ep_handle.cast())?;
        // SAFETY: contract of a C caller.
        let mut params =
            unsafe { connect_params(ep.inner.ia(), path, connect_qual, cn_est_flags) }?;
        // SAFETY: contract of a C caller.
        params.private_data = unsafe { private_data(private, private_data_length) }?;
        // SAFETY: contract of a C caller.
        let context = unsafe { Out::optional(rmr_context) };
        // SAFETY: contract of a C caller.
        let told = unsafe { Told::read(&ep, lmr, &context) }?;
        if let Some(told) = &told {
            // `of_region` has seen that it fits.
            params.private_data.extend((told.length as u32).to_be_bytes());
            params.private_data.extend(told.context.to_be_bytes());
            params.private_data.extend(told.addr.to_be_bytes());
        }
        connect(&ep, params)?;
        if let (Some(context), Some(told)) = (context, told) {
            context.write(told.context);
        }
        Ok(())
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn itx_get_rmr_context_for_ep(
    ep_handle: it_ep_handle_t,
    lmr: it_lmr_handle_t,
    rmr_context: *mut it_rmr_context_t,
) -> Status {
    boundary::call(|| {
        let ep = object::find::<EpObject>(ep_handle.cast())?;
        let lmr = object::find::<LmrObject>(lmr.cast())?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(rmr_context, "rmr_context") }?;
        if lmr.ia != ep.ia {
            return Err(elsewhere(status::IT_ERR_INVALID_LMR, "region"));
        }
        out.write(lmr.view().stag.0.into());
        Ok(())
    })
}

/// Endpoints belong to a device from the beginning.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn itx_bind_ep_to_device(
    ep_handle: it_ep_handle_t,
    _cn_id: it_cn_est_identifier_t,
) -> Status {
    boundary::call(|| object::find::<EpObject>(ep_handle.cast()).map(drop))
}

/// As many events as there are and fit, waiting for the first one.
fn wait_many(
    evd: &EvdObject,
    timeout: Option<Duration>,
    room: &OutList<<Zurich as Abi>::Event>,
) -> Outcome<usize> {
    let Some(first) = room.at(0) else { return Ok(0) };
    let mut taken = match next::<Zurich>(evd, &first)? {
        true => 1,
        false if timeout == Some(Duration::ZERO) => return Ok(0),
        false => match wait_for::<Zurich>(evd, timeout, &first) {
            Ok(_) => 1,
            Err(failure) if failure.status == status::IT_ERR_TIMEOUT_EXPIRED => return Ok(0),
            Err(failure) => return Err(failure),
        },
    };
    while let Some(out) = room.at(taken) {
        // What was taken before must reach the caller; the next call finds the error again.
        match next::<Zurich>(evd, &out) {
            Ok(true) => taken += 1,
            Ok(false) | Err(_) => break,
        }
    }
    Ok(taken)
}

/// The time-out is in milliseconds.
///
/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn itx_aevd_wait(
    evd_handle: it_evd_handle_t,
    timeout: u64,
    max_event_count: usize,
    events: *mut zrl::it_event_t,
    events_count: *mut usize,
) -> Status {
    boundary::call(|| {
        let evd = object::find::<EvdObject>(evd_handle.cast())?;
        // SAFETY: contract of a C caller.
        let count = unsafe { Out::new(events_count, "events_count") }?;
        // SAFETY: contract of a C caller.
        let room = unsafe { OutList::new(events, max_event_count, "events") }?;
        let timeout = (timeout != IT_TIMEOUT_INFINITE).then(|| Duration::from_millis(timeout));
        count.write(wait_many(&evd, timeout, &room)?);
        Ok(())
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn itx_init_tracing(
    context_name: *const c_char,
    trace_rank: c_int,
) -> Status {
    boundary::call(|| {
        // SAFETY: contract of a C caller.
        let name = unsafe { ptr::text(context_name, 128, "aContextName") }?;
        tracing::info!(name, trace_rank, "the application names itself");
        Ok(())
    })
}
