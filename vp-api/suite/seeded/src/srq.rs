//! A shared receive queue with a fault. Any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vp_api::*;

use crate::faults::Fault;
use crate::seed::Seed;

/// Finds out whether a queue is full.
pub(crate) const NOTHING: RecvWr<'_> = RecvWr { wr_id: 0, sgl: &[] };

pub(crate) struct Srq {
    pub(crate) inner: Arc<dyn vp_api::Srq>,
    pub(crate) seed: Arc<Seed>,
    pub(crate) wanted: SrqInit,
    /// Slots that a fault never frees.
    pub(crate) stuck: AtomicU32,
}

impl Srq {
    fn is_stuck(&self) -> bool {
        let stuck = self.stuck.load(Ordering::Acquire);
        stuck != 0 && self.inner.query().is_ok_and(|info| info.posted + stuck >= info.depth)
    }

    fn says(&self, info: VpResult<SrqInfo>) -> VpResult<SrqInfo> {
        let mut info = info?;
        match () {
            () if self.seed.has(Fault::SrqDepthUnbounded) => info.depth = self.wanted.depth,
            () if self.seed.has(Fault::SrqSgesUnbounded) => info.max_sge = self.wanted.max_sge,
            () if self.seed.has(Fault::SrqPostedUnsaid) => info.posted = 0,
            () => {}
        }
        Ok(info)
    }
}

impl vp_api::Srq for Srq {
    fn id(&self) -> SrqId {
        self.inner.id()
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        if self.is_stuck() {
            return Err(PostFailure { posted: 0, status: VpStatus::TooManyWrs });
        }
        let post = || self.inner.post_recv(wrs);
        let result = match self.seed.has(Fault::SrqSlotFreeTooSoon) {
            true => self.seed.post_again(self.seed.cq_ids().into_iter(), post),
            false => post(),
        };
        result.map_err(|why| match why.status {
            _ if self.seed.has(Fault::SrqPostedLost) => PostFailure { posted: 0, ..why },
            VpStatus::InvalidSgl if self.seed.has(Fault::SrqFullBeforeWrong) => {
                self.inner.post_recv(&[NOTHING]).err().unwrap_or(why)
            }
            _ => why,
        })
    }

    fn modify(&self, depth: Option<u32>, limit: Option<u32>) -> VpResult<SrqInfo> {
        let limit = match limit {
            Some(0) if self.seed.has(Fault::SrqLimitStays) => {
                let mut info = self.inner.query()?;
                info.limit = 0;
                return self.says(Ok(info));
            }
            None if self.seed.has(Fault::SrqWhichIgnored) => Some(0),
            limit => limit,
        };
        self.says(self.inner.modify(depth, limit))
    }

    fn query(&self) -> VpResult<SrqInfo> {
        self.says(self.inner.query())
    }
}
