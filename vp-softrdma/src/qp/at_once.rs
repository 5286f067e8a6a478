//! Short messages through shared memory at once: from the work request to the peer's cache line, past the send queue.
//!
//! Runs under the QP's lock in the consumer's thread. Only where nothing is before the message: no request is
//! outstanding in the send queue, and no octet waits for the stream. Whatever else holds, or is wrong, `post.rs` finds
//! and handles. When the peer dies, nothing of such a request is left to flush.

use shm_ring::SHORT;
use vp_api::{Data, SendFlags, SendWr, WcStatus, WorkCompletion};

use crate::qp::context::Context;
use crate::qp::host::copy_out;
use crate::qp::inner::Inner;
use crate::qp::post::core_op;

impl Inner {
    /// Sends the message of a request and completes it; false, and nothing is changed: it must be posted.
    #[inline(never)] // so that a post by TCP needs fewer registers
    pub(super) fn post_at_once(&mut self, context: &Context, wr: &SendWr<'_>) -> bool {
        let Some(link) = &mut self.link else { return false };
        if !link.outbox.takes_short(&link.stream, context)
            || !self.coalesce.sends_at_once(wr, || !context.send_cq.has_any())
            || self.destroyed
            || self.core.queues.untaken_sends.slots() >= self.limits.send_depth
            || self.core.queues.sends.check(wr).is_err()
        {
            return false;
        }
        let mut fpdu = [0; SHORT];
        let copy = |room: &mut [u8]| copy(context, wr.data, room);
        let Some(sent) = self.core.proto.send_at_once(core_op(wr), copy, &mut fpdu) else {
            return false;
        };
        link.outbox.send_short(&link.stream, &fpdu, sent.octets);
        // From here on the peer has it.
        self.record.counters.send_calls += 1;
        self.core.sent(context, sent.sequence);
        self.complete_at_once(context, wr, sent.payload);
        self.coalesce.sent_at_once(wr);
        self.set_kick(context);
        if self.core.proto.has_action() || self.core.queues.deferred.send_cq.overrun {
            self.drive(context);
        } else {
            self.end_visit(context);
        }
        self.coalesce.transmitted(context.engine.now());
        true
    }

    fn complete_at_once(&mut self, context: &Context, wr: &SendWr<'_>, octets: u32) {
        if !wr.flags.contains(SendFlags::SIGNALED) {
            return self.core.queues.untaken_sends.add_silent();
        }
        let completion = WorkCompletion {
            wr_id: wr.wr_id,
            qp: context.id,
            opcode: wr.op.completion(),
            status: WcStatus::Success,
            solicited: false,
            octets,
            invalidated: None,
            immediate: None,
        };
        self.core.queues.push_send(context, &completion);
    }
}

/// Copies a payload to the front of `room`; `None`: it does not fit, or may not be read.
#[inline]
fn copy(context: &Context, data: Data<'_>, room: &mut [u8]) -> Option<usize> {
    match data {
        Data::Inline(octets) => {
            room.get_mut(..octets.len())?.copy_from_slice(octets);
            Some(octets.len())
        }
        Data::Sgl(sgl) => copy_out(context, &mut None, sgl, room),
    }
}
