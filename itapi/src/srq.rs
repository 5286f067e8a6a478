//! Shared receive queues. The queue owns the memory of a receive until it completes, or is lost with an
//! endpoint ([`ual::SharedPosted`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ual::SrqParams;
use vp_api::{QpId, SrqInfo};

use crate::context::context;
use crate::error::{PostResult, Result};
use crate::flight::RecvFlight;
use crate::ia::Pz;
use crate::ids::{SrqId, WorkId};
use crate::post;
use crate::receive::receives;
use crate::work::Local;

/// Shared receive queue (IT-API `it_srq_create`). Clones share it.
///
/// ```
/// # fn main() -> itapi::Result<()> {
/// # let ia = itapi::Ia::open()?;
/// # let (pz, evd) = (ia.pz()?, ia.evd(16)?);
/// let srq = pz.srq(64, 1)?;
/// for buffer in pz.buffers(32, 512)? {
///     srq.post_recv(buffer)?;
/// }
/// srq.arm_low_watermark(8)?; // an event when fewer than 8 are left
/// let (one, another) = (pz.ep(&evd).srq(&srq).build()?, pz.ep(&evd).srq(&srq).build()?);
/// assert_eq!(srq.info()?.posted, 32);
/// # drop((one, another));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Srq(Arc<SrqInner>);

context!(Srq, srq => srq.0.srq.tag());

struct SrqInner {
    // Before the flight: the provider's queue is destroyed before the memory is freed.
    srq: Arc<ual::Srq>,
    flight: Mutex<RecvFlight>,
}

impl Pz {
    /// Creates a shared receive queue for `depth` receives of at most `pieces` pieces of memory.
    pub fn srq(&self, depth: u32, pieces: u32) -> Result<Srq> {
        Srq::new(self, SrqParams { depth, max_sge: pieces, low_watermark: 0 })
    }
}

impl Srq {
    fn new(pz: &Pz, params: SrqParams) -> Result<Self> {
        let flight = Mutex::new(RecvFlight::shared(params.depth)?);
        let srq = pz.ual().create_srq(params)?;
        Ok(Self(Arc::new(SrqInner { srq, flight })))
    }

    /// Its id in asynchronous events.
    pub fn id(&self) -> SrqId {
        SrqId(self.0.srq.id().0)
    }

    /// Posts receives, as many as fit; returns how many. The posted ones are removed from the front of
    /// `locals`. Errors: the first one was refused.
    pub fn post_recv_all(&self, locals: &mut Vec<Local>) -> Result<usize> {
        post::receive_all(&mut self.flight(), locals, |wrs| self.0.srq.post_recv(wrs), &*self.0.srq)
    }

    /// Raises the event [`crate::AsyncEvent::SrqLimit`] once when fewer receives remain
    /// (`it_srq_modify`).
    pub fn arm_low_watermark(&self, receives: u32) -> Result<()> {
        self.0.srq.modify(None, Some(receives))?;
        Ok(())
    }

    /// Changes the depth, keeping all receives (`it_srq_modify`).
    pub fn resize(&self, depth: u32) -> Result<SrqInfo> {
        Ok(self.0.srq.modify(Some(depth), None)?)
    }

    /// State of the queue (`it_srq_query`).
    pub fn info(&self) -> Result<SrqInfo> {
        Ok(self.0.srq.query()?)
    }

    /// Counts an endpoint that takes receives from here.
    pub(crate) fn joined(&self, qp: QpId) {
        if let Some(receives) = self.flight().as_shared() {
            receives.joined(qp, self.waiting());
        }
    }

    /// Records that an endpoint was destroyed, and frees the receives that it and others before it had taken.
    pub(crate) fn left(&self, qp: QpId) {
        let (mut back, mut flight) = (Vec::new(), self.flight());
        if let Some(receives) = flight.as_shared() {
            receives.left(qp, self.waiting(), |local| back.push(local));
        }
        // Outside the lock: memory is freed here.
        drop(flight);
    }

    /// Receives that no endpoint has taken. Under the flight's lock: none is posted meanwhile.
    fn waiting(&self) -> u32 {
        // Not known: assume that none was taken.
        self.0.srq.query().map_or(u32::MAX, |info| info.posted)
    }

    pub(crate) fn flight(&self) -> MutexGuard<'_, RecvFlight> {
        // Nothing panics while the lock is held.
        self.0.flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ual(&self) -> &Arc<ual::Srq> {
        &self.0.srq
    }
}

receives!(Srq, "Posts a receive for any of the endpoints.", srq => srq.flight(), srq.0.srq);

impl std::fmt::Debug for Srq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Srq({:?})", self.0.srq.id())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Ep, Ia, Work};

    const LONG: Duration = Duration::from_secs(60);

    fn held(srq: &Srq) -> usize {
        srq.flight().as_shared().map_or(0, |receives| receives.held())
    }

    /// Completes two receives of `srq` and leaves their completions queued; returns the peer's endpoint.
    fn fill(ia: &Ia, ep: &Ep, evd: &crate::Evd) -> Result<Ep> {
        let listen = ia.listen("127.0.0.1:0")?;
        let (pz, sent) = (ia.pz()?, ia.evd(16)?);
        let client = pz.ep(&sent).build()?;
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| listen.request()?.accept(ep, b""));
            client.connect(listen.address(), b"")?;
            accepted.join().expect("no panic")
        })?;
        for _ in 0..2 {
            client.post(Work::send(b"hello"))?;
            sent.wait_success(LONG)?;
        }
        warpline_patience::until("two receives to complete", || evd.queued() == 2);
        Ok(client)
    }

    #[test]
    fn the_memory_of_receives_that_a_freed_endpoint_took_is_returned() -> Result<()> {
        let ia = Ia::open()?;
        let (pz, evd) = (ia.pz()?, ia.evd(16)?);
        let srq = pz.srq(8, 1)?;
        let elder = pz.ep(&evd).srq(&srq).build()?;
        for buffer in pz.buffers(8, 8)? {
            srq.post_recv(buffer)?;
        }
        let ep = pz.ep(&evd).srq(&srq).build()?;
        let client = fill(&ia, &ep, &evd)?;
        drop((ep, client));
        // It is not known that this one did not take them.
        assert_eq!(held(&srq), 8);
        drop(elder);
        assert_eq!((held(&srq), srq.info()?.posted), (6, 6));
        let ep = pz.ep(&evd).srq(&srq).build()?;
        let _client = fill(&ia, &ep, &evd)?;
        evd.wait_success(LONG)?;
        drop(ep);
        assert_eq!(held(&srq), 4);
        Ok(())
    }
}
