//! Converts the device's completions, and flushes requests without the device.
//!
//! Runs in the thread that polls the CQ. A completion in error ends the connection.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use vp_api::{QpState, Stag, VpStatus, WcOpcode, WcStatus, WorkCompletion};

use super::VerbsQp;
use crate::completed::{Completed, flushed};
use crate::cq::VerbsCq;
use crate::hardware::{MARK, RECV};
use crate::map;
use crate::object_table::lock;
use crate::ring::{Posted, Taken, Untaken};
use crate::srq::{SERIAL, SHARED};
use ibv_sys::*;

impl VerbsQp {
    /// See [`Routes::translate`]; `shared`: the consumer's id of a shared receive, and its slot.
    pub(super) fn complete(
        &self,
        wc: &ibv_wc,
        shared: Option<(u64, Untaken)>,
        taken: Taken,
        behind: &mut VecDeque<Completed>,
    ) -> Option<Completed> {
        let is_recv = wc.wr_id & (RECV | SHARED) != 0;
        let status = map::status(wc.status);
        let life = self.hardware.read().as_ref().map(|hardware| hardware.serial)?;
        let (posted, untaken) = match shared {
            Some((wr_id, untaken)) => {
                (Posted { wr_id, opcode: WcOpcode::Recv, signaled: true }, Some(untaken))
            }
            None => {
                if life != (wc.wr_id >> 32) as u32 & SERIAL {
                    return None;
                }
                self.end(wc, is_recv, status, taken)?
            }
        };
        if status != WcStatus::Success {
            self.broke(life, map::ending(wc.status));
        }
        if wc.wr_id & (RECV | SHARED | MARK) == MARK {
            behind.extend(self.send.ready());
            return None;
        }
        if is_recv && status == WcStatus::Success {
            self.received.store(true, Ordering::Release);
        }
        if status != WcStatus::Success {
            let mut info = lock(&self.info);
            let present = u32::from(self.life() == life);
            *(if is_recv { &mut info.recvs_lost } else { &mut info.sends_lost }) += present;
        }
        if self.state() != QpState::Rts {
            behind.extend(self.queue(is_recv).ready());
        }
        let untaken = untaken?;
        let mut out = flushed(self.id, posted.wr_id, posted.opcode);
        out.status = match status {
            // rxe reports this status for a message that is longer than its receive.
            WcStatus::InvalidWqe if is_recv => WcStatus::Bounds,
            other => other,
        };
        if status == WcStatus::Success {
            self.details(wc, is_recv, &mut out);
        }
        Some(Completed { completion: out, source: None, untaken })
    }

    /// Removes a request from its queue. If it returns `None`, the request ends without a completion.
    fn end(
        &self,
        wc: &ibv_wc,
        is_recv: bool,
        status: WcStatus,
        taken: Taken,
    ) -> Option<(Posted, Option<Untaken>)> {
        let mut ring = self.queue(is_recv).ring();
        let (posted, slots) = ring.end(wc.wr_id as u32)?;
        if posted.opcode == WcOpcode::BindMw && status != WcStatus::Success {
            lock(&self.binds).fail(wc.wr_id as u32, &self.parts.memory);
        }
        let is_mark = !is_recv && wc.wr_id & MARK != 0;
        if is_mark || (status == WcStatus::Success && !posted.signaled) {
            ring.add_silent(slots);
            return Some((posted, None));
        }
        Some((posted, Some(ring.complete(slots, taken))))
    }

    fn details(&self, wc: &ibv_wc, is_recv: bool, out: &mut WorkCompletion) {
        if !is_recv {
            let has_sink = matches!(out.opcode, WcOpcode::Read | WcOpcode::Atomic);
            out.octets = if has_sink { wc.byte_len } else { 0 };
            return;
        }
        out.octets = wc.byte_len;
        if wc.wc_flags & IBV_WC_WITH_IMM != 0 {
            out.immediate = Some(u64::from(u32::from_be(wc.imm_or_rkey)));
            if wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM || wc.byte_len == 0 {
                out.opcode = WcOpcode::RecvImmediate;
            }
        }
        if wc.wc_flags & IBV_WC_WITH_INV != 0 {
            let stag = Stag(wc.imm_or_rkey);
            self.parts.memory.invalidated(stag);
            out.invalidated = Some(stag);
        }
    }

    /// The queue pair may have ended while this thread posted, after the thread saw it in RTS.
    pub(super) fn end_if_over(&self) {
        if self.parts.context.flushes_no_more() && self.over.load(Ordering::Acquire) {
            self.end_without_device();
            self.flush_late();
            self.tell();
        }
    }

    /// For a device that does not complete requests posted in Error ([`crate::device::Context`]). By the time it is
    /// in Error, everything that it completes is in its CQs. So the requests that are left in the queues end here.
    pub(super) fn end_without_device(&self) {
        let is_over = || self.over.load(Ordering::Acquire);
        if !is_over() {
            return;
        }
        for (is_recv, cq) in self.cqs() {
            cq.inject(|| {
                // Another thread may have reset the queue pair; while this is held, none does.
                let _life = self.hardware.read();
                if is_over() { self.end_queue(is_recv) } else { VecDeque::new() }
            });
        }
    }

    fn end_queue(&self, is_recv: bool) -> VecDeque<Completed> {
        let mut info = lock(&self.info);
        let lost = if is_recv { &mut info.recvs_lost } else { &mut info.sends_lost };
        let mut completed = VecDeque::new();
        // Then it is not known what has succeeded.
        let is_gone = self.parts.context.is_gone();
        self.queue(is_recv).ring().end_all(*lost > 0 || is_gone, |posted, untaken| {
            let completion = flushed(self.id, posted.wr_id, posted.opcode);
            completed.push_back(Completed { completion, source: None, untaken });
        });
        *lost += completed.len() as u32;
        completed
    }

    pub(super) fn flush_late(&self) {
        for (is_recv, cq) in self.cqs() {
            let queue = self.queue(is_recv);
            if queue.has_late() {
                cq.inject(|| queue.ready());
            }
        }
    }

    /// See [`VerbsCq::tell`].
    pub(crate) fn tell(&self) {
        self.cqs().into_iter().for_each(|(_, cq)| cq.tell());
    }

    /// Of each queue.
    fn cqs(&self) -> [(bool, &VerbsCq); 2] {
        [(false, &self.parts.send_cq), (true, &self.parts.recv_cq)]
    }

    /// Completes a request that the device does not accept any more.
    pub(super) fn post_late(
        &self,
        is_recv: bool,
        wr_id: u64,
        opcode: WcOpcode,
    ) -> Result<(), VpStatus> {
        self.queue(is_recv).post_late(flushed(self.id, wr_id, opcode))
    }
}
