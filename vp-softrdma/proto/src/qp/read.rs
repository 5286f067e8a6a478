//! Outbound RDMA Reads: a long one is split into several Requests, so that the peer can send other
//! messages between the responses (RFC 5041 5.3 forbids it within one) [IOP-13].
//!
//! A WQE starts when it is the next one of the SQ and is done with its last response; ORD bounds how many
//! have started. Their Requests are sent in posting order, before other work; ORD also bounds how many
//! are outstanding. So an Atomic and a read fence wait for all of them; other operations overtake them,
//! as they overtake any Read [RDMAP-19].
//!
//! Owner: the QP; touched only by the thread that drives it. When the peer dies the WQEs are flushed
//! by `close.rs`, and Requests that were not sent are dropped with the stream.

use crate::host::Host;
use crate::qp::Qp;
use crate::qp::fpdu::Fpdu;
use crate::qp::sq::local_status;
use crate::rdmap::reads::{Awaited, Request, rest_of};
use crate::types::{SendOp, Slot};
use crate::wire::rdmap::{Opcode, ReadRequestRepr, qn};

impl Qp {
    /// Starts a Read of `len` octets. `None`: Requests of earlier Reads go first.
    pub(super) fn begin_read(&mut self, slot: Slot, len: u32) -> Option<Fpdu> {
        self.sq.start(slot, len, 0);
        self.requester.begin(slot);
        let fpdu = self.continue_reads()?;
        self.tx.responses_first = true;
        Some(fpdu)
    }
    /// Whether a started Read has Requests left to send.
    pub(super) fn reads_left(&self) -> bool {
        self.requester.unasked().is_some()
    }
    /// Whether one of them can go now.
    pub(super) fn reads_go_on(&self) -> bool {
        self.reads_left() && self.requester.may_ask()
    }
    /// The next Request of the started Reads. It does not count as a turn of the SQ.
    pub(super) fn continue_reads(&mut self) -> Option<Fpdu> {
        if !self.reads_go_on() {
            return None;
        }
        let (slot, asked) = self.requester.unasked()?;
        let first = self.tx.msn[qn::REQUEST as usize];
        let entry = self.sq.entry(slot)?;
        if asked == 0 {
            entry.msn = first;
        }
        let SendOp::Read { sink_stag, sink_to, source_stag, source_to, .. } = entry.wqe.op else {
            return None;
        };
        let size = entry.octets;
        let whole = ReadRequestRepr { sink_stag, sink_to, size, source_stag, source_to };
        let rest = rest_of(whole, asked);
        let size = rest.size.min(self.config.max_read_request.max(1));
        let last = size == rest.size;
        self.requester.asked(size, last);
        self.stats.messages_sent = self.stats.messages_sent.wrapping_add(1);
        Some(self.request_fpdu(Some(slot), &ReadRequestRepr { size, ..rest }, last))
    }

    /// Sends a Read Request; `last`: of its WQE.
    pub(super) fn request_fpdu(
        &mut self,
        slot: Option<Slot>,
        request: &ReadRequestRepr,
        last: bool,
    ) -> Fpdu {
        let ReadRequestRepr { sink_stag, sink_to, size: len, .. } = *request;
        let awaited = Awaited::Read { sink_stag, sink_to, len, last };
        self.requester.push(Request { slot, awaited });
        let msn = self.tx.next_msn(qn::REQUEST);
        self.tx.frame_inline(Opcode::ReadRequest, qn::REQUEST, msn, &request.emit())
    }

    /// RFC 5040 5.5(19) [RDMAP-17]: a Read completes when its response is delivered.
    pub(super) fn finish_read<H: Host>(&mut self, host: &mut H) {
        let Some(request) = self.requester.front() else { return };
        self.requester.pop();
        let (Some(slot), Awaited::Read { last: true, .. }) = (request.slot, request.awaited) else {
            return;
        };
        let op = self.sq.entry(slot).map(|entry| entry.wqe.op);
        if matches!(op, Some(SendOp::Read { invalidate_sink: true, .. }))
            && let Err(fault) = host.invalidate_sink(slot)
        {
            return self.fail_work(slot, local_status(fault), host);
        }
        self.finish_request(slot, host);
    }
}

/// Number of Requests for a Read of `octets`; their MSNs are consecutive.
pub(super) fn requests_of(octets: u32, max_read_request: u32) -> u32 {
    octets.div_ceil(max_read_request.max(1)).max(1)
}
