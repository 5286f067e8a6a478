//! The Zurich stack's extensions of IT-API (`itx_*`): regions described in private data, waits that take many
//! events; and its own limit of private data. No state; the caller's thread.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use ual::Stream;

use super::boundary;
use super::connect::{self, accept, connect, connect_params};
use super::dequeue::{next, wait_for};
use super::ep::EpObject;
use super::evd::EvdObject;
use super::event::write::Zurich;
use super::failure::{Failure, Outcome};
use super::lmr::LmrObject;
use super::object;
use super::ptr::{self, Out, OutList};
use super::sgl::{elsewhere, of_region};
use super::status::{self, Status};
use super::types::*;

/// Private data of the caller.
///
/// # Safety
/// The pointer obeys the contract of a C caller (see `ptr`).
unsafe fn private_data(data: *const u8, len: usize) -> Outcome<Vec<u8>> {
    // SAFETY: same contract.
    unsafe { connect::private_data(data, len, zrl::IT_MAX_PRIV_DATA) }
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ep_connect_zrl(
    ep_handle: it_ep_handle_t,
    path: *const it_path_t,
    conn_attr: *const it_conn_attributes_t,
    connect_qual: *const it_conn_qual_t,
    cn_est_flags: it_cn_est_flags_t,
    private: *const u8,
    private_data_length: usize,
) -> Status {
    // There is no region to describe.
    let (lmr, rmr_context) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: same contract.
    unsafe {
        itx_ep_connect_with_rmr(
            ep_handle,
            path,
            conn_attr,
            connect_qual,
            cn_est_flags,
            private,
            private_data_length,
            lmr,
            rmr_context,
        )
    }
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ep_accept_zrl(
    ep_handle: it_ep_handle_t,
    cn_est_id: it_cn_est_identifier_t,
    private: *const u8,
    private_data_length: usize,
) -> Status {
    boundary::create(|| {
        let ep = object::find::<EpObject>(ep_handle.cast())?;
        // SAFETY: contract of a C caller.
        let private_data = unsafe { private_data(private, private_data_length) }?;
        accept(&ep, cn_est_id, private_data)
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_reject_zrl(
    cn_est_id: it_cn_est_identifier_t,
    private: *const u8,
    private_data_length: usize,
) -> Status {
    boundary::call(|| {
        // SAFETY: contract of a C caller.
        let private_data = unsafe { private_data(private, private_data_length) }?;
        connect::reject(cn_est_id, &private_data)
    })
}

/// Applications of that stack disconnect with private data, which its transports do not carry, and take
/// a refusal for a broken library. It is dropped.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_ep_disconnect_zrl(
    ep_handle: it_ep_handle_t,
    _private_data: *const u8,
    _private_data_length: usize,
) -> Status {
    boundary::call(|| connect::disconnect(&*object::find::<EpObject>(ep_handle.cast())?))
}

/// A region as private data describes it to a peer.
struct Advertised {
    context: u64,
    addr: u64,
    length: u64,
}

impl Advertised {
    /// Of `lmr`. `None`: the caller has none to describe.
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
    boundary::create(|| {
        let ep = object::find::<EpObject>(ep_handle.cast())?;
        // SAFETY: contract of a C caller.
        let context = unsafe { Out::optional(rmr_context) };
        // SAFETY: contract of a C caller.
        let advertised = unsafe { Advertised::read(&ep, lmr, &context) }?;
        let words = advertised
            .iter()
            .flat_map(|advertised| [advertised.context, advertised.addr, advertised.length]);
        accept(&ep, cn_est_id, words.flat_map(u64::to_be_bytes).collect())?;
        if let (Some(context), Some(advertised)) = (context, advertised) {
            context.write(advertised.context);
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
    boundary::create(|| {
        let ep = object::find::<EpObject>(ep_handle.cast())?;
        // SAFETY: contract of a C caller.
        let mut params =
            unsafe { connect_params(ep.inner.ia(), path, connect_qual, cn_est_flags) }?;
        // SAFETY: contract of a C caller.
        params.private_data = unsafe { private_data(private, private_data_length) }?;
        // SAFETY: contract of a C caller.
        let context = unsafe { Out::optional(rmr_context) };
        // SAFETY: contract of a C caller.
        let advertised = unsafe { Advertised::read(&ep, lmr, &context) }?;
        if let Some(advertised) = &advertised {
            // `of_region` has checked that it fits.
            params.private_data.extend((advertised.length as u32).to_be_bytes());
            params.private_data.extend(advertised.context.to_be_bytes());
            params.private_data.extend(advertised.addr.to_be_bytes());
            connect::check_private_data(params.private_data.len(), zrl::IT_MAX_PRIV_DATA)?;
        }
        connect(&ep, params)?;
        if let (Some(context), Some(advertised)) = (context, advertised) {
            context.write(advertised.context);
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

/// Endpoints belong to a device from their creation.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn itx_bind_ep_to_device(
    ep_handle: it_ep_handle_t,
    _cn_id: it_cn_est_identifier_t,
) -> Status {
    boundary::create(|| object::find::<EpObject>(ep_handle.cast()).map(drop))
}

/// Affiliated events first, then those of connections, then completions of sends and of receives.
fn rank(number: it_event_type_t) -> u8 {
    match number & IT_EVENT_STREAM_MASK {
        IT_ASYNC_AFF_EVENT_STREAM | IT_ASYNC_UNAFF_EVENT_STREAM => 0,
        IT_CM_REQ_EVENT_STREAM | IT_CM_MSG_EVENT_STREAM => 1,
        IT_DTO_EVENT_STREAM if number == IT_DTO_RC_RECV_CMPL_EVENT => 3,
        IT_DTO_EVENT_STREAM => 2,
        _ => 4,
    }
}

/// Sorts events by rank, where they are; those of one rank stay in order.
fn sort(events: &OutList<zrl::it_event_t>, count: usize) {
    let rank_at = |n| events.at(n).map_or(0, |event| rank(event.narrow().read()));
    for n in 1..count {
        let mut at = n;
        while at > 0 && rank_at(at - 1) > rank_at(at) {
            if let (Some(before), Some(after)) = (events.at(at - 1), events.at(at)) {
                let first = before.read();
                before.write(after.read());
                after.write(first);
            }
            at -= 1;
        }
    }
}

/// As many events as there are and fit, waiting for the first one.
fn wait_many(
    evd: &EvdObject,
    timeout: Option<Duration>,
    room: &OutList<zrl::it_event_t>,
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
        // Events that were taken must reach the caller; the next call gets the error again.
        match next::<Zurich>(evd, &out) {
            Ok(true) => taken += 1,
            Ok(false) | Err(_) => break,
        }
    }
    sort(room, taken);
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
        if evd.inner.stream() != Stream::Aggregate {
            let text = "the event dispatcher is simple, not aggregate: use it_evd_wait";
            return Err(Failure::new(status::IT_ERR_INVALID_AEVD, text));
        }
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
        tracing::info!(name, trace_rank, "the application's name");
        Ok(())
    })
}
