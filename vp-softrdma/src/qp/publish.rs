//! What a QP writes to its record in the process's state page, for operators to read.
//!
//! Under the QP's lock, so one thread at a time: plain relaxed stores, at the end of each visit that sent or
//! received, and where something else becomes known. No clock is read for it, and no system call made. A destroyed QP
//! gives the record up, and another may get it.

use std::sync::atomic::Ordering::Relaxed;

use iwarp_proto::State;
use vp_api::state_page::layout::{change, flag, state};
use vp_api::{Carrier, Role, SlotRef};

use crate::qp::context::Context;
use crate::qp::inner::Inner;

impl Inner {
    /// The record from now on.
    pub(crate) fn publish_to(&mut self, context: &Context, record: Option<SlotRef>) {
        self.slot = record;
        let Some(slot) = &self.slot else { return };
        change(&slot.generation, || {
            slot.qp.store(context.id.0, Relaxed);
            slot.flags.store(flag::WRITTEN, Relaxed);
            slot.used.store(1, Relaxed);
        });
        self.publish_limits();
        self.publish_receives();
    }

    /// A stream begins.
    pub(super) fn publish_stream(&self, context: &Context, mulpdu: u32) {
        let (Some(slot), Some(link)) = (&self.slot, &self.link) else { return };
        let params = &link.params;
        let flags = [
            (true, flag::WRITTEN),
            (params.crc, flag::CRC),
            (params.markers_tx, flag::MARKERS_SENT),
            (params.markers_rx, flag::MARKERS_RECEIVED),
            (params.role == Role::Initiator, flag::INITIATOR),
            (params.role != Role::Initiator, flag::RESPONDER),
            (self.record.carrier == Carrier::Local, flag::LOCAL_STREAM),
        ];
        let flags = flags.iter().filter(|(has, _)| *has).fold(0, |all, (_, flag)| all | flag);
        let began = context.engine.now();
        change(&slot.generation, || {
            slot.flags.store(flags, Relaxed);
            slot.began.store(began, Relaxed);
            slot.local.set(self.record.local);
            slot.remote.set(self.record.remote);
            slot.terminate.store(0, Relaxed);
            // Connection management says it behind this.
            slot.why_tcp.set("");
            slot.ird_ord.store(u32::from(params.ird) | u32::from(params.ord) << 16, Relaxed);
            slot.mulpdu.store(mulpdu, Relaxed);
        });
    }

    /// The limits were set anew.
    pub(super) fn publish_limits(&self) {
        let Some(slot) = &self.slot else { return };
        let limits = &self.limits;
        slot.send_depth.store(limits.send_depth, Relaxed);
        slot.recv_depth.store(self.core.queues.receives.depth(), Relaxed);
        slot.ird_ord.store(u32::from(limits.ird) | u32::from(limits.ord) << 16, Relaxed);
    }

    /// FPDUs have another size.
    pub(super) fn publish_mulpdu(&self, mulpdu: u16) {
        if let Some(slot) = &self.slot {
            slot.mulpdu.store(mulpdu.into(), Relaxed);
        }
    }

    /// Receives were posted.
    #[inline]
    pub(super) fn publish_receives(&self) {
        if let Some(slot) = &self.slot {
            slot.recvs_posted.store(self.core.queues.receives.posted(), Relaxed);
        }
    }

    /// A full queue refused a request.
    #[cold]
    pub(super) fn publish_refusal(&self) {
        if let Some(slot) = &self.slot {
            // Faces count there, too, without the lock.
            slot.posts_refused.fetch_add(1, Relaxed);
        }
    }

    /// A visit ends.
    pub(super) fn publish(&self) {
        let Some(slot) = &self.slot else { return };
        let (proto, counters) = (&self.core.proto, &self.record.counters);
        let stats = proto.stats();
        slot.sends_outstanding.store(proto.outstanding_sends(), Relaxed);
        slot.recvs_posted.store(self.core.queues.receives.posted(), Relaxed);
        slot.fpdus_sent.store(stats.fpdus_sent, Relaxed);
        slot.fpdus_received.store(stats.fpdus_received, Relaxed);
        slot.octets_sent.store(stats.octets_sent, Relaxed);
        slot.octets_received.store(stats.octets_received, Relaxed);
        slot.messages_sent.store(stats.messages_sent, Relaxed);
        slot.messages_received.store(stats.messages_received, Relaxed);
        slot.responses_sent.store(stats.responses_sent, Relaxed);
        slot.ord_stalls.store(stats.ord_stalls, Relaxed);
        slot.send_calls.store(counters.send_calls, Relaxed);
        slot.send_stalls.store(counters.send_stalls, Relaxed);
        if let Some(link) = &self.link {
            slot.recv_calls.store(counters.recv_calls + link.inbox.calls, Relaxed);
        }
        slot.visits.store(slot.visits.load(Relaxed).wrapping_add(1), Relaxed);
        let now = state_of(proto.state());
        if slot.state.load(Relaxed) != now || now != state::RTS {
            self.publish_state(slot, now);
        }
    }

    #[cold]
    fn publish_state(&self, slot: &SlotRef, now: u32) {
        slot.state.store(now, Relaxed);
        if let Some((sent, code)) = self.core.proto.last_terminate() {
            let code =
                u32::from(code.layer) << 16 | u32::from(code.etype) << 8 | u32::from(code.code);
            slot.terminate.store(if sent { 1 << 24 } else { 2 << 24 } | code, Relaxed);
        }
    }
}

fn state_of(now: State) -> u32 {
    match now {
        State::Idle => state::IDLE,
        State::Rts => state::RTS,
        State::Closing => state::CLOSING,
        State::Terminate => state::TERMINATE,
        State::Error => state::ERROR,
    }
}
