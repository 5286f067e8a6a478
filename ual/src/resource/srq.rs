//! Shared receive queues: receives that several endpoints take from.

use std::sync::Arc;

use vp_api::{PostFailure, RecvWr, SrqId, SrqInfo, SrqInit};

use super::Pz;
use crate::error::{Error, Object, Result};
use crate::life::{Hold, Life, Living};
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
    life: Life,
    tag: Tag,
    pz: Hold<Pz>,
}

impl Srq {
    pub(super) fn new(pz: &Arc<Pz>, params: SrqParams) -> Result<Arc<Self>> {
        let pz = Hold::new(pz)?;
        let SrqParams { depth, max_sge, low_watermark: limit } = params;
        let init = SrqInit { pd: pz.id(), depth, max_sge, limit };
        let verb = Error::verb("create a shared receive queue");
        let srq = pz.ia().rnic().create_srq(&init).map_err(verb)?;
        let object = Arc::new(Self { srq, life: Life::new(Object::Srq), tag: Tag::default(), pz });
        object.pz.ia().directory().add_srq(&object);
        Ok(object)
    }

    /// The provider's id.
    pub fn id(&self) -> SrqId {
        self.srq.id()
    }

    /// What the face above knows it by.
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
        self.srq.post_recv(wrs)
    }

    /// Changes the depth and/or arms the low-watermark event.
    pub fn modify(&self, depth: Option<u32>, low_watermark: Option<u32>) -> Result<SrqInfo> {
        let verb = Error::verb("modify the shared receive queue");
        self.srq.modify(depth, low_watermark).map_err(verb)
    }

    /// The queue as it is.
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
        self.pz.release();
        Ok(())
    }
}

impl Living for Srq {
    fn life(&self) -> &Life {
        &self.life
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        // Closed already, or nobody can use it any more; either way there is nobody to tell.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Srq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Srq({:?})", self.id())
    }
}
