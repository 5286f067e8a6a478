//! Shared receive queues: receives that several endpoints take from. The queue owns the memory of
//! its receives until one completes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ual::SrqParams;

use crate::error::{PostResult, Result};
use crate::flight::RecvFlight;
use crate::ia::Pz;
use crate::post;
use crate::work::Local;

/// Shared receive queue (IT-API `it_srq_create`). Clones share it.
#[derive(Clone)]
pub struct Srq(Arc<Core>);

struct Core {
    // Before the flight: the provider lets go of the memory first.
    srq: Arc<ual::Srq>,
    flight: Mutex<RecvFlight>,
}

impl Srq {
    pub(crate) fn new(pz: &Pz, params: SrqParams) -> Result<Self> {
        let srq = pz.ual().create_srq(params)?;
        Ok(Self(Arc::new(Core { srq, flight: Mutex::new(RecvFlight::new(params.depth)) })))
    }

    /// Posts a receive; whichever endpoint needs one takes it.
    pub fn post_recv(&self, local: impl Into<Local>) -> PostResult<Local> {
        post::receive(&mut self.flight(), local.into(), |wr| self.0.srq.post_recv(&[wr]))
    }

    /// Raises the event [`crate::AsyncEvent::SrqLimit`] once when fewer receives remain.
    pub fn arm_low_watermark(&self, receives: u32) -> Result<()> {
        self.0.srq.modify(None, Some(receives))?;
        Ok(())
    }

    pub(crate) fn flight(&self) -> MutexGuard<'_, RecvFlight> {
        // Nothing panics while the lock is held.
        self.0.flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ual(&self) -> &Arc<ual::Srq> {
        &self.0.srq
    }
}

impl std::fmt::Debug for Srq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Srq({:?})", self.0.srq.id())
    }
}
