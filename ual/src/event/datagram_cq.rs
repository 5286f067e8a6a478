//! A completion queue of an adapter with datagrams: where a received datagram came from is put aside
//! with its endpoint, [`crate::UdEp::take_source`], before its completion is handed out.
//!
//! Between a dispatcher and the provider's queue; adapters without datagrams have none. Any thread.
//!
//! Where a datagram came from is beside its completion: a wrapper around the provider's queue
//! ([`DatagramCq`]), which only adapters with datagrams have, puts it aside with the endpoint before the
//! completion is handed out, through whatever dispatchers, and the face takes it there. Completions
//! are no larger for it, and connected endpoints pay one branch on such adapters, nothing on
//! others.

use std::sync::Arc;
use std::time::Duration;

use vp_api::{Cq, CqId, DatagramSource, QpId, VpResult, VpStatus, WorkCompletion};

use crate::resource::{Map, Sources};
use crate::sync::{AtomicBool, Ordering};

/// Completions polled at once with their sources.
const BATCH: usize = 16;

/// The queue of the provider, and where its endpoints are.
pub(super) struct DatagramCq {
    cq: Arc<dyn Cq>,
    sources: Arc<Map<QpId, Sources>>,
    /// Receives of a datagram endpoint complete here.
    wanted: AtomicBool,
}

impl DatagramCq {
    pub(super) fn new(cq: Arc<dyn Cq>, sources: Arc<Map<QpId, Sources>>) -> Arc<Self> {
        Arc::new(Self { cq, sources, wanted: AtomicBool::new(false) })
    }

    /// Before a datagram can arrive.
    pub(super) fn expect(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    fn poll_from(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus> {
        let mut from: [Option<DatagramSource>; BATCH] = [None; BATCH];
        let most = out.len().min(BATCH);
        let found = self.cq.poll_from(&mut out[..most], &mut from[..most])?;
        for (completion, source) in out[..found].iter().zip(from) {
            if let (Some(source), Some(of_ep)) = (source, self.sources.get(completion.qp)) {
                of_ep.keep(completion.wr_id, source);
            }
        }
        Ok(found)
    }
}

impl Cq for DatagramCq {
    fn id(&self) -> CqId {
        self.cq.id()
    }

    fn depth(&self) -> u32 {
        self.cq.depth()
    }

    fn queued(&self) -> usize {
        self.cq.queued()
    }

    #[inline]
    fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus> {
        match self.wanted.load(Ordering::Acquire) {
            false => self.cq.poll(out),
            true => self.poll_from(out),
        }
    }

    fn arm(&self, solicited_only: bool) -> Result<(), VpStatus> {
        self.cq.arm(solicited_only)
    }

    fn wait(&self, spin: Duration, timeout: Option<Duration>) -> Result<bool, VpStatus> {
        self.cq.wait(spin, timeout)
    }

    fn interrupt(&self) {
        self.cq.interrupt();
    }

    fn resize(&self, depth: u32) -> VpResult<u32> {
        self.cq.resize(depth)
    }
}
