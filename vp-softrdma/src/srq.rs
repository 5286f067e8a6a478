//! Shared receive queue.
//!
//! Owner: the RNIC's table and the QPs on it, through an `Arc`. One small lock: sharing is what an
//! SRQ is for. A QP takes a receive out whole, so nothing here knows when a peer dies; receives
//! that no QP took are never flushed by one (RDMAC 6.3).

use std::sync::Arc;

use vp_api::{
    AsyncEvent, EventSource, PdId, PostFailure, RecvWr, Srq, SrqId, SrqInfo, SrqInit, VpError,
    VpResult, VpStatus,
};

use crate::events::EventSink;
use crate::limits;
use crate::objects::Hold;
use crate::sync::{Mutex, lock};
use crate::wq::{RecvRing, RecvWqe};

/// An SRQ.
pub(crate) struct SoftSrq {
    id: SrqId,
    pd: PdId,
    events: Arc<EventSink>,
    /// `None` once destroyed.
    state: Mutex<Option<State>>,
}

struct State {
    ring: RecvRing,
    /// One-shot: fires when fewer remain; 0 is not armed.
    limit: u32,
    _pd: Hold,
}

impl State {
    /// Takes the limit event if it is due.
    // RFC 5042 6.4.3.1 [SEC-11]; one shot [VERBS-26]
    fn limit_reached(&mut self) -> bool {
        let reached = self.ring.posted() < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }
}

impl SoftSrq {
    /// An empty SRQ; `pd` holds its protection domain. The limit looks at takes, not at the
    /// emptiness that every SRQ begins with.
    pub(crate) fn create(
        id: SrqId,
        init: &SrqInit,
        pd: Hold,
        events: Arc<EventSink>,
    ) -> VpResult<Arc<Self>> {
        limits::check("receives of the SRQ", init.depth, 1, limits::MAX_WR, VpStatus::TooManyWrs)?;
        limits::check("SGEs of the SRQ", init.max_sge, 1, limits::MAX_SGE, VpStatus::InvalidSgl)?;
        limits::check("SRQ limit", init.limit, 0, init.depth, VpStatus::InvalidModifier)?;
        let state =
            State { ring: RecvRing::new(init.depth, init.max_sge), limit: init.limit, _pd: pd };
        let state = Mutex::new(Some(state));
        Ok(Arc::new(Self { id, pd: init.pd, events, state }))
    }

    /// PD that buffers of this queue are checked against.
    pub(crate) fn pd(&self) -> PdId {
        self.pd
    }

    /// SGEs that a receive may have; what a [`RecvWqe`] for [`SoftSrq::take`] needs.
    pub(crate) fn max_sge(&self) -> u32 {
        lock(&self.state).as_ref().map_or(0, |state| state.ring.max_sge())
    }

    /// Moves the oldest receive to `into`, and says whether there was one. The answer's second half
    /// is true if the limit event is due: then call [`SoftSrq::raise_limit`] once no lock is held.
    pub(crate) fn take(&self, into: &mut RecvWqe) -> (bool, bool) {
        let mut state = lock(&self.state);
        let Some(state) = state.as_mut() else { return (false, false) };
        let taken = state.ring.take(into);
        (taken, taken && state.limit_reached())
    }

    /// Raises the limit event.
    pub(crate) fn raise_limit(&self) {
        self.events.emit(EventSource::Srq(self.id), AsyncEvent::SrqLimit);
    }

    /// After this every verb answers `InvalidHandle`; unused receives vanish.
    pub(crate) fn destroy(&self) {
        *lock(&self.state) = None;
    }

    fn gone(&self) -> VpError {
        VpError::new(VpStatus::InvalidHandle, format!("SRQ {} was destroyed", self.id.0))
    }
}

impl Srq for SoftSrq {
    fn id(&self) -> SrqId {
        self.id
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        let mut state = lock(&self.state);
        let Some(state) = state.as_mut() else {
            return Err(PostFailure { posted: 0, status: VpStatus::InvalidHandle });
        };
        for (posted, wr) in wrs.iter().enumerate() {
            state.ring.post(wr).map_err(|status| PostFailure { posted, status })?;
        }
        Ok(())
    }

    fn modify(&self, depth: Option<u32>, limit: Option<u32>) -> VpResult<SrqInfo> {
        let reached = {
            let mut state = lock(&self.state);
            let state = state.as_mut().ok_or_else(|| self.gone())?;
            let new_depth = depth.unwrap_or(state.ring.depth());
            limits::check(
                "receives of the SRQ",
                new_depth,
                1,
                limits::MAX_WR,
                VpStatus::TooManyWrs,
            )?;
            let new_limit = limit.unwrap_or(state.limit);
            limits::check("SRQ limit", new_limit, 0, new_depth, VpStatus::InvalidModifier)?;
            if new_depth != state.ring.depth() {
                resize(&mut state.ring, new_depth)?;
            }
            state.limit = new_limit;
            limit.is_some() && state.limit_reached()
        };
        if reached {
            self.raise_limit();
        }
        self.query()
    }

    fn query(&self) -> VpResult<SrqInfo> {
        let state = lock(&self.state);
        let state = state.as_ref().ok_or_else(|| self.gone())?;
        Ok(SrqInfo {
            pd: self.pd,
            depth: state.ring.depth(),
            max_sge: state.ring.max_sge(),
            limit: state.limit,
            posted: state.ring.posted(),
        })
    }
}

fn resize(ring: &mut RecvRing, depth: u32) -> VpResult<()> {
    let posted = ring.posted();
    ring.resize(depth).map_err(|status| {
        let detail = format!("{posted} receives are posted, more than the new depth of {depth}");
        VpError::new(status, detail)
    })
}

#[cfg(all(test, not(loom)))]
#[path = "srq_tests.rs"]
mod tests;
