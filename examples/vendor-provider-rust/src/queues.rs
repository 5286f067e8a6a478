//! Completion queues.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use vp_api::*;

use crate::state::{Shared, no};

pub(crate) struct CqHandle {
    pub(crate) id: CqId,
    pub(crate) shared: Arc<Shared>,
}

impl Cq for CqHandle {
    fn id(&self) -> CqId {
        self.id
    }

    fn depth(&self) -> u32 {
        self.shared.lock().cqs.get(&self.id.0).map_or(0, |cq| cq.depth)
    }

    fn queued(&self) -> usize {
        self.shared.lock().cqs.get(&self.id.0).map_or(0, |cq| cq.ring.len())
    }

    fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus> {
        let mut state = self.shared.lock();
        let cq = state.cqs.get_mut(&self.id.0).ok_or(VpStatus::InvalidHandle)?;
        if cq.ring.is_empty() && cq.overrun {
            return Err(VpStatus::CqOverrun);
        }
        let n = out.len().min(cq.ring.len());
        let taken: Vec<_> = cq.ring.drain(..n).collect();
        for (to, (wc, slots)) in out.iter_mut().zip(taken) {
            *to = wc;
            state.qps.entry(wc.qp.0).and_modify(|qp| qp.taken(&wc, slots));
        }
        Ok(n)
    }

    fn arm(&self, solicited_only: bool) -> Result<(), VpStatus> {
        let mut state = self.shared.lock();
        let cq = state.cqs.get_mut(&self.id.0).ok_or(VpStatus::InvalidHandle)?;
        cq.armed = Some(solicited_only);
        Ok(())
    }

    fn wait(&self, _spin: Duration, timeout: Option<Duration>) -> Result<bool, VpStatus> {
        let begin = Instant::now();
        let mut state = self.shared.lock();
        let before = state.cqs.get(&self.id.0).map(|cq| cq.interrupts);
        loop {
            let cq = state.cqs.get(&self.id.0).ok_or(VpStatus::InvalidHandle)?;
            if !cq.ring.is_empty() || cq.overrun {
                return Ok(true);
            }
            let left = timeout.map(|t| t.saturating_sub(begin.elapsed()));
            if Some(cq.interrupts) != before || left == Some(Duration::ZERO) {
                return Ok(false);
            }
            // Too long for a deadline: no time-out.
            let left = left.unwrap_or(Duration::from_secs(3600));
            let waited = self.shared.bell.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn interrupt(&self) {
        self.shared.lock().cqs.entry(self.id.0).and_modify(|cq| cq.interrupts += 1);
        self.shared.ring();
    }

    fn resize(&self, _: u32) -> VpResult<u32> {
        Err(no(VpStatus::Unsupported, "a CQ cannot be resized"))
    }
}
