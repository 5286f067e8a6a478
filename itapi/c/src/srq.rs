//! Shared receive queues. The object owns the access layer's queue and what C posted to it, under one lock
//! for all endpoints that share it. Any thread.

use std::sync::{Arc, Mutex};

use kal_os::lock;
use ual::vp_api::{Capabilities, QpId, VpStatus};
use ual::{Ia, SharedPosted, SrqParams};

use super::attr::MAX_SEGMENTS;
use super::boundary;
use super::check_mask;
use super::failure::{Failure, Outcome};
use super::object::{self, CloseOrder, Kind, Object};
use super::ptr::{self, Out};
use super::pz::PzObject;
use super::ring::Request;
use super::status::{self, Status};
use super::types::*;

/// The object behind the handle of a shared receive queue.
pub(crate) struct SrqObject {
    pub(crate) inner: Arc<ual::Srq>,
    /// Its slot in the table of handles: part of the ids of its receives.
    pub(crate) slot: u32,
    /// Held while one is posted: their order counts. It grows beyond the queue's depth only by receives
    /// that endpoints had taken when they were freed, and that others might have.
    pub(crate) receives: Mutex<SharedPosted<Request>>,
    /// Segments that a receive may have.
    pub(crate) max_segments: u32,
    /// The handle of its adapter.
    pub(crate) ia: u64,
}

impl Object for SrqObject {
    fn kind() -> &'static Kind {
        &Kind {
            number: IT_HANDLE_TYPE_SRQ,
            name: "shared receive queue",
            wrong: status::IT_ERR_INVALID_SRQ,
        }
    }

    fn ia(&self) -> Arc<Ia> {
        self.inner.pz().ia().clone()
    }

    fn close_order(&self) -> CloseOrder {
        CloseOrder::SharedQueues
    }

    fn close(&self) -> ual::Result<()> {
        self.inner.close()
    }
}

impl SrqObject {
    /// An endpoint was made that takes receives from here.
    pub(crate) fn joined(&self, qp: QpId) {
        lock(&self.receives).joined(qp, self.waiting());
    }

    /// An endpoint is gone, and with it the receives that it and earlier endpoints had taken.
    pub(crate) fn left(&self, qp: QpId) {
        lock(&self.receives).left(qp, self.waiting(), drop);
    }

    /// Receives that no endpoint has taken. Under the lock: none is posted meanwhile.
    fn waiting(&self) -> u32 {
        // Not known: treated as if none had been taken.
        self.inner.query().map_or(u32::MAX, |info| info.posted)
    }
}

fn size(what: &str, asked: usize, most: u32, above: Status) -> Outcome<u32> {
    match u32::try_from(asked) {
        Ok(0) => Err(Failure::new(status::IT_ERR_INVALID_SRQ_SIZE, format!("{what} is 0"))),
        Ok(fits) if fits <= most => Ok(fits),
        _ => Err(Failure::new(above, format!("{what} is {asked}; at most {most} are possible"))),
    }
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_srq_create(
    pz_handle: it_pz_handle_t,
    max_recv_segments: usize,
    max_recv_dtos: usize,
    srq_handle: *mut it_srq_handle_t,
) -> Status {
    boundary::create(|| {
        let pz = object::find::<PzObject>(pz_handle.cast())?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(srq_handle, "srq_handle") }?;
        let most = pz.inner.ia().attrs();
        if !most.capabilities.contains(Capabilities::SRQ) {
            let text = format!("{} has no shared receive queues", pz.inner.ia().device());
            return Err(Failure::new(status::IT_ERR_SRQ_NOT_SUPPORTED, text));
        }
        let segments =
            ("max_recv_segments", max_recv_segments, most.max_sge_recv.min(MAX_SEGMENTS));
        let max_sge = size(segments.0, segments.1, segments.2, status::IT_ERR_RESOURCE_RSEG)?;
        let receives = ("max_recv_dtos", max_recv_dtos, most.max_wr_per_srq);
        let depth = size(receives.0, receives.1, receives.2, status::IT_ERR_RESOURCE_RECV_DTO)?;
        let srq = pz.inner.create_srq(SrqParams { depth, max_sge, low_watermark: 0 });
        let inner = srq.map_err(Failure::by(status::IT_ERR_INVALID_SRQ_SIZE))?;
        let receives = SharedPosted::new(depth);
        let receives = receives.map_err(Failure::of_verb(status::IT_ERR_INVALID_SRQ_SIZE))?;
        let raw = object::insert(|raw| {
            inner.tag().set(raw.number());
            SrqObject {
                inner,
                slot: raw.slot().unwrap_or(0),
                receives: Mutex::new(receives),
                max_segments: max_sge,
                ia: pz.inner.ia().tag().get(),
            }
        })?;
        out.write(object::handle(raw.number()));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_srq_free(srq_handle: it_srq_handle_t) -> Status {
    boundary::call(|| {
        let srq = object::find::<SrqObject>(srq_handle.cast())?;
        srq.inner.close().map_err(Failure::by(status::IT_ERR_SRQ_BUSY))?;
        object::forget(srq_handle.cast());
        Ok(())
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_srq_modify(
    srq_handle: it_srq_handle_t,
    mask: it_srq_param_mask_t,
    params: *const it_srq_param_t,
) -> Status {
    boundary::call(|| {
        let srq = object::find::<SrqObject>(srq_handle.cast())?;
        check_mask(mask, IT_SRQ_PARAM_MAX_RECV_DTO | IT_SRQ_PARAM_LOW_WATERMARK)?;
        // SAFETY: contract of a C caller.
        let asked = unsafe { ptr::read(params, "params") }?;
        let most = srq.inner.pz().ia().attrs();
        let depth = match mask & IT_SRQ_PARAM_MAX_RECV_DTO {
            0 => None,
            _ if !most.capabilities.contains(Capabilities::SRQ_RESIZE) => {
                let text = "the size of shared receive queues is fixed on this adapter";
                return Err(Failure::new(status::IT_ERR_OP_NOT_SUPPORTED, text));
            }
            _ => Some(size(
                "max_recv_dtos",
                asked.max_recv_dtos,
                most.max_wr_per_srq,
                status::IT_ERR_RESOURCE_RECV_DTO,
            )?),
        };
        let low = (mask & IT_SRQ_PARAM_LOW_WATERMARK != 0).then_some(asked.low_watermark);
        let low = low.map(|low| watermark(low, depth, &srq)).transpose()?;
        let changed = srq.inner.modify(depth, low).map(drop);
        changed.map_err(|error| match error.verb_status() {
            // More receives are posted than the new depth.
            Some(VpStatus::CannotChange) => {
                Failure::new(status::IT_ERR_INVALID_SRQ_SIZE, error.to_string())
            }
            _ => Failure::of(error, status::IT_ERR_INVALID_SRQ_SIZE),
        })
    })
}

/// Checks a low watermark against the depth that the queue has or is to get.
fn watermark(asked: usize, depth: Option<u32>, srq: &SrqObject) -> Outcome<u32> {
    let depth = match depth {
        Some(depth) => depth,
        None => srq.inner.query().map_err(Failure::by(status::IT_ERR_INVALID_SRQ))?.depth,
    };
    u32::try_from(asked).ok().filter(|low| *low <= depth).ok_or_else(|| {
        let text = format!("low_watermark is {asked}; the queue holds {depth} receives");
        Failure::new(status::IT_ERR_SRQ_LOW_WATERMARK, text)
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_srq_query(
    srq_handle: it_srq_handle_t,
    mask: it_srq_param_mask_t,
    params: *mut it_srq_param_t,
) -> Status {
    boundary::call(|| {
        let srq = object::find::<SrqObject>(srq_handle.cast())?;
        check_mask(mask, (IT_SRQ_PARAM_LOW_WATERMARK << 1) - 1)?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(params, "params") }?;
        let info = srq.inner.query().map_err(Failure::by(status::IT_ERR_INVALID_SRQ))?;
        let pz = srq.inner.pz();
        out.write(it_srq_param_t {
            ia: object::handle(pz.ia().tag().get()),
            pz: object::handle(pz.tag().get()),
            max_recv_dtos: info.depth as usize,
            max_recv_segs: info.max_sge as usize,
            low_watermark: info.limit as usize,
        });
        Ok(())
    })
}
