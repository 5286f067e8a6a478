//! A shared receive queue with a fault. Any thread.

use std::sync::Arc;

use vp_api::*;

use crate::faults::Fault;
use crate::seed::Seed;

pub(crate) struct Srq {
    pub(crate) inner: Arc<dyn vp_api::Srq>,
    pub(crate) seed: Arc<Seed>,
    pub(crate) wanted: SrqInit,
}

impl Srq {
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
        let post = || self.inner.post_recv(wrs);
        let result = match self.seed.has(Fault::SrqSlotFreeTooSoon) {
            true => self.seed.post_again(self.seed.cq_ids().into_iter(), post),
            false => post(),
        };
        result.map_err(|why| match self.seed.has(Fault::SrqPostedLost) {
            true => PostFailure { posted: 0, ..why },
            false => why,
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
