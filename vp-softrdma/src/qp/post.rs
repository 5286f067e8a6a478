//! Posting: from the consumer's work requests to the core's queue and the provider's half of it.
//!
//! Runs under the QP's lock in the consumer's thread, which then transmits what it can.

use iwarp_proto::{PostError, SendWqe, State};
use vp_api::{
    AtomicOp, Data, PostFailure, RecvWr, SendFlags, SendOp, SendWr, Sge, Stag, VpStatus, WcOpcode,
    WcStatus, WorkCompletion,
};

use crate::engine::Timer;
use crate::qp::coalesce::Then;
use crate::qp::context::Context;
use crate::qp::inner::Inner;

impl Inner {
    /// Posts a list, stops at the first request that is refused, and transmits or defers.
    pub(crate) fn post_sends(
        &mut self,
        context: &Context,
        wrs: &[SendWr<'_>],
    ) -> Result<(), PostFailure> {
        if self.link.as_ref().is_some_and(|link| link.draining)
            && self.core.proto.state() == State::Rts
        {
            return Err(PostFailure { posted: 0, status: VpStatus::InvalidState });
        }
        if let [wr] = wrs
            && self.link.as_ref().is_some_and(|link| link.stream.shared().is_some())
            && self.post_at_once(context, wr)
        {
            return Ok(());
        }
        let before = self.coalesce.deferred();
        let result = each(wrs, |wr| self.post_send(context, wr));
        self.transmit_or_defer(context, before);
        result
    }

    /// The same for a list of which all requests are posted, or none.
    pub(crate) fn post_whole(
        &mut self,
        context: &Context,
        wrs: &[SendWr<'_>],
    ) -> Result<(), PostFailure> {
        self.check_whole(context, wrs).map_err(|status| PostFailure { posted: 0, status })?;
        self.post_sends(context, wrs)
    }

    /// The first request takes memory for all, if there is none yet, so nothing is refused after it.
    fn check_whole(&mut self, context: &Context, wrs: &[SendWr<'_>]) -> Result<(), VpStatus> {
        for wr in wrs {
            self.core.queues.sends.check(wr)?;
            match self.core.proto.check_send(core_op(wr)) {
                Ok(()) | Err(PostError::BadState) => {}
                Err(error) => return Err(refusal(error)),
            }
        }
        let count = u32::try_from(wrs.len()).map_err(|_| VpStatus::TooManyWrs)?;
        self.make_room(context, count)
    }

    fn transmit_or_defer(&mut self, context: &Context, before: u32) {
        let Some(link) = &self.link else { return };
        let (depth, reaped) = (self.limits.send_depth, !context.send_cq.has_any());
        let now = || context.engine.now();
        match self.coalesce.decide(before, depth, reaped, now) {
            Then::Transmit => self.drive(context),
            Then::Defer { check_at: None } => {}
            Then::Defer { check_at: Some(at) } => link.set_timer(context, at, Timer::Coalesce),
        }
    }

    #[inline]
    fn post_send(&mut self, context: &Context, wr: &SendWr<'_>) -> Result<(), VpStatus> {
        if self.destroyed {
            return Err(VpStatus::InvalidHandle);
        }
        self.core.queues.sends.check(wr)?;
        if self.send_slots() >= self.limits.send_depth {
            self.make_room(context, 1)?;
        }
        self.queue(context, wr)
    }

    /// Slots of the send queue that are occupied.
    #[inline]
    pub(crate) fn send_slots(&self) -> u32 {
        self.core.proto.outstanding_sends() + self.core.queues.untaken_sends.slots()
    }

    /// Frees the slots of requests whose completions were taken since the last call, so that `count` more
    /// have room. RDMAC 6.3: all others are outstanding.
    #[inline(never)]
    fn make_room(&mut self, context: &Context, count: u32) -> Result<(), VpStatus> {
        self.core.queues.untaken_sends.reap(context.send_cq.taken());
        if self.send_slots().saturating_add(count) <= self.limits.send_depth {
            return Ok(());
        }
        // What is deferred waits for posts that cannot come.
        self.flush(context);
        self.publish_refusal();
        Err(VpStatus::TooManyWrs)
    }

    #[inline]
    fn queue(&mut self, context: &Context, wr: &SendWr<'_>) -> Result<(), VpStatus> {
        let wqe = SendWqe {
            op: core_op(wr),
            read_fence: wr.flags.contains(SendFlags::READ_FENCE),
            local_fence: wr.flags.contains(SendFlags::LOCAL_FENCE),
        };
        match self.core.proto.post_send(wqe) {
            Ok(slot) => {
                self.core.queues.sends.store(slot, wr);
                self.coalesce.add(wr);
            }
            // RDMAC 6.2.4 [VERBS-11]: post and flush
            Err(PostError::BadState) => {
                let completion = flushed(context, wr.wr_id, wr.op.completion());
                self.core.queues.push_send(context, &completion);
            }
            Err(error) => return Err(refusal(error)),
        }
        Ok(())
    }

    /// Posts a list to the QP's own receive queue.
    pub(crate) fn post_receives(
        &mut self,
        context: &Context,
        wrs: &[RecvWr<'_>],
    ) -> Result<(), PostFailure> {
        let result = each(wrs, |wr| self.post_receive(context, wr));
        self.give_receives(context);
        self.set_probe(context);
        self.publish_receives();
        result
    }

    #[inline]
    fn post_receive(&mut self, context: &Context, wr: &RecvWr<'_>) -> Result<(), VpStatus> {
        if self.destroyed {
            return Err(VpStatus::InvalidHandle);
        }
        // RDMAC 6.3 [VERBS-26]
        if context.srq.is_some() {
            return Err(VpStatus::InvalidWr);
        }
        let queues = &mut self.core.queues;
        queues.receives.check(wr)?;
        if queues.receive_slots() >= queues.receives.depth() {
            queues.untaken_receives.reap(context.recv_cq.taken());
            if queues.receive_slots() >= queues.receives.depth() {
                self.publish_refusal();
                return Err(VpStatus::TooManyWrs);
            }
        }
        if matches!(self.core.proto.state(), State::Idle | State::Rts) {
            return queues.receives.post(wr);
        }
        context.hold_flushed(1);
        queues.push_receive(context, &flushed(context, wr.wr_id, WcOpcode::Recv));
        Ok(())
    }
}

fn refusal(error: PostError) -> VpStatus {
    match error {
        PostError::BadState => VpStatus::InvalidState,
        PostError::QueueFull => VpStatus::TooManyWrs,
        PostError::Unsupported => VpStatus::Unsupported,
        PostError::NoMemory => VpStatus::InsufficientResources,
    }
}

/// Posts one by one, up to the first that is refused.
fn each<T>(wrs: &[T], mut post: impl FnMut(&T) -> Result<(), VpStatus>) -> Result<(), PostFailure> {
    for (posted, wr) in wrs.iter().enumerate() {
        post(wr).map_err(|status| PostFailure { posted, status })?;
    }
    Ok(())
}

fn flushed(context: &Context, wr_id: u64, opcode: WcOpcode) -> WorkCompletion {
    WorkCompletion {
        wr_id,
        qp: context.id,
        opcode,
        status: WcStatus::Flushed,
        solicited: false,
        octets: 0,
        invalidated: None,
        immediate: None,
    }
}

/// The core's type of an operation. The request passed the ring's check, so a Read has its sink.
#[inline]
pub(super) fn core_op(wr: &SendWr<'_>) -> iwarp_proto::SendOp {
    use iwarp_proto::SendOp as Core;
    match wr.op {
        SendOp::Send { solicited, invalidate } => {
            Core::Send { solicited, invalidate: invalidate.map(stag) }
        }
        SendOp::SendImmediate { data, solicited } => {
            Core::SendImmediate { immediate: data, solicited }
        }
        SendOp::Write { remote } => Core::Write { stag: stag(remote.stag), to: remote.to },
        SendOp::WriteImmediate { remote, data, solicited } => {
            Core::WriteImmediate { stag: stag(remote.stag), to: remote.to, data, solicited }
        }
        SendOp::Immediate { data, solicited } => Core::Immediate { data, solicited },
        SendOp::Read { remote, invalidate_sink } => {
            let sink = sink(wr);
            Core::Read {
                sink_stag: stag(sink.stag),
                sink_to: sink.to,
                source_stag: stag(remote.stag),
                source_to: remote.to,
                invalidate_sink,
            }
        }
        SendOp::Atomic { remote, op } => atomic(stag(remote.stag), remote.to, op),
        SendOp::BindMw(_) | SendOp::FastRegister(_) | SendOp::InvalidateLocal { .. } => Core::Local,
    }
}

fn atomic(stag: iwarp_proto::Stag, to: u64, op: AtomicOp) -> iwarp_proto::SendOp {
    use iwarp_proto::SendOp as Core;
    match op {
        AtomicOp::FetchAdd { add, mask } => Core::FetchAdd { stag, to, add, mask },
        AtomicOp::CmpSwap { compare, compare_mask, swap, swap_mask } => {
            Core::CmpSwap { stag, to, compare, compare_mask, swap, swap_mask }
        }
    }
}

fn sink(wr: &SendWr<'_>) -> Sge {
    match wr.data {
        Data::Sgl([sink, ..]) => *sink,
        _ => Sge::default(),
    }
}

fn stag(stag: Stag) -> iwarp_proto::Stag {
    iwarp_proto::Stag(stag.0)
}
