//! Queue pairs: what is behind an `ibv_qp`.
//!
//! A queue pair begins in RESET and is the provider's in Idle until its stream comes: by a connection
//! identifier, or by the rendezvous. Whichever brings it is its [`Owner`]. The state that programs see is kept
//! here, changed by one caller at a time and by the thread that brings the stream's end. Once the stream is
//! over everything posted completes as flushed, until the queue pair is reset and used again. Posting and
//! polling take none of the locks here.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use ibv_sys::*;
use kal_os::lock;
use ual_cm::{ConnState, Connectee, Disconnect, RequestId};
use vp_api::{
    AsyncEvent, PostFailure, QpChange, QpInit, SendWr, VpStatus, WcStatus, WorkCompletion,
};

use crate::acks::Acks;
use crate::adapter::Adapter;
use crate::atomics::Atomics;
use crate::caps;
use crate::directory::{Listener, QueuePair};
use crate::errno::{EBUSY, EINVAL, EOPNOTSUPP, Errno};
use crate::events::Source;
use crate::gid;
use crate::late;
use crate::object::Mirror;
use crate::qp_state;
use crate::rendezvous::{Meeting, Name, Parked, Peer, Slot, Sought, to_itself};
use crate::verbs::context::{Context, PORT};
use crate::verbs::cq::Cq;
use crate::verbs::pd::Pd;
use crate::verbs::srq::Srq;
use crate::wc;
use crate::wr_list::WrList;

/// The LID of the port (there is no subnet manager).
const LID: u16 = 0;
/// A stream that was reset is over so soon.
const SETTLE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(1);

/// Who brings a queue pair its stream.
pub trait Owner: Connectee {
    /// The queue pair goes: calls `destroy` at a time when it is told of nothing
    /// ([`ual_cm::Connection::close`]).
    ///
    /// # Errors
    /// Those of `destroy`, and then nothing has changed.
    fn close(&self, destroy: &mut dyn FnMut() -> Result<(), Errno>) -> Result<(), Errno>;
}

/// How to make one.
pub struct Init {
    /// Its protection domain.
    pub pd: Arc<Pd>,
    /// Completions of sends.
    pub send_cq: Arc<Cq>,
    /// Completions of receives.
    pub recv_cq: Arc<Cq>,
    /// Receives come from here.
    pub srq: Option<Arc<Srq>>,
    /// Sizes, as the application asked for them.
    pub cap: ibv_qp_cap,
    /// `IBV_QPT_…`
    pub kind: u32,
    /// Every send completes with a completion.
    pub signal_all: bool,
    /// Peers may find it by GID and number; else its stream comes by a connection identifier.
    pub meets: bool,
}

/// See the module.
pub struct Qp {
    init: Init,
    vp: Arc<dyn vp_api::Qp>,
    number: u32,
    slot: Option<Slot>,
    meet: Mutex<Meet>,
    state: AtomicU32,
    mirror: Mirror,
    /// One change at a time.
    changing: Mutex<()>,
    attr: Mutex<ibv_qp_attr>,
    owner: Mutex<Option<Weak<dyn Owner>>>,
    source: Source,
    /// The first send that a lost stream took with it was told so.
    blamed: AtomicBool,
    /// The peer did not come, or does not answer.
    lost: AtomicBool,
    /// Receives that the end of a peer flushed, before the application hears of that.
    withheld: Mutex<Vec<ibv_wc>>,
    atomics: Atomics,
    wr_list: WrList,
}

/// The rendezvous of a queue pair.
#[derive(Default)]
struct Meet {
    /// Since RTR.
    meeting: Option<Arc<Meeting>>,
    early: Parked,
}

impl Qp {
    /// Makes one, in RESET.
    ///
    /// # Errors
    /// EINVAL: sizes beyond the device's, or objects of different contexts. EOPNOTSUPP: a type that is not
    /// served. ENOMEM.
    pub fn create(init: Init) -> Result<Arc<Self>, Errno> {
        if !matches!(init.kind, IBV_QPT_RC | IBV_QPT_UC) {
            return Err(EOPNOTSUPP);
        }
        let adapter = init.pd.adapter()?.clone();
        let own = |context: &Arc<Context>| Arc::ptr_eq(context, &init.pd.context);
        let of_srq = init.srq.as_ref().is_none_or(|srq| own(srq.context()));
        if !(own(init.send_cq.context()) && own(init.recv_cq.context()) && of_srq) {
            return Err(EINVAL);
        }
        let slot = init.meets.then(|| place(&adapter)).transpose()?;
        let vp = adapter.rnic().create_qp(&provider_init(&init, &adapter))?;
        let id = vp.id();
        let number = slot.as_ref().map_or(id.0 & 0x00ff_ffff, Slot::number);
        let qp = Arc::new(Self {
            init,
            vp,
            number,
            slot,
            meet: Mutex::default(),
            state: AtomicU32::new(IBV_QPS_RESET),
            mirror: Mirror::default(),
            changing: Mutex::default(),
            attr: Mutex::default(),
            owner: Mutex::default(),
            source: Source::default(),
            blamed: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            withheld: Mutex::default(),
            atomics: Atomics::default(),
            wr_list: WrList::default(),
        });
        qp.init.pd.enter();
        adapter.numbers().set(id, number);
        if let Some(slot) = &qp.slot {
            let sought: Weak<Self> = Arc::downgrade(&qp);
            slot.settle(sought);
        }
        let listener: Weak<Self> = Arc::downgrade(&qp);
        adapter.directory().add_qp(id, listener);
        Ok(qp)
    }

    /// The provider's.
    #[inline]
    pub fn vp(&self) -> &Arc<dyn vp_api::Qp> {
        &self.vp
    }

    /// What it was made of.
    #[inline]
    pub fn init(&self) -> &Init {
        &self.init
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The adapter that it is of.
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
        if !wrs.iter().any(Atomics::counts) {
            return self.vp.post_send(wrs);
        }
        self.atomics.post(wrs, |wrs| self.vp.post_send(wrs))
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

    /// Who brings the stream from now on, and is told of it.
    ///
    /// # Errors
    /// EINVAL: somebody else does.
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

    /// `IBV_QPS_…`, as programs see it.
    #[inline]
    pub fn state(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// The state changes: the owner's stream came, or the application asked for it.
    pub fn set_state(&self, state: u32) {
        self.state.store(state, Ordering::Release);
        self.mirror.set(state);
        if state == IBV_QPS_ERR {
            self.release();
        }
    }

    /// Its stream comes, or came, by the rendezvous.
    fn is_met(&self) -> bool {
        lock(&self.meet).meeting.is_some()
    }

    /// Between ends that know each other by number only, nobody hears that the other went before it sends
    /// something: receives stay posted until then.
    fn unless_withheld(&self, flushed: ibv_wc) -> Option<ibv_wc> {
        let is_met = self.is_met();
        let mut withheld = lock(&self.withheld);
        let fits = withheld.len() < self.init.cap.max_recv_wr.max(1) as usize;
        if is_met && fits && self.state() != IBV_QPS_ERR {
            withheld.push(flushed);
            return None;
        }
        Some(flushed)
    }

    /// The application is told of what was withheld.
    fn release(&self) {
        let withheld = std::mem::take(&mut *lock(&self.withheld));
        if !withheld.is_empty() {
            self.init.recv_cq.add(&withheld);
        }
    }

    /// The stream is over, or did not come about: what is posted from now on completes as flushed.
    pub fn ended(&self) {
        self.set_state(IBV_QPS_ERR);
        // Refused where the provider is there already.
        let _ = self.vp.modify(QpChange::Error);
        if self.init.srq.is_some() {
            self.push(IBV_EVENT_QP_LAST_WQE_REACHED);
        }
    }

    fn push(&self, kind: u32) {
        self.source.tell(self.init.pd.context.events(), kind);
    }

    /// ibv_modify_qp.
    ///
    /// # Errors
    /// EINVAL: the change, its attributes, or their values. EBUSY: a reset while the stream is still ending.
    pub fn modify(self: &Arc<Self>, attr: &ibv_qp_attr, mask: i32) -> Result<(), Errno> {
        self.adapter()?;
        let _one = lock(&self.changing);
        let (owner, now) = (self.owner(), self.state());
        let by_id = owner.is_some() && lock(&self.meet).meeting.is_none();
        let to = qp_state::check(self.init.kind, by_id, now, attr, mask)?;
        self.check_values(attr, mask)?;
        match to {
            IBV_QPS_ERR if mask & IBV_QP_STATE != 0 => self.fail(owner)?,
            IBV_QPS_RESET if mask & IBV_QP_STATE != 0 => self.reset(owner)?,
            _ => {}
        }
        merge(&mut lock(&self.attr), attr, mask);
        self.set_state(to);
        if (now, to) == (IBV_QPS_INIT, IBV_QPS_RTR) && !by_id {
            self.meet().inspect_err(|_| {
                self.part();
                self.set_state(now);
            })?;
        }
        Ok(())
    }

    fn check_values(&self, attr: &ibv_qp_attr, mask: i32) -> Result<(), Errno> {
        let attrs = self.adapter()?.attrs();
        let wrong = |flag: i32, right: bool| mask & flag != 0 && !right;
        let fits = |reads: u8, limit: u16| i32::from(reads) <= caps::max_reads(limit);
        if wrong(IBV_QP_PORT, attr.port_num == PORT)
            || wrong(IBV_QP_PKEY_INDEX, attr.pkey_index == 0)
            || wrong(IBV_QP_PATH_MTU, (1..=5).contains(&attr.path_mtu))
            || wrong(IBV_QP_MAX_QP_RD_ATOMIC, fits(attr.max_rd_atomic, attrs.max_ord))
            || wrong(IBV_QP_MAX_DEST_RD_ATOMIC, fits(attr.max_dest_rd_atomic, attrs.max_ird))
        {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Looks for the peer that the attributes name.
    fn meet(self: &Arc<Self>) -> Result<(), Errno> {
        let adapter = self.adapter()?;
        let meeting = Meeting::new(self, adapter, self.peer()?);
        let owner: Weak<Meeting> = Arc::downgrade(&meeting);
        self.attach(owner)?;
        lock(&self.meet).meeting = Some(meeting.clone());
        if meeting.is_with_itself() {
            let stream = to_itself::stream(meeting.reads())?;
            return Ok(self.vp.modify(QpChange::Rts(Box::new(stream)))?);
        }
        if meeting.connects() {
            return meeting.connect(adapter);
        }
        meeting.wait();
        self.look_for_early(&meeting)
    }

    fn peer(&self) -> Result<Peer, Errno> {
        let gids = self.adapter()?.device().gids()?;
        let known = *lock(&self.attr);
        let path = known.ah_attr;
        let address = match path.is_global {
            // Without a GID only this machine can be meant, by the LID of its port.
            0 if path.dlid == LID => gids.address(),
            0 => return Err(EINVAL),
            _ => gid::address_of(path.grh.dgid.raw),
        };
        if known.dest_qp_num > 0x00ff_ffff || self.slot.is_none() {
            return Err(EINVAL);
        }
        let reads = |init: u8| if self.init.kind == IBV_QPT_UC { 0 } else { u16::from(init) };
        let all = caps::max_reads(self.adapter()?.attrs().max_ord) as u8;
        Ok(Peer {
            own: Name { address: gids.address(), number: self.number },
            own_gid: gids.table()[1],
            peer: Name { address, number: known.dest_qp_num },
            ird: reads(known.max_dest_rd_atomic),
            // It is told with RTS; the peer's other limit counts.
            ord: reads(all),
        })
    }

    /// A peer that came before is accepted.
    pub(crate) fn look_for_early(&self, meeting: &Arc<Meeting>) -> Result<(), Errno> {
        let early = lock(&self.meet).early.take(meeting.peer());
        match early {
            // Else it has given up, and comes again.
            Some(request) => meeting.accept(self.adapter()?, request),
            None => Ok(()),
        }
    }

    /// The peer is gone; the application hears of it when it sends something.
    pub(crate) fn peer_left(&self) {
        // Refused where the provider is there already.
        let _ = self.vp.modify(QpChange::Error);
    }

    /// The peer did not come, or does not answer.
    pub(crate) fn lost_peer(&self) {
        self.lost.store(true, Ordering::Release);
        self.ended();
        self.push(IBV_EVENT_QP_FATAL);
    }

    /// How long a request is tried, as the attributes say: 4.096 us times two to the power of the time-out, for
    /// each try (InfiniBand Architecture Specification 1.4, section 9.7.6.1.3); 0 is for ever.
    pub(crate) fn retry_time(&self) -> Duration {
        let known = *lock(&self.attr);
        match known.timeout & 31 {
            0 => Duration::MAX,
            timeout => Duration::from_nanos(4096 << timeout) * (u32::from(known.retry_cnt) + 1),
        }
    }

    /// To ERR, by the application.
    fn fail(&self, owner: Option<Arc<dyn Owner>>) -> Result<(), Errno> {
        if let Some(owner) =
            owner.filter(|owner| owner.connection().state() == ConnState::Connected)
        {
            // Its end is told then.
            let party: Arc<dyn Connectee> = owner;
            self.adapter()?.cm().disconnect(&party, Disconnect::Abrupt)?;
        }
        // Refused where it ends by itself.
        let _ = self.vp.modify(QpChange::Error);
        Ok(())
    }

    /// To RESET: as new, with the same number.
    fn reset(&self, owner: Option<Arc<dyn Owner>>) -> Result<(), Errno> {
        if self.state() == IBV_QPS_RESET {
            return Ok(());
        }
        self.fail(owner.clone())?;
        let begin = Instant::now();
        while let Err(error) = self.try_reset(owner.as_deref()) {
            if begin.elapsed() >= SETTLE {
                return Err(error);
            }
            std::thread::sleep(LOOK);
        }
        self.blamed.store(false, Ordering::Release);
        self.lost.store(false, Ordering::Release);
        self.forget_completions();
        self.part();
        Ok(())
    }

    /// The rendezvous, if there was one, is over.
    fn part(&self) {
        if lock(&self.meet).meeting.take().is_some() {
            *lock(&self.owner) = None;
        }
    }

    fn try_reset(&self, owner: Option<&dyn Owner>) -> Result<(), Errno> {
        if let Some(owner) = owner
            && owner.connection().state() != ConnState::Unconnected
        {
            return self.adapter()?.cm().reset(owner).map(drop).map_err(|_| EBUSY);
        }
        match self.vp.modify(QpChange::Idle) {
            Ok(()) => Ok(()),
            Err(error) => Err(error.status.into()),
        }
    }

    /// Those that are kept here and have not been polled.
    fn forget_completions(&self) {
        lock(&self.withheld).clear();
        self.atomics.clear();
        self.init.send_cq.remove(self.number);
        self.init.recv_cq.remove(self.number);
    }

    /// ibv_query_qp.
    pub fn query(&self) -> (ibv_qp_attr, ibv_qp_cap) {
        let state = self.state();
        let cap = self.init.cap;
        let known = *lock(&self.attr);
        let attr = ibv_qp_attr {
            qp_state: state,
            cur_qp_state: state,
            cap,
            port_num: if known.port_num == 0 { PORT } else { known.port_num },
            ..known
        };
        (attr, cap)
    }

    /// ibv_destroy_qp: what completed with success before still arrives.
    ///
    /// # Errors
    /// EBUSY: memory windows are bound to it.
    pub fn destroy(&self) -> Result<(), Errno> {
        let adapter = self.adapter()?;
        let id = self.vp.id();
        let mut destroy = || Ok(adapter.rnic().destroy_qp(id)?);
        match self.owner() {
            Some(owner) => owner.close(&mut destroy)?,
            None => destroy()?,
        }
        self.init.pd.leave();
        adapter.cm().forget(id);
        adapter.directory().remove_qp(id);
        adapter.numbers().remove(id);
        self.forget_completions();
        self.source.end(self.init.pd.context.events());
        self.mirror.end();
        Ok(())
    }
}

impl Sought for Qp {
    fn sought(&self, request: RequestId, from: Name) -> bool {
        let meeting = {
            let mut meet = lock(&self.meet);
            match &meet.meeting {
                Some(meeting) => meeting.clone(),
                None => return meet.early.add(request, from),
            }
        };
        let Ok(adapter) = self.adapter() else { return false };
        let expected = !meeting.connects() && meeting.peer() == from;
        expected && meeting.accept(adapter, request).is_ok()
    }
}

fn place(adapter: &Adapter) -> Result<Slot, Errno> {
    adapter.points().place(adapter.cm(), adapter.device().gids()?.address())
}

fn provider_init(init: &Init, adapter: &Adapter) -> QpInit {
    let (cap, attrs) = (&init.cap, adapter.attrs());
    let mut out = QpInit::new(init.pd.id, init.send_cq.vp().id(), init.recv_cq.vp().id());
    out.srq = init.srq.as_ref().map(|srq| srq.vp().id());
    // Nothing at all may be asked for, and some is there then.
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

/// Takes over what was set.
fn merge(known: &mut ibv_qp_attr, new: &ibv_qp_attr, mask: i32) {
    macro_rules! take {
        ($($flag:ident: $($field:ident),+;)*) => {$(
            if mask & $flag != 0 {
                $(known.$field = new.$field;)+
            }
        )*};
    }
    take! {
        IBV_QP_ACCESS_FLAGS: qp_access_flags;
        IBV_QP_PKEY_INDEX: pkey_index;
        IBV_QP_PORT: port_num;
        IBV_QP_AV: ah_attr;
        IBV_QP_PATH_MTU: path_mtu;
        IBV_QP_TIMEOUT: timeout;
        IBV_QP_RETRY_CNT: retry_cnt;
        IBV_QP_RNR_RETRY: rnr_retry;
        IBV_QP_RQ_PSN: rq_psn;
        IBV_QP_SQ_PSN: sq_psn;
        IBV_QP_MAX_QP_RD_ATOMIC: max_rd_atomic;
        IBV_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        IBV_QP_MIN_RNR_TIMER: min_rnr_timer;
        IBV_QP_DEST_QPN: dest_qp_num;
        IBV_QP_ALT_PATH: alt_ah_attr, alt_port_num, alt_pkey_index, alt_timeout;
        IBV_QP_PATH_MIG_STATE: path_mig_state;
    }
}

impl Listener for Qp {
    fn hear(&self, event: AsyncEvent) {
        let kind = match event {
            // What the peer asked for was refused here (InfiniBand: a responder's errors).
            AsyncEvent::TerminateSent(terminate) => match wc::remote(terminate) {
                IBV_WC_REM_ACCESS_ERR => IBV_EVENT_QP_ACCESS_ERR,
                IBV_WC_REM_OP_ERR => IBV_EVENT_QP_FATAL,
                _ => IBV_EVENT_QP_REQ_ERR,
            },
            AsyncEvent::Catastrophic => IBV_EVENT_QP_FATAL,
            // Completions and the connection's events say it.
            _ => return,
        };
        self.set_state(IBV_QPS_ERR);
        self.push(kind);
    }
}

impl QueuePair for Qp {
    fn next_atomic(&self) -> u32 {
        self.atomics.next()
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn explain(&self, completion: &WorkCompletion, plain: ibv_wc) -> Option<ibv_wc> {
        if completion.status == WcStatus::Flushed && !wc::is_send(completion.opcode) {
            return self.unless_withheld(plain);
        }
        let info = self.vp.query().ok();
        if completion.status == WcStatus::RemoteTermination {
            self.blamed.store(true, Ordering::Release);
            let status = info.and_then(|info| info.terminate).map(wc::remote);
            return Some(ibv_wc { status: status.unwrap_or(plain.status), ..plain });
        }
        let by_peer = self.is_met() && self.state() != IBV_QPS_ERR;
        let lost = by_peer || self.lost.load(Ordering::Acquire);
        if self.blamed.swap(true, Ordering::AcqRel) {
            return Some(plain);
        }
        let status = info.and_then(|info| wc::first_lost(&info));
        let status = status.or(lost.then_some(IBV_WC_RETRY_EXC_ERR));
        if by_peer {
            self.lost_peer();
        }
        Some(ibv_wc { status: status.unwrap_or(plain.status), ..plain })
    }
}

/// Whether a post to the send queue is taken in this state; the provider keeps it until the stream is there.
/// In RTR, too, though InfiniBand has it otherwise: perftest's receiver gives credits from there on iWARP.
#[inline]
pub(crate) fn takes_sends(state: u32) -> Result<(), VpStatus> {
    match state {
        IBV_QPS_RESET | IBV_QPS_INIT => Err(VpStatus::InvalidState),
        _ => Ok(()),
    }
}

/// The same of the receive queue.
#[inline]
pub(crate) fn takes_receives(state: u32) -> Result<(), VpStatus> {
    if state == IBV_QPS_RESET { Err(VpStatus::InvalidState) } else { Ok(()) }
}
