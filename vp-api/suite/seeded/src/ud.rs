//! Datagrams with a fault: their queue pairs, address handles and services. Any thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vp_api::*;

use crate::faults::Fault;
use crate::seed::{Seed, lock};

pub(crate) struct Ud {
    inner: Arc<dyn Datagrams>,
    seed: Arc<Seed>,
}

/// A status that a fault says instead of another.
fn instead<T>(result: VpResult<T>, right: VpStatus, wrong: VpStatus) -> VpResult<T> {
    result.map_err(|why| match why.status == right {
        true => VpError::new(wrong, "seeded"),
        false => why,
    })
}

/// Service events on their way to the host.
struct Events {
    seed: Arc<Seed>,
    handler: Arc<dyn ServiceHandler>,
}

impl ServiceHandler for Events {
    fn on_service(&self, event: ServiceEvent) {
        let mut event = event;
        let has = |fault| self.seed.has(fault);
        match &mut event {
            ServiceEvent::Request { listener, .. } if has(Fault::ServiceOfOther) => *listener += 1,
            ServiceEvent::Resolved { path, .. } if has(Fault::AnswerWithoutPath) => {
                *path = DatagramPath::default();
            }
            ServiceEvent::Resolved { .. } if has(Fault::AnswerTwice) => {
                self.handler.on_service(event.clone());
            }
            ServiceEvent::Failed { reason, .. } if has(Fault::ServiceFailedWithoutReason) => {
                reason.clear();
            }
            ServiceEvent::Refused { private_data, .. } if has(Fault::RefusalWithoutData) => {
                private_data.clear();
            }
            ServiceEvent::Refused { why: ServiceRefusal::NotSupported, .. }
            | ServiceEvent::Failed { .. }
                if has(Fault::NoAnswerSilent) =>
            {
                return;
            }
            _ => {}
        }
        self.handler.on_service(event);
    }
}

impl Ud {
    pub(crate) fn new(inner: Arc<dyn Datagrams>, seed: Arc<Seed>) -> Self {
        Self { inner, seed }
    }

    fn has(&self, fault: Fault) -> bool {
        self.seed.has(fault)
    }
}

impl Datagrams for Ud {
    fn attrs(&self) -> &DatagramAttrs {
        self.inner.attrs()
    }

    fn max_payload(&self, port: u32) -> VpResult<u32> {
        Ok(self.inner.max_payload(port)? + u32::from(self.has(Fault::PayloadTooLong)))
    }

    fn create_qp(&self, init: &UdQpInit) -> VpResult<Arc<dyn UdQp>> {
        let mut init = init.clone();
        if self.has(Fault::QkeyUnused) {
            init.qkey = None;
        }
        let inner = self.inner.create_qp(&init)?;
        let address = inner.address();
        lock(&self.seed.qkeys).insert(address.qpn, address.qkey);
        Ok(Arc::new(Qp { inner, seed: self.seed.clone() }))
    }

    fn destroy_qp(&self, qp: QpId) -> VpResult<()> {
        self.inner.destroy_qp(qp)
    }

    fn create_ah(&self, pd: PdId, path: &DatagramPath) -> VpResult<AhId> {
        self.inner.create_ah(pd, path)
    }

    fn query_ah(&self, ah: AhId) -> VpResult<AhInfo> {
        self.inner.query_ah(ah)
    }

    fn destroy_ah(&self, ah: AhId) -> VpResult<()> {
        let lost = self.has(Fault::SendsGoWithHandle);
        self.seed.handle_gone.fetch_or(lost, Ordering::AcqRel);
        self.inner.destroy_ah(ah)
    }

    fn set_service_handler(&self, handler: Option<Arc<dyn ServiceHandler>>) {
        let again = self.seed.serves.swap(true, Ordering::AcqRel);
        if again && self.has(Fault::ServiceHandlerStays) {
            return;
        }
        if self.has(Fault::ServiceHandlerKept) {
            std::mem::forget(handler.clone());
        }
        let seed = self.seed.clone();
        let tap = handler
            .map(|handler| -> Arc<dyn ServiceHandler> { Arc::new(Events { seed, handler }) });
        self.inner.set_service_handler(tap);
    }

    fn listen(&self, token: u64, address: SocketAddr, backlog: u32) -> VpResult<SocketAddr> {
        let mut bound = self.inner.listen(token, address, backlog);
        if let (Ok(bound), true) = (&mut bound, self.has(Fault::ServicePortUnsaid)) {
            bound.set_port(0);
        }
        match self.has(Fault::TokenIsModifier) {
            true => instead(bound, VpStatus::InUse, VpStatus::InvalidModifier),
            false => bound,
        }
    }

    fn unlisten(&self, token: u64) -> VpResult<()> {
        self.inner.unlisten(token)
    }

    fn resolve(&self, token: u64, peer: SocketAddr, private_data: &[u8]) -> VpResult<()> {
        self.inner.resolve(token, peer, private_data)
    }

    fn cancel(&self, token: u64) -> VpResult<()> {
        match self.has(Fault::CancelIsLost) {
            true => Ok(()),
            false => self.inner.cancel(token),
        }
    }

    fn accept(&self, request: u64, answer: UdAddress, private_data: &[u8]) -> VpResult<()> {
        self.inner.accept(request, answer, private_data)
    }

    fn reject(&self, request: u64, why: ServiceRefusal, private_data: &[u8]) -> VpResult<()> {
        self.inner.reject(request, why, private_data)
    }
}

struct Qp {
    inner: Arc<dyn UdQp>,
    seed: Arc<Seed>,
}

impl Qp {
    fn has(&self, fault: Fault) -> bool {
        self.seed.has(fault)
    }
}

impl UdQp for Qp {
    fn id(&self) -> QpId {
        match self.has(Fault::UdIdsAlike) {
            true => QpId(1),
            false => self.inner.id(),
        }
    }

    fn address(&self) -> UdAddress {
        self.inner.address()
    }

    fn post_send(&self, wrs: &[UdSendWr<'_>]) -> Result<(), PostFailure> {
        let mut wrs = wrs.to_vec();
        if self.has(Fault::QkeyIgnored) {
            let known = lock(&self.seed.qkeys);
            wrs.iter_mut().for_each(|wr| {
                wr.to.qkey = known.get(&wr.to.qpn).copied().unwrap_or(wr.to.qkey);
            });
        }
        let post = || self.inner.post_send(&wrs);
        let posted = match self.has(Fault::UdSlotFreeTooSoon) {
            true => self.seed.post_again(self.seed.cq_ids().into_iter(), post),
            false => post(),
        };
        posted.map_err(|why| match why.status {
            VpStatus::InvalidSgl if self.has(Fault::TooLongIsModifier) => {
                PostFailure { status: VpStatus::InvalidModifier, ..why }
            }
            _ => why,
        })
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        let posted = self.inner.post_recv(wrs);
        posted.map_err(|why| match self.has(Fault::UdPostedUnsaid) {
            true => PostFailure { posted: 0, ..why },
            false => why,
        })
    }

    fn modify(&self, to: UdState) -> VpResult<()> {
        match to {
            UdState::Error if self.has(Fault::UdErrorIsLost) => Ok(()),
            UdState::Operational if self.has(Fault::UdFlushingIsState) => {
                instead(self.inner.modify(to), VpStatus::StillFlushing, VpStatus::InvalidState)
            }
            _ => self.inner.modify(to),
        }
    }

    fn set_qkey(&self, qkey: u32) -> VpResult<()> {
        match self.has(Fault::QkeyStays) {
            true => Ok(()),
            false => self.inner.set_qkey(qkey),
        }
    }

    fn reset(&self) -> VpResult<()> {
        if self.has(Fault::UdResetIsLost) {
            return Ok(());
        }
        self.inner.reset()?;
        match self.has(Fault::UdResetFlushes) {
            // A receive that nobody posted stands for those that were.
            true => {
                let _ = self.inner.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]);
                self.inner.modify(UdState::Error)
            }
            false => Ok(()),
        }
    }

    fn query(&self) -> VpResult<UdQpInfo> {
        self.inner.query()
    }
}

/// What a fault makes of completions that say where they came from; how many are left.
pub(crate) fn spoil(
    seed: &Seed,
    out: &mut [WorkCompletion],
    from: &mut [Option<DatagramSource>],
) -> usize {
    for (wc, from) in out.iter_mut().zip(&mut *from) {
        match from {
            Some(_) if seed.has(Fault::SourceUnsaid) => *from = None,
            Some(source) if seed.has(Fault::PathUnsaid) => source.path = None,
            Some(_) if seed.has(Fault::HeaderUncounted) => wc.octets -= GRH_OCTETS as u32,
            Some(_) if seed.has(Fault::UdImmediateUnsaid) => wc.immediate = None,
            _ => {}
        }
    }
    let is_lost = |wc: &WorkCompletion| wc.opcode == WcOpcode::Send;
    if seed.handle_gone.load(Ordering::Acquire) && out.iter().all(is_lost) {
        return 0;
    }
    out.len()
}
