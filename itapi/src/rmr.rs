//! Memory windows: a right to part of a region that comes and goes with a work request. The window
//! keeps the region that it is linked to.

use std::sync::{Arc, Mutex, PoisonError};

use vp_api::{Access, BindMw, MwId, MwKind, SendOp, Stag};

use crate::error::{Error, Result};
use crate::ia::Pz;
use crate::lmr::{LmrRange, RemoteRange, RmrContext};

/// Remote memory region (IT-API `it_rmr_create`). Clones share it; the last one unlinks it.
#[derive(Clone)]
pub struct Rmr(Arc<Core>);

struct Core {
    rmr: Arc<ual::Rmr>,
    linked: Mutex<Option<LmrRange>>,
}

impl Rmr {
    pub(crate) fn new(pz: &Pz, kind: MwKind) -> Result<Self> {
        let rmr = pz.ual().create_rmr(kind)?;
        Ok(Self(Arc::new(Core { rmr, linked: Mutex::new(None) })))
    }

    pub(crate) fn id(&self) -> MwId {
        self.0.rmr.id()
    }

    /// What to tell a peer, once the link has completed.
    pub fn remote(&self) -> Result<RemoteRange> {
        let info = self.0.rmr.query()?;
        let linked = self.0.linked.lock().unwrap_or_else(PoisonError::into_inner);
        match (info.stag, &*linked) {
            (Some(stag), Some(range)) => {
                Ok(RemoteRange { context: RmrContext(stag.0), ..range.remote() })
            }
            _ => Err(Error::Argument(
                "the window is not linked; post `Work::link` and wait for its completion".into(),
            )),
        }
    }

    /// Keeps the region of a link, or lets it go; answers the one before.
    pub(crate) fn keep(&self, range: Option<LmrRange>) -> Option<LmrRange> {
        let mut linked = self.0.linked.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *linked, range)
    }

    /// The bind of a link.
    pub(crate) fn bind(&self, range: &LmrRange, access: Access) -> SendOp {
        SendOp::BindMw(BindMw {
            window: self.id(),
            key: 0,
            region: range.lmr().stag(),
            to: range.to(),
            len: range.len() as u64,
            addressing: range.lmr().addressing(),
            access,
        })
    }

    /// The bind that takes all rights away.
    pub(crate) fn unbind(&self) -> SendOp {
        let linked = self.0.linked.lock().unwrap_or_else(PoisonError::into_inner);
        let region = linked.as_ref().map_or(Stag::default(), |range| range.lmr().stag());
        SendOp::BindMw(BindMw {
            window: self.id(),
            key: 0,
            region,
            to: 0,
            len: 0,
            addressing: vp_api::Addressing::Absolute,
            access: Access::empty(),
        })
    }
}

impl std::fmt::Debug for Rmr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rmr({:?})", self.id())
    }
}
