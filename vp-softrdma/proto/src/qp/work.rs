//! Scheduling of the send queue: which work request is next, and the first FPDU of its message.
//!
//! Owner: the QP; touched only by the thread that drives it. When the peer dies the WQEs are flushed
//! by `close.rs`.

use crate::ddp::segment::{Segmenter, Target};
use crate::error::ProtocolError;
use crate::host::{Host, LocalFault};
use crate::qp::fpdu::Fpdu;
use crate::qp::sq::{Phase, local_status};
use crate::qp::tx::{Source, Stall};
use crate::qp::{Qp, State};
use crate::types::{SendOp, SendWqe, Slot, Stag, Status};
use crate::wire::rdmap::{AtomicRequestRepr, ImmediateRepr, Opcode, atomic, qn};

impl Qp {
    pub(super) fn next_work<H: Host>(&mut self, host: &mut H) -> Option<Fpdu> {
        while self.state == State::Rts {
            let (slot, wqe, first) = self.sq.next()?;
            if !self.may_start(&wqe, first) {
                return None;
            }
            // RDMAC 6.5 [VERBS-15]
            if is_request(wqe.op) && self.requester.limit == 0 {
                self.sq.start(slot, 0, 0);
                self.fail_work(slot, Status::ZeroReadResources, host);
                return None;
            }
            if !self.may_send(wqe.op) {
                self.sq.start(slot, 0, 0);
                self.fail_work(slot, Status::Local(LocalFault::Wqe), host);
                return None;
            }
            if wqe.op == SendOp::Local {
                self.sq.start(slot, 0, 0);
                // RDMAC 8.2.2(15) [VERBS-17]: in effect before the next WQE starts
                if let Err(fault) = host.execute_local(slot) {
                    self.fail_work(slot, local_status(fault), host);
                    return None;
                }
                self.sq.set_phase(slot, Phase::Done);
                self.sq.retire(self.tx.accepted, host);
                continue;
            }
            match host.begin_send(slot) {
                Ok(len) => {
                    let fpdu = self.start_work(slot, wqe.op, len);
                    if fpdu.is_some() {
                        return fpdu;
                    }
                }
                Err(fault) => {
                    self.sq.start(slot, 0, 0);
                    self.fail_work(slot, local_status(fault), host);
                }
            }
        }
        None
    }

    fn start_work(&mut self, slot: Slot, op: SendOp, len: u32) -> Option<Fpdu> {
        match op {
            SendOp::Send { solicited, invalidate } => {
                let opcode = send_opcode(solicited, invalidate);
                // RFC 5040 4.1 [RDMAP-03]
                self.begin_send(slot, opcode, invalidate.map_or(0, |stag| stag.0), len)
            }
            SendOp::SendImmediate { immediate, solicited: false } => {
                self.begin_send(slot, Opcode::SendImmediate, immediate, len)
            }
            SendOp::SendImmediate { immediate, solicited: true } => {
                self.begin_send(slot, Opcode::SendImmediateSolicited, immediate, len)
            }
            SendOp::Write { stag, to } | SendOp::WriteImmediate { stag, to, .. } => {
                self.sq.start(slot, len, 0);
                let target = Target::Tagged { stag, to };
                self.begin(Source::Wqe(slot), Segmenter::new(Opcode::Write, target, len))
            }
            SendOp::Read { .. } => self.begin_read(slot, len),
            SendOp::Immediate { data, solicited } => {
                let msn = self.tx.msn[qn::SEND as usize];
                self.sq.start(slot, ImmediateRepr::LEN as u32, msn);
                Some(self.immediate_fpdu(slot, data, solicited))
            }
            // RFC 7306 5.1.1 [EXT-06]
            SendOp::FetchAdd { stag, to, add, mask } => {
                let (operation, compare, compare_mask) = (atomic::FETCH_ADD, 0, u64::MAX);
                let operands = [add, mask, compare, compare_mask];
                self.atomic_fpdu(slot, operation, stag, to, operands)
            }
            // RFC 7306 5.1.2 [EXT-07]
            SendOp::CmpSwap { stag, to, compare, compare_mask, swap, swap_mask } => {
                let operands = [swap, swap_mask, compare, compare_mask];
                self.atomic_fpdu(slot, atomic::CMP_SWAP, stag, to, operands)
            }
            SendOp::Local => None,
        }
    }

    fn begin_send(&mut self, slot: Slot, opcode: Opcode, ulp_word: u32, len: u32) -> Option<Fpdu> {
        let msn = self.tx.next_msn(qn::SEND);
        self.sq.start(slot, len, msn);
        let target = Target::Untagged { ulp_word, qn: qn::SEND, msn };
        self.begin(Source::Wqe(slot), Segmenter::new(opcode, target, len))
    }

    /// Whether an operation that is none of RFC 5040 may be posted.
    pub(super) fn may_extend(&self, op: SendOp) -> bool {
        match op {
            // In Idle this is not known yet: it is checked when the WQE starts.
            SendOp::SendImmediate { .. } => self.send_immediates || self.state != State::Rts,
            // RFC 7306 1.1 [EXT-16]
            _ => self.config.extensions,
        }
    }

    /// Whether the ends of this stream agreed on the operation.
    pub(super) fn may_send(&self, op: SendOp) -> bool {
        !matches!(op, SendOp::SendImmediate { .. }) || self.send_immediates
    }

    /// RFC 7306 section 5.2.1 [EXT-04]: on QN 1, sharing MSN and ORD with Reads [EXT-11].
    fn atomic_fpdu(
        &mut self,
        slot: Slot,
        operation: u8,
        stag: Stag,
        to: u64,
        [data, mask, compare, compare_mask]: [u64; 4],
    ) -> Option<Fpdu> {
        let request_id = self.requester.next_id;
        let request = AtomicRequestRepr {
            operation,
            request_id,
            stag,
            to,
            data,
            mask,
            compare,
            compare_mask,
        };
        self.requester.next_id = request_id.wrapping_add(1);
        self.requester.push_atomic(slot, request_id);
        let msn = self.tx.next_msn(qn::REQUEST);
        self.sq.start(slot, size_of::<u64>() as u32, msn);
        self.work_ended(slot, Phase::Started);
        Some(self.tx.frame_inline(Opcode::AtomicRequest, qn::REQUEST, msn, &request.emit()))
    }

    /// RFC 7306 section 6 [EXT-02, EXT-03].
    fn immediate_fpdu(&mut self, slot: Slot, data: u64, solicited: bool) -> Fpdu {
        let opcode = if solicited { Opcode::ImmediateSolicited } else { Opcode::Immediate };
        let msn = self.tx.next_msn(qn::SEND);
        let fpdu = self.tx.frame_inline(opcode, qn::SEND, msn, &ImmediateRepr(data).emit());
        self.work_ended(slot, Phase::Yielded(fpdu.sequence));
        fpdu
    }
    pub(super) fn immediate_half(&mut self, slot: Slot) -> Option<Fpdu> {
        let next_msn = self.tx.msn[qn::SEND as usize];
        let entry = self.sq.entry(slot)?;
        let SendOp::WriteImmediate { data, solicited, .. } = entry.wqe.op else { return None };
        entry.msn = next_msn;
        Some(self.immediate_fpdu(slot, data, solicited))
    }

    /// Fences and ORD; the queue stalls in order (RDMAC 6.5, 8.2.2.2) [VERBS-15, VERBS-17]. Without
    /// a fence work overtakes the Reads before it [RDMAP-19].
    fn may_start(&mut self, wqe: &SendWqe, first: bool) -> bool {
        let fenced =
            (wqe.local_fence && !first) || (wqe.read_fence && self.requester.visible() > 0);
        let full = self.requester.limit > 0
            && match wqe.op {
                SendOp::Read { .. } => !self.requester.may_begin(),
                // RFC 7306 5.4 [EXT-13]: the Requests of earlier Reads go first
                op => is_request(op) && (self.reads_left() || !self.requester.has_room()),
            };
        let stall = match (fenced, full) {
            (true, _) => Some(Stall::Fence),
            (false, true) => Some(Stall::Ord),
            (false, false) => None,
        };
        self.note_stall(stall);
        stall.is_none()
    }

    /// Counts each wait once, however often it is checked.
    fn note_stall(&mut self, stall: Option<Stall>) {
        if core::mem::replace(&mut self.tx.stall, stall) == stall {
            return;
        }
        match stall {
            Some(Stall::Fence) => {
                self.stats.fence_stalls = self.stats.fence_stalls.wrapping_add(1);
            }
            Some(Stall::Ord) => self.stats.ord_stalls = self.stats.ord_stalls.wrapping_add(1),
            None => {}
        }
    }

    /// A work request that cannot be executed: it completes in error, a Terminate goes instead of
    /// its message, everything else is flushed (RFC 5040 7.1(1)) [RDMAP-28, ERR-27, VERBS-18].
    pub(super) fn fail_work<H: Host>(&mut self, slot: Slot, status: Status, host: &mut H) {
        self.sq.set_phase(slot, Phase::Failed(status));
        self.fail_locally(ProtocolError::LocalCatastrophic, host);
    }
}

/// RFC 5040 section 5.3.
pub(super) fn send_opcode(solicited: bool, invalidate: Option<Stag>) -> Opcode {
    match (solicited, invalidate.is_some()) {
        (false, false) => Opcode::Send,
        (false, true) => Opcode::SendInvalidate,
        (true, false) => Opcode::SendSolicited,
        (true, true) => Opcode::SendSolicitedInvalidate,
    }
}

/// Whether it awaits a response, and so counts against ORD.
pub(super) fn is_request(op: SendOp) -> bool {
    matches!(op, SendOp::Read { .. } | SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. })
}
