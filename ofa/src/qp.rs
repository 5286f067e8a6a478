//! Queue pairs: the private part of an `ibv_qp`.
//!
//! A queue pair begins in RESET; in the provider it is Idle until its stream exists, made by a
//! connection identifier or by the rendezvous, its [`Owner`], or by the provider from a path. The state that programs see is kept here;
//! it is changed by one caller at a time and by the thread that delivers the stream's end. Once the
//! stream is over all posts complete as flushed, until the queue pair is reset and used again. Posting
//! and polling take none of the locks here.

mod by_path;
mod change;
mod datagrams;
mod drain;
mod lost;
mod meet;
mod state;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ibv_sys::*;
use kal_os::lock;
use ual_cm::Connectee;
use vp_api::{Paths, PostFailure, QpInit, SendWr, UdQp, VpStatus};

use crate::acks::Acks;
use crate::adapter::Adapter;
use crate::atomics::Atomics;
use crate::caps;
use crate::errno::{EINVAL, EOPNOTSUPP, Errno};
use crate::events::Source;
use crate::late;
use crate::object::Mirror;
use crate::rendezvous::{EarlyPeers, Meeting, Slot};
use crate::verbs::context::Context;
use crate::verbs::cq::Cq;
use crate::verbs::pd::Pd;
use crate::verbs::srq::Srq;
use crate::wr_list::{List, WrList};
use datagrams::AsConnected;

/// Makes the stream of a queue pair.
pub trait Owner: Connectee {
    /// The queue pair is destroyed: calls `destroy` while no event is delivered
    /// ([`ual_cm::Connection::close`]).
    ///
    /// # Errors
    /// Those of `destroy`, and then nothing has changed.
    fn close(&self, destroy: &mut dyn FnMut() -> Result<(), Errno>) -> Result<(), Errno>;
}

/// Parameters of a queue pair.
pub struct Init {
    /// Its protection domain.
    pub pd: Arc<Pd>,
    /// Completions of sends.
    pub send_cq: Arc<Cq>,
    /// Completions of receives.
    pub recv_cq: Arc<Cq>,
    /// Receives are taken from here.
    pub srq: Option<Arc<Srq>>,
    /// Sizes, as the application asked for them.
    pub cap: ibv_qp_cap,
    /// `IBV_QPT_…`
    pub kind: u32,
    /// Every send is signalled.
    pub signal_all: bool,
    /// Peers may find it by GID and number; otherwise its stream is made by a connection identifier.
    pub meets: bool,
}

/// A queue pair.
pub struct Qp {
    init: Init,
    vp: Arc<dyn vp_api::Qp>,
    /// The same, if it is for datagrams.
    datagrams: Option<Arc<dyn UdQp>>,
    number: u32,
    slot: Option<Slot>,
    /// On devices that connect queue pairs by GID and number themselves.
    paths: Option<Arc<dyn Paths>>,
    meet: Mutex<Meet>,
    state: AtomicU32,
    life: AtomicU64,
    mirror: Mirror,
    /// Held during a change.
    changing: Mutex<()>,
    attr: Mutex<ibv_qp_attr>,
    owner: Mutex<Option<Weak<dyn Owner>>>,
    source: Source,
    /// The first send that was lost with the stream was given its error.
    attributed: AtomicBool,
    /// The peer did not come, or does not respond.
    lost: AtomicBool,
    /// Completions flushed by the peer's end, before the application gets the event.
    withheld: Mutex<Withheld>,
    atomics: Atomics,
    wr_list: WrList,
    /// Sends that were posted in SQD.
    kept: Mutex<List>,
}

/// Completions that are returned later.
#[derive(Default)]
struct Withheld {
    sends: Vec<ibv_wc>,
    receives: Vec<ibv_wc>,
}

/// The rendezvous of a queue pair.
#[derive(Default)]
struct Meet {
    /// From RTR on.
    meeting: Option<Arc<Meeting>>,
    early: EarlyPeers,
}

impl Qp {
    /// Creates one, in RESET.
    ///
    /// # Errors
    /// EINVAL: sizes beyond the device's, objects of different contexts, or a shared receive queue with an
    /// unreliable connection (ibv_create_qp(3)). EOPNOTSUPP: an unsupported
    /// type. ENOMEM.
    pub fn create(init: Init) -> Result<Arc<Self>, Errno> {
        if !matches!(init.kind, IBV_QPT_RC | IBV_QPT_UC | IBV_QPT_UD) {
            return Err(EOPNOTSUPP);
        }
        let adapter = init.pd.adapter()?.clone();
        // rdma_cm makes reliable connections only.
        if init.kind == IBV_QPT_UC && by_path::is_native(&adapter) && !init.meets {
            return Err(EOPNOTSUPP);
        }
        if !fits(&init, &adapter) {
            return Err(EINVAL);
        }
        let own = |context: &Arc<Context>| Arc::ptr_eq(context, &init.pd.context);
        let of_srq = init.srq.as_ref().is_none_or(|srq| own(srq.context()));
        if !(own(init.send_cq.context()) && own(init.recv_cq.context()) && of_srq) {
            return Err(EINVAL);
        }
        let is_datagrams = init.kind == IBV_QPT_UD;
        let connects = init.meets && !is_datagrams;
        let paths = if connects { adapter.rnic().paths() } else { None };
        let meets = connects && !by_path::is_native(&adapter);
        let slot = meets.then(|| meet::place(&adapter)).transpose()?;
        let wanted = provider_init(&init, &adapter);
        let datagrams = is_datagrams.then(|| datagrams::make(&adapter, &wanted)).transpose()?;
        let vp: Arc<dyn vp_api::Qp> = match &datagrams {
            Some(own) => Arc::new(AsConnected(own.clone())),
            None => adapter.rnic().create_qp(&wanted)?,
        };
        let id = vp.id();
        if let Some(paths) = paths.as_ref().filter(|_| init.kind == IBV_QPT_UC) {
            paths.set_unreliable(id).inspect_err(|_| {
                // It was made just now.
                let _ = adapter.rnic().destroy_qp(id);
            })?;
        }
        let number = match (&datagrams, &paths) {
            (Some(own), _) => own.address().qpn,
            (None, Some(paths)) => paths.number(id)?,
            (None, None) => slot.as_ref().map_or(id.0 & 0x00ff_ffff, Slot::number),
        };
        if is_datagrams {
            init.recv_cq.takes_datagrams.store(true, Ordering::Relaxed);
        }
        let qp = Arc::new(Self {
            init,
            vp,
            datagrams,
            number,
            slot,
            paths,
            meet: Mutex::default(),
            state: AtomicU32::new(IBV_QPS_RESET),
            life: AtomicU64::new(adapter.directory().sequence().next()),
            mirror: Mirror::default(),
            changing: Mutex::default(),
            attr: Mutex::default(),
            owner: Mutex::default(),
            source: Source::default(),
            attributed: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            withheld: Mutex::default(),
            atomics: Atomics::default(),
            wr_list: WrList::default(),
            kept: Mutex::default(),
        });
        qp.init.pd.enter();
        adapter.numbers().set(id, number);
        if let Some(slot) = &qp.slot {
            let target: Weak<Self> = Arc::downgrade(&qp);
            slot.publish(target);
        }
        let listener: Weak<Self> = Arc::downgrade(&qp);
        adapter.directory().add_qp(id, listener);
        Ok(qp)
    }

    /// The provider's queue pair.
    #[inline]
    pub fn vp(&self) -> &Arc<dyn vp_api::Qp> {
        &self.vp
    }

    /// The parameters that it was created with.
    #[inline]
    pub fn init(&self) -> &Init {
        &self.init
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its adapter.
    ///
    /// # Errors
    /// EIO in a process that inherited it by fork.
    #[inline]
    pub fn adapter(&self) -> Result<&Arc<Adapter>, Errno> {
        self.init.pd.adapter()
    }

    pub(crate) fn acks(&self) -> &Acks {
        self.source.acks()
    }

    /// Posts to the send queue.
    #[inline]
    pub(crate) fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        self.post(wrs, Posting::Part)
    }

    /// Posts all of a list, or nothing.
    pub(crate) fn post_whole(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        self.post(wrs, Posting::Whole)
    }

    #[inline]
    fn post(&self, wrs: &[SendWr<'_>], posting: Posting) -> Result<(), PostFailure> {
        if self.state() == IBV_QPS_SQD {
            self.keep(wrs, posting)
        } else {
            self.post_now(wrs, posting)
        }
    }

    #[inline]
    fn post_now(&self, wrs: &[SendWr<'_>], posting: Posting) -> Result<(), PostFailure> {
        let post = |wrs: &[SendWr<'_>]| match posting {
            Posting::Part => self.vp.post_send(wrs),
            Posting::Whole => self.vp.post_send_whole(wrs),
        };
        if wrs.iter().any(Atomics::counts) { self.atomics.post(wrs, post) } else { post(wrs) }
    }

    pub(crate) fn wr_list(&self) -> &WrList {
        &self.wr_list
    }

    pub(crate) fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    pub(crate) fn set_handle(&self, handle: usize) {
        self.source.begin(handle);
    }

    /// Sets the owner, which makes the stream from now on.
    ///
    /// # Errors
    /// EINVAL: it has another owner.
    pub fn attach(&self, owner: Weak<dyn Owner>) -> Result<(), Errno> {
        let adapter = self.adapter()?;
        {
            let mut now = lock(&self.owner);
            let other =
                now.as_ref().is_some_and(|now| now.strong_count() > 0 && !now.ptr_eq(&owner));
            if other {
                return Err(EINVAL);
            }
            *now = Some(owner.clone());
        }
        adapter.register(self.vp.id(), owner);
        Ok(())
    }

    fn owner(&self) -> Option<Arc<dyn Owner>> {
        lock(&self.owner).as_ref()?.upgrade()
    }

    fn push(&self, kind: u32) {
        self.source.raise(self.init.pd.context.events(), kind);
    }

    /// ibv_destroy_qp: what completed with success before still arrives.
    ///
    /// # Errors
    /// EBUSY: memory windows are bound to it.
    pub fn destroy(&self) -> Result<(), Errno> {
        let adapter = self.adapter()?;
        let id = self.vp.id();
        let mut destroy = || match self.datagrams {
            Some(_) => datagrams::destroy(adapter, id),
            None => Ok(adapter.rnic().destroy_qp(id)?),
        };
        match self.owner() {
            Some(owner) => owner.close(&mut destroy)?,
            None => destroy()?,
        }
        self.init.pd.remove_user();
        adapter.cm().forget(id);
        adapter.directory().remove_qp(id);
        adapter.numbers().remove(id);
        self.forget_completions();
        self.source.end(self.init.pd.context.events());
        self.mirror.end();
        Ok(())
    }
}

/// What becomes of a list if one of its requests is refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Posting {
    /// Those before it are posted.
    Part,
    /// None is.
    Whole,
}

/// Whether the device has such queue pairs.
fn fits(init: &Init, adapter: &Adapter) -> bool {
    let (cap, attrs) = (&init.cap, adapter.attrs());
    cap.max_send_wr.max(cap.max_recv_wr) <= attrs.max_wr_per_qp
        && !(init.srq.is_some() && init.kind == IBV_QPT_UC)
}

fn provider_init(init: &Init, adapter: &Adapter) -> QpInit {
    let (cap, attrs) = (&init.cap, adapter.attrs());
    let mut out = QpInit::new(init.pd.id, init.send_cq.vp().id(), init.recv_cq.vp().id());
    out.srq = init.srq.as_ref().map(|srq| srq.vp().id());
    // An application may ask for a depth of 0; it gets 1.
    out.send_depth = cap.max_send_wr.max(1);
    out.recv_depth = cap.max_recv_wr.max(1);
    out.max_send_sge = cap.max_send_sge.max(1);
    out.max_recv_sge = cap.max_recv_sge.max(1);
    out.max_inline = cap.max_inline_data;
    out.ird = caps::max_reads(attrs.max_ird) as u16;
    out.ord = caps::max_reads(attrs.max_ord) as u16;
    out.unready = late::unready(attrs.capabilities, init.meets);
    out
}

/// Whether a post to the send queue is accepted in this state; the provider keeps it until the stream
/// exists. Also in RTR, unlike InfiniBand: perftest's receiver gives credits from there on iWARP.
#[inline]
pub(crate) fn takes_sends(state: u32) -> Result<(), VpStatus> {
    match state {
        IBV_QPS_RESET | IBV_QPS_INIT => Err(VpStatus::InvalidState),
        _ => Ok(()),
    }
}

/// The same for the receive queue.
#[inline]
pub(crate) fn takes_receives(state: u32) -> Result<(), VpStatus> {
    if state == IBV_QPS_RESET { Err(VpStatus::InvalidState) } else { Ok(()) }
}
