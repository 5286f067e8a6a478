//! A queue pair with a fault: requests are altered on their way, lost, or completed without being
//! done. Any thread.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;
use std::time::Duration;

use vp_api::*;

use crate::faults::Fault;
use crate::seed::{Seed, lock};
use crate::srq::NOTHING;

pub(crate) struct Qp {
    inner: Arc<dyn vp_api::Qp>,
    seed: Arc<Seed>,
    init: QpInit,
    /// The thread that posted first.
    first: OnceLock<ThreadId>,
    /// A send that has completed, and is not sent before the next one.
    held: Mutex<Option<Vec<Sge>>>,
    /// Slots that are never free again.
    stay: AtomicU32,
    /// The most requests that a query found lost.
    lost: AtomicU32,
}

/// Outcome of a request.
enum Fate {
    Posted,
    /// Completed, and not done.
    Said,
    /// Completed, and done when the next one is posted.
    Held,
    Lost,
}

impl Qp {
    pub(crate) fn new(inner: Arc<dyn vp_api::Qp>, seed: Arc<Seed>, init: QpInit) -> Self {
        let (first, held) = (OnceLock::new(), Mutex::default());
        let (stay, lost) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { inner, seed, init, first, held, stay, lost }
    }

    fn has(&self, fault: Fault) -> bool {
        self.seed.has(fault)
    }

    fn in_error(&self) -> bool {
        self.inner.query().is_ok_and(|info| info.state == QpState::Error)
    }

    /// The STag of an index, whatever its key.
    fn latest(&self, stag: Stag) -> Stag {
        lock(&self.seed.stags).get(&stag.index()).copied().unwrap_or(stag)
    }

    fn alter(&self, wr_id: u64, op: &mut SendOp, flags: &mut SendFlags) -> Fate {
        match op {
            SendOp::Send { .. } if self.has(Fault::DestroyTakesBack) => return Fate::Held,
            SendOp::Send { invalidate, solicited } => {
                if self.has(Fault::RemoteInvalidateLost) {
                    *invalidate = None;
                }
                *solicited &= !self.has(Fault::SolicitedLost);
            }
            SendOp::SendImmediate { .. } if self.has(Fault::SendImmediateAnyway) => {
                *op = SendOp::Send { solicited: false, invalidate: None };
            }
            SendOp::SendImmediate { data, .. } if self.has(Fault::SendImmediateCut) => {
                *data &= u32::MAX >> 1;
            }
            SendOp::Write { remote } => self.alter_remote(remote),
            SendOp::WriteImmediate { data, remote, .. } => {
                self.alter_remote(remote);
                if self.has(Fault::WriteImmediateCut) {
                    *data &= 0xffff_ffff;
                }
            }
            SendOp::Immediate { data, .. } if self.has(Fault::ImmediateCut) => {
                *data &= 0xffff_ffff;
            }
            SendOp::Read { invalidate_sink, remote } => {
                self.alter_remote(remote);
                *invalidate_sink &= !self.has(Fault::SinkStaysValid);
            }
            SendOp::Atomic { op, .. } => self.alter_atomic(op),
            SendOp::BindMw(bind) => return self.alter_bind(bind),
            SendOp::FastRegister(fast) if self.has(Fault::FastRightsForAll) => {
                fast.access |= Access::LOCAL | Access::REMOTE_READ;
            }
            SendOp::InvalidateLocal { .. } if self.has(Fault::InvalidateLocalLost) => {
                return Fate::Said;
            }
            _ => {}
        }
        match () {
            () if self.has(Fault::LocalFenceIgnored) => flags.remove(SendFlags::LOCAL_FENCE),
            () if self.has(Fault::ReadFenceIgnored) => flags.remove(SendFlags::READ_FENCE),
            () if self.has(Fault::AlwaysSignaled) => flags.insert(SendFlags::SIGNALED),
            () if self.has(Fault::UnsignaledFreeTooSoon)
                && !flags.contains(SendFlags::SIGNALED) =>
            {
                lock(&self.seed.unsignaled).insert((self.inner.id(), wr_id));
                flags.insert(SendFlags::SIGNALED);
            }
            () if self.has(Fault::UnsignaledUnflushed)
                && !flags.contains(SendFlags::SIGNALED)
                && self.in_error() =>
            {
                return Fate::Lost;
            }
            () if self.has(Fault::SendUnflushed) && self.in_error() => return Fate::Lost,
            () => {}
        }
        Fate::Posted
    }

    fn alter_remote(&self, remote: &mut Remote) {
        match () {
            () if self.has(Fault::KeyIgnored) => remote.stag = self.latest(remote.stag),
            () if self.has(Fault::WriteOffByFour) => remote.to &= !3,
            () => {}
        }
    }

    fn alter_atomic(&self, op: &mut AtomicOp) {
        match op {
            AtomicOp::FetchAdd { mask, .. } if self.has(Fault::AddMaskIgnored) => *mask = 0,
            AtomicOp::FetchAdd { add, .. } if self.has(Fault::AddIs32Bits) => *add &= 0xffff_ffff,
            AtomicOp::CmpSwap { swap_mask, .. } if self.has(Fault::SwapMaskIgnored) => {
                *swap_mask = u64::MAX;
            }
            AtomicOp::CmpSwap { compare_mask, .. } if self.has(Fault::CompareMaskIgnored) => {
                *compare_mask = u64::MAX;
            }
            AtomicOp::CmpSwap { compare_mask, .. } if self.has(Fault::SwapsAlways) => {
                *compare_mask = 0;
            }
            AtomicOp::CmpSwap { compare_mask, swap_mask, .. } if self.has(Fault::SwapIs32Bits) => {
                *compare_mask &= 0xffff_ffff;
                *swap_mask &= 0xffff_ffff;
            }
            _ => {}
        }
    }

    fn alter_bind(&self, bind: &mut BindMw) -> Fate {
        match () {
            () if self.has(Fault::UnbindIgnored) && bind.len == 0 => return Fate::Said,
            () if self.has(Fault::WindowHasAllRights) => {
                bind.access |= Access::REMOTE_WRITE | Access::REMOTE_READ;
            }
            () if self.has(Fault::WindowTooLong) && bind.len > 0 => bind.len += 1,
            () if self.has(Fault::WindowBeginsEarly) && bind.len > 0 => {
                bind.to -= 8;
                bind.len += 8;
            }
            () if self.has(Fault::WindowKeyIsZero) => bind.key = 0,
            () if self.has(Fault::BasedWindowsByAddress) => {
                bind.to = self.seed.by_address(bind.region, bind.to);
            }
            () => {}
        }
        Fate::Posted
    }

    /// What a fault makes of a list of elements.
    fn shape(&self, sgl: &[Sge], send: bool) -> Vec<Sge> {
        let mut list = sgl.to_vec();
        match () {
            () if self.has(Fault::GatherBackwards) && send => list.reverse(),
            () if self.has(Fault::ScatterBackwards) && !send => list.reverse(),
            () if self.has(Fault::GatherFirstOnly) && send => list.truncate(1),
            () if self.has(Fault::ScatterFirstOnly) && !send => list.truncate(1),
            () if self.has(Fault::GatherEndsAtEmpty) && send => {
                let end = list.iter().position(|sge| sge.len == 0).unwrap_or(list.len());
                list.truncate(end);
            }
            () if self.has(Fault::ScatterEndsAtEmpty) && !send => {
                let end = list.iter().position(|sge| sge.len == 0).unwrap_or(list.len());
                list.truncate(end);
            }
            () if self.has(Fault::GatherOnePerRegion) && send => {
                list.dedup_by_key(|sge| sge.stag);
            }
            () if self.has(Fault::BasedElementsByAddress) => {
                list.iter_mut().for_each(|sge| sge.to = self.seed.by_address(sge.stag, sge.to));
            }
            () if self.has(Fault::LocalKeyIgnored) => {
                list.iter_mut().for_each(|sge| sge.stag = self.latest(sge.stag));
            }
            () => {}
        }
        list
    }

    fn send_one(&self, wr: &SendWr<'_>) -> Result<(), PostFailure> {
        let mut wr = wr.clone();
        let shaped;
        if let Data::Sgl(sgl) = wr.data {
            shaped = self.shape(sgl, !matches!(wr.op, SendOp::Read { .. } | SendOp::Atomic { .. }));
            wr.data = Data::Sgl(&shaped);
        }
        let elsewhere;
        if let (SendOp::Atomic { .. }, Data::Sgl(&[sge])) = (&wr.op, wr.data)
            && self.has(Fault::OriginalElsewhere)
        {
            elsewhere = [Sge { to: sge.to & !15, ..sge }];
            wr.data = Data::Sgl(&elsewhere);
        }
        if self.has(Fault::UnsignaledStays) && !wr.flags.contains(SendFlags::SIGNALED) {
            let stay = self.stay.fetch_add(1, Ordering::AcqRel);
            if stay >= self.init.send_depth {
                return Err(PostFailure { posted: 0, status: VpStatus::TooManyWrs });
            }
        }
        if self.has(Fault::BeyondOrdRefused)
            && matches!(wr.op, SendOp::Read { .. })
            && self.inner.query().is_ok_and(|of| of.sends_outstanding >= of.ord.into())
        {
            return Err(PostFailure { posted: 0, status: VpStatus::TooManyWrs });
        }
        if self.has(Fault::EmptyElementChecked)
            && let Data::Sgl(sgl) = wr.data
            && sgl.iter().any(|sge| lock(&self.seed.stags).get(&sge.stag.index()).is_none())
        {
            return Err(PostFailure { posted: 0, status: VpStatus::InvalidStag });
        }
        match self.alter(wr.wr_id, &mut wr.op, &mut wr.flags) {
            Fate::Posted => {
                let posted = self.post_again(|| self.inner.post_send(&[wr.clone()]));
                match posted {
                    Err(why)
                        if why.status == VpStatus::InvalidSgl
                            && self.has(Fault::FullBeforeWrongSend) =>
                    {
                        self.inner.post_send(&[SendWr { data: Data::Sgl(&[]), ..wr }]).and(Err(why))
                    }
                    posted => posted,
                }
            }
            Fate::Lost => Ok(()),
            fate @ (Fate::Said | Fate::Held) => {
                if let (Fate::Held, Data::Sgl(sgl)) = (fate, wr.data)
                    && let Some(earlier) = lock(&self.held).replace(sgl.to_vec())
                {
                    let (data, flags) = (Data::Sgl(&earlier[..]), SendFlags::empty());
                    self.inner.post_send(&[SendWr { data, flags, ..wr.clone() }])?;
                }
                let (wr_id, qp, opcode) = (wr.wr_id, self.inner.id(), wr.op.completion());
                if let Some(cq) = self.seed.cq(self.init.send_cq) {
                    cq.add(WorkCompletion { wr_id, qp, opcode, ..WorkCompletion::BLANK });
                }
                Ok(())
            }
        }
    }

    fn recv_one(&self, wr: &RecvWr<'_>) -> Result<(), PostFailure> {
        if self.has(Fault::RecvUnflushed) && self.in_error() {
            return Ok(());
        }
        let sgl = self.shape(wr.sgl, false);
        let posted = self.post_again(|| self.inner.post_recv(&[RecvWr { sgl: &sgl, ..*wr }]));
        match posted {
            Err(why)
                if why.status == VpStatus::InvalidSgl && self.has(Fault::FullBeforeWrongRecv) =>
            {
                self.inner.post_recv(&[NOTHING]).and(Err(why))
            }
            Err(_)
                if self.has(Fault::OverrunFreesSlots)
                    && self.seed.overran.load(Ordering::Acquire) =>
            {
                Ok(())
            }
            posted => posted,
        }
    }

    /// Posts, with a fault as soon as what is there completed, polled or not.
    fn post_again(&self, post: impl Fn() -> Result<(), PostFailure>) -> Result<(), PostFailure> {
        match self.has(Fault::SlotFreeTooSoon) || self.has(Fault::UnsignaledFreeTooSoon) {
            true => self.seed.post_again([self.init.send_cq, self.init.recv_cq].into_iter(), post),
            false => post(),
        }
    }

    /// Posts one by one, and says how far it came, or something else.
    fn list<T>(
        &self,
        list: &[T],
        one: impl Fn(&T) -> Result<(), PostFailure>,
    ) -> Result<(), PostFailure> {
        let me = std::thread::current().id();
        let first = *self.first.get_or_init(|| me) == me;
        let mut result = Ok(());
        for (posted, wr) in list.iter().enumerate() {
            if !first && self.has(Fault::PostsOfOthersLost) {
                continue;
            }
            let Err(why) = one(wr) else { continue };
            let posted = match self.has(Fault::PostedUnsaid) {
                true => 0,
                false => posted,
            };
            if why.status == VpStatus::InvalidHandle && self.has(Fault::DestroyedQpTakesPosts) {
                continue;
            }
            let status = match why.status {
                VpStatus::InvalidSgl if self.has(Fault::SglIsModifier) => VpStatus::InvalidModifier,
                VpStatus::TooManyWrs if self.has(Fault::FullIsResources) => {
                    VpStatus::InsufficientResources
                }
                VpStatus::InvalidWr if self.has(Fault::WrIsModifier) => VpStatus::InvalidModifier,
                status => status,
            };
            result = result.and(Err(PostFailure { posted, status }));
            if !self.has(Fault::ListGoesOn) {
                break;
            }
        }
        result
    }

    fn change(&self, change: &mut QpChange) -> Option<VpResult<()>> {
        match change {
            QpChange::Rts(stream) => {
                match () {
                    () if self.has(Fault::RefusedSocketKept) => {
                        std::mem::forget(stream.socket.try_clone());
                    }
                    () if self.has(Fault::ReceivedLost) => stream.received.clear(),
                    () if self.has(Fault::SilentPeerHoldsClose) => {
                        stream.params.close_timeout = Duration::from_secs(3600);
                    }
                    () if self.has(Fault::LastMessageLost) => stream.last_message.clear(),
                    () => {}
                }
                None
            }
            QpChange::Closing if self.has(Fault::CloseIsAbrupt) => {
                *change = QpChange::Error;
                None
            }
            QpChange::Drain if self.has(Fault::DrainIsClose) => {
                *change = QpChange::Closing;
                None
            }
            QpChange::Drain if self.has(Fault::DrainTakesPosts) => Some(Ok(())),
            QpChange::Allow(_)
                if self.has(Fault::AllowStays) || self.has(Fault::AllowUnoffered) =>
            {
                Some(Ok(()))
            }
            QpChange::Allow(rights) if self.has(Fault::AllowNeverMore) && !rights.is_empty() => {
                Some(Ok(()))
            }
            QpChange::Discard
                if self.has(Fault::DiscardKeeps) || self.has(Fault::DiscardUnoffered) =>
            {
                Some(Ok(()))
            }
            QpChange::Idle if self.has(Fault::IdleFreesAll) => {
                if let Some(cq) = self.seed.cq(self.init.send_cq) {
                    cq.drain();
                }
                None
            }
            QpChange::Terminate if self.has(Fault::TerminateIsReset) => {
                *change = QpChange::Error;
                None
            }
            QpChange::Error if self.has(Fault::ErrorIsLost) => Some(Ok(())),
            QpChange::Error if self.has(Fault::ErrorOnce) && self.in_error() => {
                Some(Err(VpError::new(VpStatus::InvalidState, "seeded")))
            }
            QpChange::Idle if self.has(Fault::IdleFromRts) && !self.in_error() => Some(Ok(())),
            QpChange::Idle if self.has(Fault::NeverIdleAgain) => {
                Some(Err(VpError::new(VpStatus::InvalidState, "seeded")))
            }
            QpChange::Limits { .. } if self.has(Fault::LimitsIgnored) => Some(Ok(())),
            QpChange::Limits { ord: Some(_), .. }
                if self.has(Fault::OrdStaysInRts)
                    && self.inner.query().ok()?.state == QpState::Rts =>
            {
                Some(Err(VpError::new(VpStatus::CannotChange, "seeded")))
            }
            QpChange::Limits { ord, ird, send_depth, recv_depth, .. }
                if self.has(Fault::HalfAChange)
                    && (send_depth.is_some() || recv_depth.is_some()) =>
            {
                let (ord, ird) = (ord.take(), ird.take());
                let first = QpChange::Limits {
                    ord,
                    ird,
                    send_depth: None,
                    recv_depth: None,
                    recv_limit: None,
                };
                self.inner.modify(first).err().map(Err)
            }
            _ => None,
        }
    }
}

impl vp_api::Qp for Qp {
    fn id(&self) -> QpId {
        self.inner.id()
    }

    fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        self.list(wrs, |wr| self.send_one(wr))
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        if self.init.srq.is_some() && self.has(Fault::SrqQpTakesReceives) {
            return Ok(());
        }
        if self.init.unready != Unready::Terminate && self.has(Fault::HoldReversed) {
            let wrs: Vec<RecvWr<'_>> = wrs.iter().rev().copied().collect();
            return self.inner.post_recv(&wrs);
        }
        self.list(wrs, |wr| self.recv_one(wr))
    }

    fn modify(&self, change: QpChange) -> VpResult<()> {
        let mut change = change;
        match self.change(&mut change) {
            Some(result) => result,
            None => self.seed.refusal(self.inner.modify(change)),
        }
    }

    fn query(&self) -> VpResult<QpInfo> {
        let mut info = self.inner.query()?;
        match () {
            () if self.has(Fault::OutstandingUnsaid) => {
                (info.sends_outstanding, info.recvs_outstanding) = (0, 0);
            }
            () if self.has(Fault::SendsOutstandingUnsaid) => info.sends_outstanding = 0,
            () if self.has(Fault::SendsLostUnsaid) => info.sends_lost = 0,
            () if self.has(Fault::RecvsLostUnsaid) => info.recvs_lost = 0,
            () if self.has(Fault::LostOfAllStreams) => {
                let before = self.lost.fetch_max(info.sends_lost, Ordering::Relaxed);
                info.sends_lost = info.sends_lost.max(before);
            }
            () if self.has(Fault::LostStaysInIdle) => {
                let before = self.lost.fetch_max(info.recvs_lost, Ordering::Relaxed);
                info.recvs_lost = info.recvs_lost.max(before);
            }
            () if self.has(Fault::StateStaysRts) && info.state == QpState::Error => {
                info.state = QpState::Rts;
            }
            () if self.has(Fault::DepthUnbounded) => {
                info.send_depth = self.init.send_depth;
                info.recv_depth = self.init.recv_depth;
            }
            () if self.has(Fault::TerminateUnkept) => info.terminate = None,
            () if self.has(Fault::AddressesUnsaid) => (info.local, info.remote) = (None, None),
            () if self.has(Fault::AddressesSwapped) => {
                // Of one end: both alike would agree.
                if info.state == QpState::Rts && self.seed.next() == 0 {
                    std::mem::swap(&mut info.local, &mut info.remote);
                }
            }
            () => {}
        }
        Ok(info)
    }
}
