//! A connection manager with a fault. Any thread.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use vp_api::*;

use crate::faults::Fault;
use crate::seed::{Seed, lock};

pub(crate) struct Cm {
    inner: Arc<dyn NativeCm>,
    seed: Arc<Seed>,
    first: Mutex<VecDeque<NativeEvent>>,
    /// Where the last request came to.
    asked: Mutex<Option<SocketAddr>>,
    /// A listener has ended.
    ended: AtomicBool,
}

impl Cm {
    pub(crate) fn new(inner: Arc<dyn NativeCm>, seed: Arc<Seed>) -> Self {
        let (first, asked, ended) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Self { inner, seed, first, asked, ended }
    }

    fn has(&self, fault: Fault) -> bool {
        self.seed.has(fault)
    }

    /// The event, and what a fault puts after it; `None`: it is lost.
    fn spoil(&self, event: NativeEvent) -> Option<NativeEvent> {
        let mut event = event;
        let again = |event: &NativeEvent| lock(&self.first).push_back(event.clone());
        match &mut event {
            NativeEvent::Request { listener, .. } if self.has(Fault::RequestOfOther) => {
                *listener += 1
            }
            NativeEvent::Request { params, .. } if self.has(Fault::RequestWithoutData) => {
                params.private_data.clear();
            }
            NativeEvent::Request { params, .. } if self.has(Fault::RequestWithoutDepths) => {
                (params.ird, params.ord) = (0, 0);
            }
            NativeEvent::Request { peer, .. } if self.has(Fault::RequestFromNowhere) => {
                peer.set_ip(std::net::Ipv4Addr::UNSPECIFIED.into());
            }
            NativeEvent::Request { local, .. } if self.has(Fault::RequestToAnywhere) => {
                *local = local.map(|at| (std::net::Ipv4Addr::UNSPECIFIED, at.port()).into());
            }
            NativeEvent::Request { local, .. } if self.has(Fault::RequestToOtherPort) => {
                *local = local.map(|at| (at.ip(), at.port() ^ 1).into());
            }
            NativeEvent::Request { local, .. } if self.has(Fault::LocalIsPeers) => {
                *lock(&self.asked) = *local;
            }
            NativeEvent::Established { local, .. } if self.has(Fault::LocalIsPeers) => {
                // The end that asked is at the address of the one that was asked.
                *local = *lock(&self.asked);
            }
            NativeEvent::Established { params, .. } if self.has(Fault::AnswerWithoutData) => {
                params.private_data.clear();
            }
            NativeEvent::Established { .. } if self.has(Fault::EstablishedTwice) => again(&event),
            NativeEvent::Established { qp, .. } if self.has(Fault::DisconnectedFirst) => {
                let qp = *qp;
                again(&event);
                return Some(NativeEvent::Disconnected { qp });
            }
            NativeEvent::Established { .. } if self.has(Fault::EstablishedOnce) => {
                return self.seed.next().is_multiple_of(2).then_some(event);
            }
            NativeEvent::Rejected { private_data, .. } if self.has(Fault::RejectWithoutData) => {
                private_data.clear();
            }
            NativeEvent::Rejected { qp, .. } if self.has(Fault::RejectIsFailure) => {
                return Some(NativeEvent::Failed { qp: *qp, reason: "rejected".into() });
            }
            NativeEvent::Failed { reason, .. } if self.has(Fault::FailedWithoutReason) => {
                reason.clear();
            }
            NativeEvent::Disconnected { .. } if self.has(Fault::DisconnectedTwice) => again(&event),
            NativeEvent::Disconnected { .. } if self.has(Fault::DisconnectedOnce) => {
                return self.seed.next().is_multiple_of(2).then_some(event);
            }
            NativeEvent::Disconnected { .. } if self.has(Fault::DisconnectedNever) => return None,
            _ => {}
        }
        Some(event)
    }
}

impl NativeCm for Cm {
    fn listen(&self, address: SocketAddr, backlog: u32) -> VpResult<(u64, SocketAddr)> {
        let (listener, mut bound) = self.inner.listen(address, backlog)?;
        if self.has(Fault::PortUnsaid) {
            bound.set_port(0);
        }
        Ok((listener, bound))
    }

    fn unlisten(&self, listener: u64) -> VpResult<()> {
        match self.has(Fault::UnlistenIsLost) || self.has(Fault::RequestsGoWithListener) {
            true => {
                self.ended.fetch_or(true, Ordering::AcqRel);
                Ok(())
            }
            false => self.seed.refusal(self.inner.unlisten(listener)),
        }
    }

    fn connect(&self, qp: QpId, peer: SocketAddr, params: NativeParams) -> VpResult<()> {
        let mut params = params;
        if self.has(Fault::PrivateDataCut) {
            params.private_data.truncate(20);
        }
        self.seed.refusal(self.inner.connect(qp, peer, params))
    }

    fn accept(&self, request: u64, qp: QpId, params: NativeParams) -> VpResult<()> {
        if self.has(Fault::RequestsGoWithListener) && self.ended.load(Ordering::Acquire) {
            return Err(VpError::new(VpStatus::InvalidHandle, "seeded"));
        }
        self.seed.refusal(self.inner.accept(request, qp, params))
    }

    fn reject(&self, request: u64, private_data: &[u8]) -> VpResult<()> {
        self.seed.refusal(self.inner.reject(request, private_data))
    }

    fn disconnect(&self, qp: QpId) -> VpResult<()> {
        match self.inner.disconnect(qp) {
            Err(_) if self.has(Fault::DisconnectsAnything) => Ok(()),
            other => self.seed.refusal(other),
        }
    }

    fn poll_event(&self) -> Option<NativeEvent> {
        if let Some(event) = lock(&self.first).pop_front() {
            return Some(event);
        }
        self.inner.poll_event().and_then(|event| self.spoil(event))
    }

    fn wait_event(&self, timeout: Option<Duration>) -> VpResult<bool> {
        match () {
            () if !lock(&self.first).is_empty() => Ok(true),
            () if self.has(Fault::EventsAlwaysReady) => Ok(true),
            () if self.has(Fault::EventsNeverReady) => {
                self.inner.wait_event(timeout).map(|_| false)
            }
            () => self.inner.wait_event(timeout),
        }
    }
}
