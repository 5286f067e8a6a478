//! Scatter/gather lists: triplets of C, each checked against its region, on the stack. No state.

use ual::vp_api::{RnicAttrs, Sge, Stag};

use super::attr::MAX_SEGMENTS;
use super::failure::{Failure, Outcome};
use super::ia::IaObject;
use super::lmr::{LmrObject, too_long};
use super::object;
use super::ptr::List;
use super::rmr::RmrObject;
use super::status;
use super::types::*;

/// The object that has a limit, the attribute that set it, and what an adapter allows there.
type Origin = (&'static str, &'static str, fn(&RnicAttrs) -> u32);

/// How many segments a work request may have, and what sets this limit.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    most: u32,
    /// `None`: every RDMA Read has it.
    of: Option<Origin>,
}

impl Limit {
    /// Of an endpoint's sends.
    pub(crate) fn send(most: u32) -> Self {
        Self { most, of: Some(("endpoint", "max_send_segments", |ia| ia.max_sge_send)) }
    }

    /// Of an endpoint's receives.
    pub(crate) fn receive(most: u32) -> Self {
        Self { most, of: Some(("endpoint", "max_recv_segments", |ia| ia.max_sge_recv)) }
    }

    /// Of an endpoint's RDMA Writes.
    pub(crate) fn write(most: u32) -> Self {
        Self { most, of: Some(("endpoint", "max_rdma_write_segments", |ia| ia.max_sge_write)) }
    }

    /// The limit for receives of a shared receive queue.
    pub(crate) fn shared(most: u32) -> Self {
        Self { most, of: Some(("shared receive queue", "max_recv_segments", |ia| ia.max_sge_recv)) }
    }

    /// Of RDMA Reads.
    pub(crate) const READ: Self = Self { most: 1, of: None };

    #[cold]
    fn exceeded(&self, count: usize, ia: u64) -> Failure {
        let status = status::IT_ERR_INVALID_NUM_SEGMENTS;
        let Some((whose, attribute, of)) = self.of else {
            let text = format!("{count} segments; an RDMA Read has exactly one local segment");
            return Failure::new(status, text);
        };
        let mut text = format!(
            "{count} segments; this {whose} takes at most {}, by the {attribute} it was created with",
            self.most
        );
        if let Ok(ia) = object::find::<IaObject>(object::handle(ia)) {
            let (device, most) = (ia.inner.device(), of(ia.inner.attrs()).min(MAX_SEGMENTS));
            text += &format!("; the adapter {device} allows {most}");
        }
        Failure::new(status, text)
    }
}

/// A list of a work request.
pub(crate) struct Sgl {
    elements: [Sge; MAX_SEGMENTS as usize],
    len: usize,
    /// The handle of the first segment's memory; 0: there is none.
    pub(crate) first: u64,
}

impl Sgl {
    /// Of regions. `ia`: the handle of the adapter that they must be of.
    ///
    /// # Safety
    /// `segments` obeys the contract of a C caller for `count` elements (see `ptr`).
    #[inline]
    pub(crate) unsafe fn read(
        segments: *const it_lmr_triplet_t,
        count: usize,
        limit: Limit,
        ia: u64,
    ) -> Outcome<Self> {
        let mut sgl = Self::with_room(count, limit, ia)?;
        // SAFETY: same contract.
        let segments = unsafe { List::new(segments, count, "local_segments") }?;
        for (n, segment) in segments.iter().enumerate() {
            if n == 0 {
                sgl.first = segment.lmr.addr() as u64;
            }
            // SAFETY: plain data: an address is a number, too.
            let to = unsafe { segment.addr.rel };
            sgl.elements[n] = of_region(segment.lmr, ia, to, segment.length)?;
        }
        sgl.checked()
    }

    /// Of windows, as [`Sgl::read`].
    ///
    /// # Safety
    /// As [`Sgl::read`].
    pub(crate) unsafe fn read_windows(
        segments: *const it_rmr_triplet_t,
        count: usize,
        limit: Limit,
        ia: u64,
    ) -> Outcome<Self> {
        let mut sgl = Self::with_room(count, limit, ia)?;
        // SAFETY: same contract.
        let segments = unsafe { List::new(segments, count, "local_segments") }?;
        for (n, segment) in segments.iter().enumerate() {
            let rmr = object::find::<RmrObject>(segment.rmr.cast())?;
            if rmr.ia != ia {
                return Err(elsewhere(status::IT_ERR_INVALID_RMR, "window"));
            }
            if n == 0 {
                sgl.first = rmr.handle;
            }
            // SAFETY: plain data: an address is a number, too.
            let to = unsafe { segment.addr.rel };
            sgl.elements[n] = rmr.sge(to, segment.length)?;
        }
        sgl.checked()
    }

    #[inline]
    fn with_room(count: usize, limit: Limit, ia: u64) -> Outcome<Self> {
        if count > limit.most.min(MAX_SEGMENTS) as usize {
            return Err(limit.exceeded(count, ia));
        }
        Ok(Self { elements: [Sge::default(); MAX_SEGMENTS as usize], len: count, first: 0 })
    }

    fn checked(self) -> Outcome<Self> {
        let total: u64 = self.elements().iter().map(|sge| u64::from(sge.len)).sum();
        if u32::try_from(total).is_err() { Err(too_long(total)) } else { Ok(self) }
    }

    #[inline]
    pub(crate) fn elements(&self) -> &[Sge] {
        &self.elements[..self.len]
    }
}

/// One segment of a region.
#[inline]
pub(crate) fn of_region(lmr: it_lmr_handle_t, ia: u64, to: u64, length: u64) -> Outcome<Sge> {
    let lmr = object::find::<LmrObject>(lmr.cast())?;
    if lmr.ia != ia {
        return Err(elsewhere(status::IT_ERR_INVALID_LMR, "region"));
    }
    lmr.sge(to, length)
}

/// The refusal of another adapter's memory.
#[cold]
pub(crate) fn elsewhere(status: status::Status, what: &str) -> Failure {
    Failure::new(status, format!("the memory {what} is of another interface adapter"))
}

/// The STag that a peer gave us.
pub(crate) fn stag_of(rmr_context: it_rmr_context_t) -> Outcome<Stag> {
    u32::try_from(rmr_context).map(Stag).map_err(|_| {
        let text = format!(
            "rmr_context {rmr_context:#x} has more than 32 bits: was it converted to another octet \
             order once too often?"
        );
        Failure::new(status::IT_ERR_INVALID_RMR, text)
    })
}
