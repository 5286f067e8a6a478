//! What the device completed, as the consumer sees it, and what is flushed without the device.
//!
//! Runs in the thread that polls the CQ. A completion in error ends the connection.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use vp_api::{QpState, Stag, WcOpcode, WcStatus, WorkCompletion};

use super::{MARK, RECV, VerbsQp};
use crate::cq::flushed;
use crate::map;
use crate::ring::Posted;
use crate::srq::{SERIAL, SHARED};
use crate::table::lock;
use ibv_sys::*;

impl VerbsQp {
    /// See [`Routes::translate`]; `shared`: the consumer's number, of a shared receive.
    pub(super) fn complete(
        &self,
        wc: &ibv_wc,
        shared: Option<u64>,
        behind: &mut VecDeque<WorkCompletion>,
    ) -> Option<WorkCompletion> {
        let is_recv = wc.wr_id & (RECV | SHARED) != 0;
        let status = map::status(wc.status);
        let posted = match shared {
            Some(wr_id) => Posted { wr_id, opcode: WcOpcode::Recv, signaled: true },
            None => {
                let serial = self.hardware().as_ref().map(|hardware| hardware.serial)?;
                if serial != (wc.wr_id >> 32) as u32 & SERIAL {
                    return None;
                }
                lock(if is_recv { &self.recv } else { &self.send }).end(wc.wr_id as u32)?
            }
        };
        if wc.wr_id & (RECV | SHARED | MARK) == MARK {
            behind.extend(self.ready_late(false));
            return None;
        }
        if is_recv && status == WcStatus::Success {
            self.heard.store(true, Ordering::Release);
        }
        if status != WcStatus::Success {
            self.broke(map::ending(wc.status));
            let mut info = lock(&self.info);
            *(if is_recv { &mut info.recvs_lost } else { &mut info.sends_lost }) += 1;
        }
        if self.state() != QpState::Rts {
            behind.extend(self.ready_late(is_recv));
        }
        if status == WcStatus::Success && !posted.signaled {
            return None;
        }
        let mut out = flushed(self.id, posted.wr_id, posted.opcode);
        out.status = match status {
            // rxe's word for a message that is longer than its receive.
            WcStatus::InvalidWqe if is_recv => WcStatus::Bounds,
            other => other,
        };
        if status == WcStatus::Success {
            self.details(wc, is_recv, &mut out);
        }
        Some(out)
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
                // What the Write placed before it is not counted.
                out.octets = 0;
            }
        }
        if wc.wc_flags & IBV_WC_WITH_INV != 0 {
            let stag = Stag(wc.imm_or_rkey);
            self.parts.memory.invalidated(stag);
            out.invalidated = Some(stag);
        }
    }

    /// Posts after the end whose turn it is.
    fn ready_late(&self, is_recv: bool) -> Vec<WorkCompletion> {
        if lock(if is_recv { &self.recv } else { &self.send }).len() != 0 {
            return Vec::new();
        }
        let mut late = lock(&self.late);
        let (ready, rest) = late.drain(..).partition(|(recv, _)| *recv == is_recv);
        *late = rest;
        let ready: VecDeque<_> = ready;
        ready.into_iter().map(|(_, completion)| completion).collect()
    }

    pub(super) fn flush_late(&self) {
        for (is_recv, cq) in [(false, &self.parts.send_cq), (true, &self.parts.recv_cq)] {
            let ready = self.ready_late(is_recv);
            if !ready.is_empty() {
                cq.inject(ready.into_iter());
            }
        }
    }

    /// Takes a request that no device takes any more.
    pub(super) fn post_late(&self, is_recv: bool, wr_id: u64, opcode: WcOpcode) {
        lock(&self.late).push_back((is_recv, flushed(self.id, wr_id, opcode)));
    }
}
