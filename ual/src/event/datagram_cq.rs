//! Completion queue of an adapter with datagrams: stores the sender of a received datagram with its
//! endpoint ([`crate::UdEp::take_sender`]) before it returns the completion.
//!
//! Between a dispatcher and the provider's queue; adapters without datagrams have none. Any thread.
//!
//! The sender of a datagram is not part of its completion: a wrapper around the provider's queue
//! ([`DatagramCq`]), which only adapters with datagrams have, stores it with the endpoint before the
//! completion is returned, through whatever dispatchers, and the face takes it from there. Completions
//! are not larger for it; connected endpoints pay one branch on such adapters, and nothing on others.

use std::sync::Arc;
use std::time::Duration;

use vp_api::{Cq, CqId, DatagramSource, QpId, VpResult, VpStatus, WorkCompletion};

use crate::resource::{Map, Senders};
use crate::sync::{AtomicBool, Ordering};
use crate::tuning::DATAGRAM_BATCH;

/// The provider's queue, and the senders by endpoint.
pub(super) struct DatagramCq {
    cq: Arc<dyn Cq>,
    senders: Arc<Map<QpId, Senders>>,
    /// Receives of a datagram endpoint complete here.
    wanted: AtomicBool,
}

impl DatagramCq {
    pub(super) fn new(cq: Arc<dyn Cq>, senders: Arc<Map<QpId, Senders>>) -> Arc<Self> {
        Arc::new(Self { cq, senders, wanted: AtomicBool::new(false) })
    }

    /// Before a datagram can arrive.
    pub(super) fn expect(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    fn poll_from(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus> {
        let mut from: [Option<DatagramSource>; DATAGRAM_BATCH] = [None; DATAGRAM_BATCH];
        let most = out.len().min(DATAGRAM_BATCH);
        let found = self.cq.poll_from(&mut out[..most], &mut from[..most])?;
        for (completion, source) in out[..found].iter().zip(from) {
            if let (Some(source), Some(of_ep)) = (source, self.senders.get(completion.qp)) {
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
