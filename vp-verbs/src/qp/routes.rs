//! Maps the device's queue pair numbers to queue pairs and shared receive queues, to route completions.
//!
//! Owner: the open device; queue pairs and CQs share it. Any thread.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, PoisonError, RwLock};

use super::VerbsQp;
use crate::completed::Completed;
use crate::ring::{Taken, Untaken};
use crate::srq::{SERIAL, SHARED, VerbsSrq};
use crate::ud::VerbsUdQp;
use ibv_sys::*;

/// The queue pair and the shared queue that a completion of the device belongs to.
#[derive(Default)]
pub(crate) struct Routes {
    pub(super) qps: RwLock<BTreeMap<u32, Arc<VerbsQp>>>,
    uds: RwLock<BTreeMap<u32, Arc<VerbsUdQp>>>,
    srqs: RwLock<BTreeMap<u32, Arc<VerbsSrq>>>,
    pub(crate) serials: AtomicU32,
}

impl Routes {
    pub(crate) fn add_srq(&self, id: u32, srq: Arc<VerbsSrq>) {
        self.srqs.write().unwrap_or_else(PoisonError::into_inner).insert(id & SERIAL, srq);
    }

    pub(crate) fn remove_srq(&self, id: u32) {
        self.srqs.write().unwrap_or_else(PoisonError::into_inner).remove(&(id & SERIAL));
    }

    pub(super) fn add(&self, number: u32, qp: Arc<VerbsQp>) {
        self.qps.write().unwrap_or_else(PoisonError::into_inner).insert(number, qp);
    }

    /// Removes a queue pair, unless another one has its number already.
    pub(super) fn remove(&self, number: u32, qp: &VerbsQp) {
        let mut qps = self.qps.write().unwrap_or_else(PoisonError::into_inner);
        if qps.get(&number).is_some_and(|found| std::ptr::eq(&**found, qp)) {
            qps.remove(&number);
        }
    }

    pub(crate) fn add_ud(&self, number: u32, qp: Arc<VerbsUdQp>) {
        self.uds.write().unwrap_or_else(PoisonError::into_inner).insert(number, qp);
    }

    /// As [`Routes::remove`].
    pub(crate) fn remove_ud(&self, number: u32, qp: &VerbsUdQp) {
        let mut uds = self.uds.write().unwrap_or_else(PoisonError::into_inner);
        if uds.get(&number).is_some_and(|found| std::ptr::eq(&**found, qp)) {
            uds.remove(&number);
        }
    }

    /// The shared reference that completions are routed by.
    pub(crate) fn ud(&self, number: u32) -> Option<Arc<VerbsUdQp>> {
        self.uds.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    /// Converts a completion for the consumer, who gets it as `taken` says. `None` if it is unsignalled, or of a
    /// queue pair that no longer exists. Completions that result from it are added to `behind`.
    pub(crate) fn translate(
        &self,
        wc: &ibv_wc,
        taken: Taken,
        behind: &mut VecDeque<Completed>,
    ) -> Option<Completed> {
        let shared = (wc.wr_id & SHARED != 0).then(|| self.shared(wc)).flatten();
        let qps = self.qps.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(qp) = qps.get(&wc.qp_num) {
            return qp.complete(wc, shared, taken, behind);
        }
        drop(qps);
        let uds = self.uds.read().unwrap_or_else(PoisonError::into_inner);
        uds.get(&wc.qp_num)?.complete(wc, taken, behind)
    }

    /// Removes a receive from its shared queue. Its slot is freed when the completion is polled.
    fn shared(&self, wc: &ibv_wc) -> Option<(u64, Untaken)> {
        let srqs = self.srqs.read().unwrap_or_else(PoisonError::into_inner);
        srqs.get(&((wc.wr_id >> 32) as u32 & SERIAL))?.end(wc.wr_id as u32)
    }
}
