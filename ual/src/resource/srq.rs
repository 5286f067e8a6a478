//! Shared receive queues: receives that several endpoints take from.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use vp_api::{PostFailure, RecvWr, SrqId, SrqInfo, SrqInit, VpStatus, room};

use super::{Ia, Pz, Resource};
use crate::error::{Error, Object, Result, unposted};
use crate::event::{AsyncSource, Evd, NOTIFY};
use crate::life::{InUse, Life, Living};
use crate::tag::Tag;

/// For creating an [`Srq`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqParams {
    /// Receives.
    pub depth: u32,
    /// Scatter elements per receive.
    pub max_sge: u32,
    /// Raise the one-shot low-watermark event when fewer remain; 0: not armed.
    pub low_watermark: u32,
}

/// Shared receive queue (IT-API `it_srq_create`).
pub struct Srq {
    srq: Arc<dyn vp_api::Srq>,
    /// Receives whose completions do not count were posted.
    quiet: AtomicBool,
    /// The dispatchers in which its receives complete.
    evds: Mutex<Vec<Weak<Evd>>>,
    life: Life,
    tag: Tag,
    pz: InUse<Pz>,
}

impl Pz {
    /// Creates a shared receive queue.
    pub fn create_srq(self: &Arc<Self>, params: SrqParams) -> Result<Arc<Srq>> {
        Srq::new(self, params)
    }
}

impl Ia {
    /// The shared receive queue of an id, while it is open.
    pub fn srq(&self, srq: SrqId) -> Option<Arc<Srq>> {
        self.directory().by_srq(srq)
    }
}

impl Srq {
    fn new(pz: &Arc<Pz>, params: SrqParams) -> Result<Arc<Self>> {
        let pz = InUse::new(pz)?;
        let SrqParams { depth, max_sge, low_watermark: limit } = params;
        let init = SrqInit { pd: pz.id(), depth, max_sge, limit };
        let verb = Error::verb("create a shared receive queue");
        let srq = pz.ia().rnic().create_srq(&init).map_err(verb)?;
        let object = Arc::new(Self {
            srq,
            quiet: AtomicBool::new(false),
            evds: Mutex::default(),
            life: Life::new(Object::Srq),
            tag: Tag::default(),
            pz,
        });
        object.pz.ia().directory().add_srq(object.id(), &object);
        Ok(object)
    }

    /// The provider's id.
    pub fn id(&self) -> SrqId {
        self.srq.id()
    }

    /// The face's number for it.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Its zone.
    pub fn pz(&self) -> &Arc<Pz> {
        self.pz.arc()
    }

    /// Posts receives.
    #[inline]
    pub fn post_recv(&self, wrs: &[RecvWr<'_>]) -> std::result::Result<(), PostFailure> {
        let quiet = wrs.iter().any(|wr| wr.wr_id & NOTIFY == 0);
        if quiet && !self.quiet.load(Ordering::Acquire) {
            self.expect_uncounted().map_err(unposted)?;
        }
        self.srq.post_recv(wrs)
    }

    #[cold]
    fn expect_uncounted(&self) -> std::result::Result<(), VpStatus> {
        let evds = self.evds();
        for evd in evds.iter().filter_map(Weak::upgrade) {
            evd.expect_uncounted()?;
        }
        // Under the lock: a dispatcher that is added later sees it.
        self.quiet.store(true, Ordering::Release);
        Ok(())
    }

    /// An endpoint of this dispatcher takes its receives from here.
    pub(super) fn completes_to(&self, evd: &Arc<Evd>) -> Result<()> {
        let mut evds = self.evds();
        if self.quiet.load(Ordering::Acquire) {
            evd.expect_uncounted().map_err(|s| Error::status("prepare the event dispatcher", s))?;
        }
        evds.retain(|known| known.upgrade().is_some_and(|known| !Arc::ptr_eq(&known, evd)));
        room::push(&mut evds, "dispatchers of a queue", Arc::downgrade(evd))
            .map_err(Error::verb("prepare the shared receive queue"))
    }

    fn evds(&self) -> MutexGuard<'_, Vec<Weak<Evd>>> {
        // Nothing panics while the lock is held.
        self.evds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the depth and/or arms the low-watermark event.
    pub fn modify(&self, depth: Option<u32>, low_watermark: Option<u32>) -> Result<SrqInfo> {
        let verb = Error::verb("modify the shared receive queue");
        self.srq.modify(depth, low_watermark).map_err(verb)
    }

    /// The attributes of the queue.
    pub fn query(&self) -> Result<SrqInfo> {
        self.srq.query().map_err(Error::verb("query the shared receive queue"))
    }

    /// Destroys it, receives included; refused while endpoints use it.
    pub fn close(&self) -> Result<()> {
        self.life.close()?;
        if let Err(error) = self.pz.ia().rnic().destroy_srq(self.id()) {
            self.life.reopen();
            return Err(Error::verb("destroy the shared receive queue")(error));
        }
        self.pz.ia().directory().remove_srq(self.id());
        self.pz.ia().directory().discard(AsyncSource::Srq(self.id()));
        self.pz.release();
        Ok(())
    }
}

impl Resource for Srq {}

impl Living for Srq {
    fn life(&self) -> &Life {
        &self.life
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        // It is closed already, or can no longer be used; either way the error concerns no one.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Srq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Srq({:?})", self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_queue_is_known_to_be_closed() {
        let ia = crate::Ual::with_config(Default::default()).open_any().unwrap();
        let pz = ia.create_pz().unwrap();
        let srq = Srq::new(&pz, SrqParams { depth: 8, max_sge: 1, low_watermark: 0 }).unwrap();
        assert!(!srq.life().is_closed());
        srq.close().unwrap();
        assert!(srq.life().is_closed());
    }
}
