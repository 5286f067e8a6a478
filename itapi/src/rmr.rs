//! Memory windows: rights to part of a region, granted and revoked by work requests. A window keeps every
//! region that it may be linked to, so that none is deregistered while a peer uses it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ual::Keys;
use vp_api::{Access, Addressing, BindMw, MwInfo, MwKind, QpId, SendOp, Sge, Stag, room};

use crate::context::context;
use crate::error::{Error, Result};
use crate::ia::Pz;
use crate::lmr::{Lmr, LmrRange};
use crate::remote::{RemoteRange, RmrContext};

/// Remote memory region, or memory window (IT-API `it_rmr_create`). Clones share it; dropping the last one
/// unlinks it. A narrow window that is still linked ends with the endpoint that linked it.
///
/// ```
/// # use std::time::Duration;
/// # use itapi::{Access, Ia, MwKind, Work};
/// # fn main() -> itapi::Result<()> {
/// # let ia = Ia::open()?;
/// # let (pz, evd) = (ia.pz()?, ia.evd(16)?);
/// # let (ep, peer) = (pz.ep(&evd).build()?, pz.ep(&evd).build()?);
/// # let listen = ia.listen("127.0.0.1:0")?;
/// # std::thread::scope(|scope| {
/// #     scope.spawn(|| listen.request()?.accept(&peer, b""));
/// #     ep.connect(listen.address(), b"")
/// # })?;
/// # let second = Duration::from_secs(20);
/// let region = pz.lmr(4096).remote_write().bindable().register()?;
/// let window = pz.rmr(MwKind::Narrow)?;
/// // The peer of `ep`, and no other peer, may write 64 octets ...
/// ep.post(Work::link(&window, region.range(0..64)?, Access::REMOTE_WRITE))?;
/// evd.wait_success(second)?;
/// let tell_the_peer = window.remote()?.to_octets();
/// // ... until this.
/// ep.post(Work::unlink(&window))?;
/// evd.wait_success(second)?;
/// assert!(window.remote().is_err());
/// # drop(tell_the_peer);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Rmr(Arc<RmrInner>);

context!(Rmr, rmr => rmr.0.rmr.tag());

struct RmrInner {
    // Before the regions: unlinking comes first.
    rmr: Arc<ual::Rmr>,
    kind: MwKind,
    state: Mutex<State>,
}

/// The links of a window.
#[derive(Default)]
struct State {
    /// The regions of its links, those under way included.
    regions: Vec<Lmr>,
    /// Outstanding work requests that refer to it.
    pending: u32,
    /// The queue pair of the last link.
    through: Option<QpId>,
    /// Key of the last link; each link gets another, so that a peer's old right is invalid.
    keys: Keys,
}

/// Refers to a window without keeping it.
pub(crate) struct WeakRmr(Weak<RmrInner>);

/// An outstanding work request that refers to a window. Dropping it lets the window release the regions that it
/// is not linked to.
#[derive(Debug)]
pub(crate) struct Pending(Rmr);

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.complete_one();
    }
}

impl Pz {
    /// Allocates a memory window.
    pub fn rmr(&self, kind: MwKind) -> Result<Rmr> {
        Rmr::new(self, kind)
    }
}

impl Rmr {
    fn new(pz: &Pz, kind: MwKind) -> Result<Self> {
        let rmr = pz.ual().create_rmr(kind)?;
        Ok(Self(Arc::new(RmrInner { rmr, kind, state: Mutex::default() })))
    }

    pub(crate) fn kind(&self) -> MwKind {
        self.0.kind
    }

    /// State of the window (`it_rmr_query`).
    pub fn info(&self) -> Result<MwInfo> {
        Ok(self.0.rmr.query()?)
    }

    /// Describes the window to a peer, once the link has completed.
    pub fn remote(&self) -> Result<RemoteRange> {
        let info = self.info()?;
        let stag = info.stag.ok_or_else(|| {
            Error::Argument(
                "the window is not linked; post `Work::link` and wait for its completion".into(),
            )
        })?;
        let addr = info.addressing.base(info.to);
        Ok(RemoteRange { context: RmrContext(stag.0), addr, len: info.len })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the region of a link that is to be posted.
    pub(crate) fn to_link(&self, range: &LmrRange) -> Result<Pending> {
        let mut state = self.state();
        if !state.regions.iter().any(|region| region.is(range.lmr())) {
            let region = range.lmr().clone();
            room::push(&mut state.regions, "regions of a window", region)
                .map_err(Error::no_room)?;
        }
        state.pending += 1;
        Ok(Pending(self.clone()))
    }

    /// Records that the link is posted, before it can complete.
    pub(crate) fn linking(&self, through: QpId) {
        let mut state = self.state();
        state.through = Some(through);
        state.keys.next();
    }

    /// Counts another posted work request that refers to the window.
    pub(crate) fn using(&self) -> Pending {
        self.state().pending += 1;
        Pending(self.clone())
    }

    /// Counts one work request less. After the last, the provider returns what the window is linked to.
    fn complete_one(&self) {
        self.state().pending -= 1;
        // Outside the lock: each drop may deregister.
        while let Some(region) = self.unlinked_region() {
            drop(region);
        }
    }

    /// A region that the window need not keep any more.
    fn unlinked_region(&self) -> Option<Lmr> {
        let mut state = self.state();
        if state.pending > 0 || state.regions.is_empty() {
            return None;
        }
        let linked = self.info().ok().and_then(|info| info.region);
        let is_linked =
            |region: &Lmr| linked.is_some_and(|linked| linked.index() == region.stag().index());
        let at = state.regions.iter().position(|region| !is_linked(region))?;
        Some(state.regions.swap_remove(at))
    }

    /// The bind of a link.
    pub(crate) fn bind(&self, range: &LmrRange, access: Access, addressing: Addressing) -> SendOp {
        let key = self.state().keys.upcoming();
        SendOp::BindMw(BindMw {
            window: self.0.rmr.id(),
            key,
            region: range.lmr().stag(),
            to: range.to(),
            len: range.len() as u64,
            addressing,
            access,
        })
    }

    /// The bind that revokes all rights.
    pub(crate) fn unbind(&self) -> SendOp {
        SendOp::BindMw(BindMw {
            window: self.0.rmr.id(),
            key: 0,
            region: Stag::default(),
            to: 0,
            len: 0,
            addressing: Addressing::Absolute,
            access: Access::empty(),
        })
    }

    /// `len` octets of the window from `offset` on, as the sink of an RDMA Read.
    pub(crate) fn sink(&self, offset: u64, len: u64) -> Result<Sge> {
        let end = offset.saturating_add(len);
        let part = self.remote()?.slice(offset..end)?;
        let len = u32::try_from(len).map_err(|_| {
            Error::Argument(format!("{len} octets in one read; at most 4294967295 are possible"))
        })?;
        Ok(Sge { stag: Stag(part.context.0), len, to: part.addr })
    }

    pub(crate) fn downgrade(&self) -> WeakRmr {
        WeakRmr(Arc::downgrade(&self.0))
    }
}

impl WeakRmr {
    pub(crate) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }

    pub(crate) fn is(&self, rmr: &Rmr) -> bool {
        Weak::as_ptr(&self.0) == Arc::as_ptr(&rmr.0)
    }

    /// Unlinks the window if it is narrow and linked through a queue pair that is to be destroyed.
    pub(crate) fn end_with(&self, qp: QpId) {
        let Some(rmr) = self.0.upgrade().map(Rmr) else { return };
        let linked = rmr.info().is_ok_and(|info| info.stag.is_some());
        if linked && rmr.0.kind == MwKind::Narrow && rmr.state().through == Some(qp) {
            // Refused only while a peer's octets are being placed; the queue pair then lives as long as the
            // window.
            let _ = rmr.0.rmr.close();
        }
    }
}

impl std::fmt::Debug for Rmr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rmr({:?})", self.0.rmr.id())
    }
}
