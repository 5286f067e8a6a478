//! What a queue pair writes to its record in the process's state page, for operators to read.
//!
//! Under the QP's lock, so one thread at a time: plain relaxed stores whenever a thread leaves the QP. No clock is read
//! for it, except when a connection begins, and no system call made. Counts go on over the connections of a QP, so that
//! readers never see one go back. A destroyed QP gives the record up, and another may get it.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use roce_proto::rc::{Broken, Stats, Status};
use rustix::time::{ClockId, clock_gettime};
use vp_api::state_page::layout::{change, end, flag, state};
use vp_api::{QpInit, QpState, Role, SlotRef};

use super::queues::Context;
use super::{Link, State};
use crate::engine::PORT;

/// The record, and counts of the QP.
#[derive(Default)]
pub(super) struct Record {
    slot: Option<SlotRef>,
    pub(super) packets_sent: u64,
    pub(super) packets_received: u64,
    pub(super) octets_sent: u64,
    pub(super) octets_received: u64,
    pub(super) send_calls: u64,
    /// Of connections that have ended.
    earlier: Stats,
    /// Packets at the last visit.
    seen: u64,
}

impl Record {
    /// A full queue refused a request.
    #[cold]
    pub(super) fn publish_refusal(&self) {
        if let Some(slot) = &self.slot {
            // Faces count there, too, without the lock.
            slot.posts_refused.fetch_add(1, Relaxed);
        }
    }

    /// Why the connection ended: the value of the record.
    pub(super) fn publish_end(&self, why: u32) {
        if let Some(slot) = &self.slot {
            slot.terminate.store(why, Relaxed);
        }
    }

    /// The counts of a connection that ends.
    pub(super) fn keep(&mut self, stats: Stats) {
        self.earlier = self.earlier.plus(stats);
    }
}

impl State {
    /// The record from now on.
    pub(super) fn publish_to(&mut self, context: &Context, init: &QpInit, slot: Option<SlotRef>) {
        self.record.slot = slot;
        let Some(slot) = &self.record.slot else { return };
        change(&slot.generation, || {
            slot.qp.store(context.id.0, Relaxed);
            slot.flags.store(flag::WRITTEN | flag::ROCE, Relaxed);
            slot.used.store(1, Relaxed);
        });
        slot.send_depth.store(init.send_depth, Relaxed);
        let recv_depth = if context.srq.is_some() { 0 } else { init.recv_depth };
        slot.recv_depth.store(recv_depth, Relaxed);
        self.publish();
    }

    /// A connection begins.
    pub(super) fn publish_begin(&self) {
        let (Some(slot), Some(link)) = (&self.record.slot, &self.link) else { return };
        let now = clock_gettime(ClockId::Monotonic);
        let began = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let (local, remote) = self.ends(link);
        let role = match link.role {
            Some(Role::Initiator) => flag::INITIATOR,
            Some(Role::Responder) => flag::RESPONDER,
            None => 0,
        };
        change(&slot.generation, || {
            slot.flags.store(flag::WRITTEN | flag::ROCE | role, Relaxed);
            slot.began.store(began, Relaxed);
            slot.local.set(Some(local));
            slot.remote.set(Some(remote));
            slot.terminate.store(0, Relaxed);
            slot.numbers.store(u64::from(link.number) | u64::from(link.destination) << 32, Relaxed);
            slot.mulpdu.store(link.mtu, Relaxed);
        });
    }

    /// The addresses of a connection's ends, which the connection manager may know better.
    fn ends(&self, link: &Link) -> (SocketAddr, SocketAddr) {
        let of_path = || ((link.socket.local(), PORT).into(), (link.peer, PORT).into());
        self.local.zip(self.remote).unwrap_or_else(of_path)
    }

    /// The peer is ready.
    #[cold]
    pub(super) fn publish_ready(&self) {
        let Some(slot) = &self.record.slot else { return };
        if self.local.is_some() {
            change(&slot.generation, || {
                slot.local.set(self.local);
                slot.remote.set(self.remote);
            });
        }
        self.publish_limits();
    }

    /// The limits were set anew.
    pub(super) fn publish_limits(&self) {
        let Some(slot) = &self.record.slot else { return };
        slot.ird_ord.store(u32::from(self.ird) | u32::from(self.ord) << 16, Relaxed);
        slot.state.store(state_of(self.phase), Relaxed);
    }

    /// Receives were posted.
    #[inline]
    pub(super) fn publish_receives(&self) {
        if let Some(slot) = &self.record.slot {
            slot.recvs_posted.store(self.queues.receives.posted(), Relaxed);
        }
    }

    /// A visit ends.
    pub(super) fn publish(&mut self) {
        let State { record, queues, link, .. } = self;
        let Some(slot) = &record.slot else { return };
        let stats = link.as_ref().map_or(record.earlier, |of| record.earlier.plus(of.core.stats()));
        slot.sends_outstanding.store(queues.outstanding, Relaxed);
        slot.recvs_posted.store(queues.receives.posted(), Relaxed);
        slot.fpdus_sent.store(record.packets_sent, Relaxed);
        slot.fpdus_received.store(record.packets_received, Relaxed);
        slot.octets_sent.store(record.octets_sent, Relaxed);
        slot.octets_received.store(record.octets_received, Relaxed);
        slot.messages_sent.store(stats.requests, Relaxed);
        slot.messages_received.store(stats.messages, Relaxed);
        slot.responses_sent.store(stats.reads_served, Relaxed);
        slot.ord_stalls.store(stats.read_stalls, Relaxed);
        slot.waited_for_receive.store(stats.waited, Relaxed);
        slot.not_ready.store(stats.not_ready as u32, Relaxed);
        slot.repeats.store(stats.repeats as u32, Relaxed);
        slot.send_calls.store(record.send_calls, Relaxed);
        let packets = record.packets_sent + record.packets_received;
        if packets != record.seen {
            record.seen = packets;
            slot.visits.store(slot.visits.load(Relaxed).wrapping_add(1), Relaxed);
        }
        slot.state.store(state_of(self.phase), Relaxed);
    }
}

fn state_of(phase: QpState) -> u32 {
    match phase {
        QpState::Idle => state::IDLE,
        QpState::Rts => state::RTS,
        QpState::Closing => state::CLOSING,
        QpState::Terminate => state::TERMINATE,
        _ => state::ERROR,
    }
}

/// The value for a connection that broke.
pub(super) fn end_of(broken: Broken) -> u32 {
    match broken {
        Broken::Refused(_) => end::REFUSED,
        Broken::Failed(status) => match status {
            Status::RetryExceeded => end::NO_REPLY,
            Status::RnrRetryExceeded => end::NOT_READY,
            Status::LocalProtection => end::LOCAL_FAULT,
            Status::RemoteAccess | Status::RemoteInvalidRequest | Status::RemoteOperational => {
                end::REFUSED_BY_PEER
            }
            Status::BadResponse | Status::Success | Status::Flushed => end::REFUSED,
        },
    }
}
