//! The immutable part of a QP, and its queues.
//!
//! Any thread may read the context; the queues are under the QP's lock. When the peer dies the protocol
//! core has both queues flushed, through the host in `host.rs`.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock, Weak};

use iwarp_proto::{Slot, TaggedUse};
use vp_api::{Access, Cq, PdId, QpId, Sge, Stag, VpResult, WcStatus, WorkCompletion};
use vp_soft::events::EventSink;
use vp_soft::memory::AccessError;
use vp_soft::memory::stag_table::{Caller, Need};
use vp_soft::memory::stag_table::{StagTable, Use};
use vp_soft::queue::outstanding::OutstandingReceives;
use vp_soft::queue::srq::SoftSrq;
use vp_soft::queue::untaken::Untaken;
use vp_soft::queue::wq::{Payload, RecvRing, RecvWqe, SendRing, pieces};

use crate::engine::Engine;
use crate::qp::SoftQp;
use crate::queue::cq::{DeferredActions, SoftCq};

/// The immutable part of a QP.
pub(crate) struct Context {
    pub(crate) id: QpId,
    /// The QP itself.
    pub(crate) me: Weak<SoftQp>,
    /// Nanoseconds for which a message waits for a receive; `None`: it ends the stream.
    pub(crate) hold: Option<u64>,
    /// The identity with which the QP accesses memory for itself.
    pub(crate) caller: Caller,
    /// The same for receive buffers: an SRQ has its own PD. // [VERBS-26]
    pub(crate) receiver: Caller,
    pub(crate) table: Arc<StagTable>,
    pub(crate) windows: Arc<AtomicU32>,
    pub(crate) send_cq: Arc<SoftCq>,
    pub(crate) recv_cq: Arc<SoftCq>,
    pub(crate) srq: Option<Arc<SoftSrq>>,
    /// Counted from the first limit on: receives whose completions the consumer has not polled.
    pub(crate) outstanding: OnceLock<Arc<OutstandingReceives>>,
    pub(crate) events: Arc<EventSink>,
    pub(crate) engine: Arc<Engine>,
}

impl Context {
    /// A message took a receive; true if the limit event is due.
    pub(crate) fn hold_taken(&self) -> bool {
        self.outstanding.get().is_some_and(|receives| receives.take())
    }

    /// This many receives were flushed.
    pub(crate) fn hold_flushed(&self, receives: u32) {
        if let Some(outstanding) = self.outstanding.get() {
            outstanding.flush(receives);
        }
    }

    /// The completions of all receives were removed.
    pub(crate) fn hold_discarded(&self) {
        if let Some(outstanding) = self.outstanding.get() {
            outstanding.clear();
        }
    }

    /// Arms the receive limit; true if the event is due already. Counting begins with the first
    /// limit.
    pub(crate) fn arm_recv_limit(&self, limit: u32) -> bool {
        if limit == 0 && self.outstanding.get().is_none() {
            return false;
        }
        let begin = || {
            let outstanding = Arc::<OutstandingReceives>::default();
            self.recv_cq.count(self.id, outstanding.clone());
            outstanding
        };
        self.outstanding.get_or_init(begin).arm(limit)
    }

    /// The SRQ, if messages of this QP may wait there for receives.
    pub(crate) fn waits_at(&self) -> Option<&Arc<SoftSrq>> {
        self.srq.as_ref().filter(|_| self.hold.is_some())
    }

    /// Has the SRQ reserve room for this QP among those whose messages wait there.
    pub(crate) fn reserve_waiter(&self) -> VpResult<()> {
        self.waits_at().map_or(Ok(()), |srq| srq.reserve_waiter())
    }

    /// Gives that room back.
    pub(crate) fn release_waiter(&self) {
        if let Some(srq) = self.waits_at() {
            srq.release_waiter();
        }
    }

    /// Posts of this QP are deferred: its CQs transmit them when the consumer finds them empty, waits or
    /// arms.
    pub(crate) fn defer(&self) {
        self.send_cq.defer(&self.me);
        if !Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            self.recv_cq.defer(&self.me);
        }
    }

    /// The identity of this QP in PD `pd`.
    pub(crate) fn caller(id: QpId, pd: PdId, allow: Access, privileged: bool) -> Caller {
        Caller { pd, qp: id, allow, privileged }
    }
}

/// The tagged segment that was checked last, to be checked again.
#[derive(Clone, Copy)]
pub(crate) struct Tagged {
    pub(crate) need: Need,
    pub(crate) stag: Stag,
    pub(crate) to: u64,
}

impl Tagged {
    pub(crate) fn new(use_: TaggedUse, stag: iwarp_proto::Stag, to: u64) -> Self {
        let need = match use_ {
            TaggedUse::Write => Need::RemoteWrite,
            TaggedUse::ReadResponse => Need::ReadSink,
        };
        Self { need, stag: Stag(stag.0), to }
    }

    /// `len` octets at `offset`, checked anew: the STag may have been revoked. // [SEC-05]
    pub(crate) fn resolve<'a>(
        &self,
        context: &'a Context,
        peer: &Caller,
        offset: u32,
        len: u32,
    ) -> Result<Use<'a>, AccessError> {
        let to = self.to.checked_add(u64::from(offset)).ok_or(AccessError::Wrap)?;
        context.table.resolve(self.stag, self.need, peer, to, len)
    }
}

/// The queues of a QP, and where inbound segments are placed.
pub(crate) struct Queues {
    pub(crate) sends: SendRing,
    pub(crate) untaken_sends: Untaken,
    /// Not used with an SRQ.
    pub(crate) receives: RecvRing,
    /// Not used with an SRQ, which counts by itself.
    pub(crate) untaken_receives: Untaken,
    /// The receive that inbound segments fill, if `receiving`.
    pub(crate) current: RecvWqe,
    pub(crate) receiving: bool,
    /// Why the current receive could not be filled, if it could not.
    pub(crate) receive_fault: Option<iwarp_proto::AccessError>,
    pub(crate) tagged: Option<Tagged>,
    /// The identity with which the peer accesses memory: that of the QP, with the rights that peers may use.
    pub(crate) peer: Caller,
    /// The QP was destroyed: it adds no completions any more. // [VERBS-20]
    pub(crate) silent: bool,
    pub(crate) deferred: Deferred,
    pub(crate) lost: Lost,
    pub(crate) direct: Direct,
}

/// A completion of a receive that goes to the poller of the CQ without being queued there.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) enum Direct {
    /// No poller takes one now.
    #[default]
    Closed,
    /// The thread inside polls the CQ of the receives, and has room for one.
    Open,
    Passed(WorkCompletion),
}

impl Direct {
    /// Closes it, and moves the completion, if there is one, to `room`.
    #[inline]
    pub(crate) fn pass_to(&mut self, room: &mut WorkCompletion) -> bool {
        let passed = match self {
            Self::Passed(completion) => {
                *room = *completion;
                true
            }
            _ => false,
        };
        *self = Self::Closed;
        passed
    }
}

/// Work requests of the last stream that completed with an error or were flushed.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Lost {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
}

/// What must be done once the QP is unlocked.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Deferred {
    pub(crate) send_cq: DeferredActions,
    pub(crate) recv_cq: DeferredActions,
    pub(crate) srq_limit: bool,
    pub(crate) recv_limit: bool,
}

impl Deferred {
    /// There is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        let cqs_done = self.send_cq.is_empty() && self.recv_cq.is_empty();
        cqs_done && !self.srq_limit && !self.recv_limit
    }
}

impl Queues {
    /// A request of the send queue completes with a completion.
    #[inline]
    pub(crate) fn push_send(&mut self, context: &Context, completion: &WorkCompletion) {
        self.lost.sends += u32::from(completion.status != WcStatus::Success);
        if !self.silent {
            let place = context.send_cq.push(completion, &mut self.deferred.send_cq);
            self.untaken_sends.add(place);
        }
    }

    /// A receive completes.
    #[inline(always)] // most of a short Send's way
    pub(crate) fn push_receive(&mut self, context: &Context, completion: &WorkCompletion) {
        self.lost.receives += u32::from(completion.status != WcStatus::Success);
        if let Some(srq) = &context.srq {
            return self.push_shared(context, srq, completion);
        }
        if let Direct::Open = self.direct
            && completion.status == WcStatus::Success
            && !self.silent
            && context.recv_cq.passes_on()
        {
            // It occupies no slot: the consumer gets it now.
            self.direct = Direct::Passed(*completion);
            return;
        }
        let place = match self.silent {
            true => None,
            false => context.recv_cq.push(completion, &mut self.deferred.recv_cq),
        };
        self.untaken_receives.add_signalled(place);
    }

    #[inline(never)]
    fn push_shared(&mut self, context: &Context, srq: &SoftSrq, completion: &WorkCompletion) {
        let deferred = &mut self.deferred.recv_cq;
        let push = || if self.silent { None } else { context.recv_cq.push(completion, deferred) };
        srq.complete(context.recv_cq.id(), push);
    }

    /// Resolves a source of the peer's RDMA Read.
    pub(crate) fn read_source<'a>(
        &self,
        context: &'a Context,
        stag: iwarp_proto::Stag,
        to: u64,
        len: u32,
    ) -> Result<Use<'a>, AccessError> {
        context.table.resolve(Stag(stag.0), Need::RemoteRead, &self.peer, to, len)
    }

    /// Slots of the receive queue that are occupied.
    #[inline]
    pub(crate) fn receive_slots(&self) -> u32 {
        self.receives.posted() + u32::from(self.receiving) + self.untaken_receives.slots()
    }

    /// The WQE's scatter/gather list; empty if the payload is inline.
    pub(crate) fn sgl(&self, slot: Slot) -> &[Sge] {
        match self.sends.payload(slot) {
            Payload::Sgl(sgl) => sgl,
            Payload::Inline(_) => &[],
        }
    }

    /// Calls `f` for each piece of `len` octets at `offset` of a send's buffers.
    pub(crate) fn each_source<'a>(
        &self,
        context: &'a Context,
        slot: Slot,
        offset: u32,
        len: u32,
        mut f: impl FnMut(Use<'a>) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        for piece in pieces(self.sgl(slot), offset, len) {
            let (need, caller) = (Need::LocalRead, &context.caller);
            f(context.table.resolve(piece.stag, need, caller, piece.to, piece.len)?)?;
        }
        Ok(())
    }

    /// Calls `f` for each piece of `len` octets at `offset` of the current receive.
    pub(crate) fn each_sink<'a>(
        &self,
        context: &'a Context,
        offset: u32,
        len: u32,
        mut f: impl FnMut(Use<'a>) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        for piece in pieces(self.current.sgl(), offset, len) {
            let (need, caller) = (Need::LocalWrite, &context.receiver);
            f(context.table.resolve(piece.stag, need, caller, piece.to, piece.len)?)?;
        }
        Ok(())
    }
}
