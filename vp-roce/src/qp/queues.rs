//! The queues of a QP, its immutable part, and how requests complete.
//!
//! Owner: the QP, under its lock. A request occupies its slot until its completion was polled. Work that must wait
//! until the QP is unlocked is collected in [`Deferred`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use roce_proto::rc::Post;
use vp_api::{
    Access, AsyncEvent, Cq, QpId, QpInit, SendFlags, Sge, Terminate, VpResult, WcOpcode, WcStatus,
    WorkCompletion, room,
};
use vp_soft::memory::stag_table::{Caller, StagTable};
use vp_soft::queue::srq::SoftSrq;
use vp_soft::queue::untaken::Untaken;
use vp_soft::queue::wq::{Payload, RecvRing, RecvWqe, SendRing};

use crate::cq::{Pushed, RoceCq};

/// The immutable part of a QP.
pub(crate) struct Context {
    pub(crate) id: QpId,
    /// The identity with which the QP accesses memory on its own behalf.
    pub(crate) caller: Caller,
    /// The identity for receive buffers: an SRQ has its own PD. // [VERBS-26]
    pub(crate) receiver: Caller,
    pub(crate) table: Arc<StagTable>,
    pub(crate) windows: Arc<AtomicU32>,
    pub(crate) send_cq: Arc<RoceCq>,
    pub(crate) recv_cq: Arc<RoceCq>,
    pub(crate) srq: Option<Arc<SoftSrq>>,
}

/// A request that the protocol core does not have yet: a fence or a local operation waits for earlier requests.
#[derive(Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) slot: u32,
    pub(crate) flags: SendFlags,
    /// `None` for an operation on local memory.
    pub(crate) post: Option<Post>,
}

/// Work to do once the QP is unlocked.
#[derive(Default)]
pub(crate) struct Deferred {
    pub(crate) send_cq: Pushed,
    pub(crate) recv_cq: Pushed,
    pub(crate) srq_limit: bool,
    /// How the connection ended.
    pub(crate) event: Option<AsyncEvent>,
    /// The connection manager must disconnect.
    pub(crate) abandon: bool,
}

impl Deferred {
    pub(crate) fn is_empty(&self) -> bool {
        let pushed = self.send_cq.is_empty() && self.recv_cq.is_empty();
        pushed && !self.srq_limit && self.event.is_none() && !self.abandon
    }
}

/// The send and receive queues.
pub(crate) struct Queues {
    pub(crate) sends: SendRing,
    send_depth: u32,
    /// The slot of the next send request.
    next_slot: u32,
    /// Send requests that are not completed.
    pub(crate) outstanding: u32,
    /// Those that the protocol core does not have yet, in order.
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) untaken_sends: Untaken,
    /// Not used with an SRQ.
    pub(crate) receives: RecvRing,
    recv_depth: u32,
    /// Not used with an SRQ, which counts its own receives.
    pub(crate) untaken_receives: Untaken,
    /// The receive that the peer's message fills, valid if `receiving`.
    pub(crate) current: RecvWqe,
    pub(crate) receiving: bool,
    /// Why the current receive, or the memory of a send request, could not be used.
    pub(crate) fault: Option<WcStatus>,
    /// The peer's request that was refused, and why.
    pub(crate) refused: Option<Terminate>,
    /// The identity with which the peer accesses memory.
    pub(crate) peer: Caller,
    /// The QP was destroyed: it adds no more completions. // [VERBS-20]
    pub(crate) silent: bool,
    pub(crate) deferred: Deferred,
    pub(crate) sends_lost: u32,
    pub(crate) receives_lost: u32,
}

impl Queues {
    pub(crate) fn new(init: &QpInit, peer: Caller, srq: Option<&SoftSrq>) -> VpResult<Self> {
        let (recv_depth, max_sge) = match srq {
            Some(srq) => (1, srq.max_sge()),
            None => (init.recv_depth, init.max_recv_sge),
        };
        let depth = init.send_depth;
        let pending = room::list("requests of the send queue", depth as usize)?;
        Ok(Self {
            sends: SendRing::new(depth, init.max_send_sge, init.max_inline)?,
            send_depth: depth,
            next_slot: 0,
            outstanding: 0,
            pending: pending.into(),
            untaken_sends: Untaken::new(depth)?,
            receives: RecvRing::new(recv_depth, max_sge)?,
            recv_depth,
            untaken_receives: Untaken::new(recv_depth)?,
            current: RecvWqe::new(max_sge)?,
            receiving: false,
            fault: None,
            refused: None,
            peer,
            silent: false,
            deferred: Deferred::default(),
            sends_lost: 0,
            receives_lost: 0,
        })
    }

    /// Whether the send queue has a free slot.
    pub(crate) fn has_send_slot(&mut self, context: &Context) -> bool {
        let free =
            |queues: &Self| queues.outstanding + queues.untaken_sends.slots() < queues.send_depth;
        if !free(self) {
            self.untaken_sends.reap(context.send_cq.taken());
        }
        free(self)
    }

    /// All completions were removed from the CQs.
    pub(crate) fn clear_untaken(&mut self) {
        self.untaken_sends.clear();
        self.untaken_receives.clear();
    }

    /// Number of slots of the send queue.
    pub(crate) fn send_depth(&self) -> u32 {
        self.send_depth
    }

    /// Whether the protocol core has requests that are not completed.
    pub(crate) fn is_under_way(&self) -> bool {
        self.outstanding > self.pending.len() as u32
    }

    /// The slot of the next send request. Requests complete in order, so it is free if any slot is.
    pub(crate) fn send_slot(&self) -> u32 {
        self.next_slot
    }

    /// Marks that slot as used.
    pub(crate) fn take_send_slot(&mut self) {
        self.outstanding += 1;
        self.next_slot = (self.next_slot + 1) % self.send_depth;
    }

    /// Whether the receive queue has a free slot.
    pub(crate) fn has_receive_slot(&mut self, context: &Context) -> bool {
        let free = |queues: &Self| {
            let begun = u32::from(queues.receiving);
            queues.receives.posted() + begun + queues.untaken_receives.slots() < queues.recv_depth
        };
        if !free(self) {
            self.untaken_receives.reap(context.recv_cq.taken());
        }
        free(self)
    }

    /// The scatter/gather list of a slot; empty if the payload is inline.
    pub(crate) fn sgl(&self, slot: u32) -> &[Sge] {
        match self.sends.payload(slot) {
            Payload::Sgl(sgl) => sgl,
            Payload::Inline(_) => &[],
        }
    }

    /// Octets of the payload in a slot.
    pub(crate) fn payload_len(&self, slot: u32) -> u32 {
        match self.sends.payload(slot) {
            Payload::Sgl(sgl) => sgl.iter().fold(0, |sum, sge| sum.saturating_add(sge.len)),
            Payload::Inline(octets) => octets.len() as u32,
        }
    }

    /// Ends a send request.
    // RDMAC 8.1.3.1 [VERBS-18]
    pub(crate) fn complete_send(&mut self, context: &Context, slot: u32, status: WcStatus) {
        let sent = *self.sends.slot(slot);
        self.outstanding -= 1;
        if status != WcStatus::Success {
            // A flushed local operation releases its references.
            drop(self.sends.take_local(slot));
            self.sends_lost += 1;
        } else if !sent.flags.contains(SendFlags::SIGNALED) {
            return self.untaken_sends.add_silent();
        }
        let octets = if status == WcStatus::Success { self.payload_len(slot) } else { 0 };
        let completion = WorkCompletion {
            wr_id: sent.wr_id,
            qp: context.id,
            opcode: sent.opcode,
            status,
            octets,
            ..WorkCompletion::BLANK
        };
        let place = match self.silent {
            true => None,
            false => context.send_cq.push(&completion, &mut self.deferred.send_cq),
        };
        self.untaken_sends.add(place);
    }

    /// Takes the next receive into `current`.
    pub(crate) fn take_receive(&mut self, context: &Context) -> bool {
        let (taken, limit) = match &context.srq {
            Some(srq) => srq.take(&mut self.current),
            None => (self.receives.take(&mut self.current), false),
        };
        self.deferred.srq_limit |= limit;
        self.receiving = taken;
        self.fault = None;
        taken
    }

    /// Ends the current receive. `completion` says how; its request and queue pair are filled in here.
    pub(crate) fn complete_receive(&mut self, context: &Context, completion: WorkCompletion) {
        self.receiving = false;
        self.receives_lost += u32::from(completion.status != WcStatus::Success);
        let completion = WorkCompletion { wr_id: self.current.wr_id, qp: context.id, ..completion };
        let silent = self.silent;
        let deferred = &mut self.deferred.recv_cq;
        let mut push = || if silent { None } else { context.recv_cq.push(&completion, deferred) };
        match &context.srq {
            Some(srq) => srq.complete(context.recv_cq.id(), push),
            None => self.untaken_receives.add_signalled(push()),
        }
    }

    /// Ends the current receive without a message.
    pub(crate) fn fail_receive(&mut self, context: &Context, status: WcStatus) {
        let completion = WorkCompletion { opcode: WcOpcode::Recv, status, ..WorkCompletion::BLANK };
        self.complete_receive(context, completion);
    }

    /// Ends everything that is posted, except receives of an SRQ. // RDMAC 6.2.4 [VERBS-11] [VERBS-26]
    pub(crate) fn flush(&mut self, context: &Context) {
        while let Some(pending) = self.pending.pop_front() {
            self.complete_send(context, pending.slot, WcStatus::Flushed);
        }
        if self.receiving {
            let status = self.fault.take().unwrap_or(WcStatus::Flushed);
            self.fail_receive(context, status);
        }
        while self.receives.take(&mut self.current) {
            self.fail_receive(context, WcStatus::Flushed);
        }
    }
}

impl Context {
    /// The memory access identities of a QP.
    pub(crate) fn callers(id: QpId, init: &QpInit, srq: Option<&SoftSrq>) -> [Caller; 3] {
        let remote = Access::REMOTE | Access::BIND;
        let caller =
            Caller { pd: init.pd, qp: id, allow: init.allow & remote, privileged: init.privileged };
        let receiver = Caller { pd: srq.map_or(init.pd, SoftSrq::pd), ..caller };
        [caller, Caller { privileged: false, ..caller }, receiver]
    }
}
