//! Fast path of short messages: Sends and RDMA Writes of one segment, written straight into the LLP's
//! transmit buffer.
//!
//! The octets are those that `tx.rs` yields FPDU by FPDU. What is checked there for each FPDU is
//! checked here once for many, and each WQE is read once. Whatever is not plain (markers, fences,
//! a fault, anything else that is due) takes the slow path.
//!
//! Owner: the QP; touched only by the thread that drives it. When the peer dies nothing more is
//! written; the WQEs are flushed by `close.rs`.

use crate::host::Host;
use crate::qp::sq::Phase;
use crate::qp::work::send_opcode;
use crate::qp::{Qp, State};
use crate::types::{SendOp, SendWqe, Stag};
use crate::wire::ddp::{Control, TaggedRepr, UntaggedRepr};
use crate::wire::mpa::{CRC_LEN, LENGTH_LEN, MAX_PAD};
use crate::wire::rdmap::{self, Opcode, qn};

/// Most payload octets of such a message: up to here a copy is cheaper than one more element in
/// the LLP's scatter/gather list. A page, and a header that a layer above puts before it.
const MAX_PAYLOAD: usize = (4 << 10) + 64;

impl Qp {
    /// Whether the next message may be one for [`Self::transmit_short`].
    pub fn has_short(&self) -> bool {
        self.is_plain() && self.sq.waits()
    }

    /// As [`Self::transmit_short`], for the only message that waits; `None`: there are others, or none, or it cannot
    /// take the fast path or `out` is too short. Returns the FPDU's length and sequence.
    pub fn transmit_one_short<H: Host>(
        &mut self,
        host: &mut H,
        out: &mut [u8],
    ) -> Option<(usize, u64)> {
        if !self.sq.one_waits() || !self.is_plain() {
            return None;
        }
        let (octets, _) = self.write_short(host, out)?;
        self.count_short(1);
        Some((octets, self.tx.yielded))
    }

    /// Whether there is nothing to send in RTS; [`Self::poll_transmit`] would return `None`.
    pub fn is_idle(&self) -> bool {
        self.is_plain() && !self.sq.waits()
    }

    /// Whether only the SQ has something to send: responses to the peer alternate with it [IOP-13].
    fn is_plain(&self) -> bool {
        self.state == State::Rts
            && self.responder.is_empty()
            && self.tx.is_plain()
            && !self.reads_go_on()
    }

    /// Writes FPDUs of short messages to the front of `out`, `most` of them at most, and reports the
    /// length and sequence of each, as in [`crate::Fpdu`]. Returns their number; 0 if the next message
    /// cannot take the fast path or `out` is too short: see [`Self::poll_transmit`].
    pub fn transmit_short<H: Host>(
        &mut self,
        host: &mut H,
        mut out: &mut [u8],
        most: usize,
        mut each: impl FnMut(usize, u64),
    ) -> usize {
        let mut messages = 0;
        if !self.has_short() {
            return messages;
        }
        while messages < most
            && let Some((octets, rest)) = self.write_short(host, out)
        {
            messages += 1;
            out = rest;
            each(octets, self.tx.yielded);
        }
        self.count_short(messages as u64);
        messages
    }

    /// Writes the next WQE's message as one FPDU; returns its octets, and what is left of `out`.
    #[inline(always)] // two callers, and most of what a short message takes
    fn write_short<'o, H: Host>(
        &mut self,
        host: &mut H,
        out: &'o mut [u8],
    ) -> Option<(usize, &'o mut [u8])> {
        let (slot, entry) = self.sq.next_mut()?;
        let SendWqe { op, read_fence: false, local_fence: false } = entry.wqe else { return None };
        let header = header_len(op)?;
        let behind = LENGTH_LEN + header;
        let room = out.len().checked_sub(behind + MAX_PAD + CRC_LEN)?;
        let most = MAX_PAYLOAD.min(usize::from(self.tx.mulpdu) - header).min(room);
        let room = &mut out[..behind + most + MAX_PAD + CRC_LEN];
        let len = host.copy_send(slot, &mut room[behind..behind + most])?;
        match op {
            SendOp::Write { stag, to } => put(room, &write_header(stag, to)),
            SendOp::Send { solicited, invalidate } => {
                entry.msn = self.tx.next_msn(qn::SEND);
                put(room, &send_header(solicited, invalidate, entry.msn));
            }
            _ => return None,
        }
        self.tx.yielded += 1;
        entry.phase = Phase::Yielded(self.tx.yielded);
        entry.octets = len as u32;
        self.sq.count_started();
        self.stats.octets_sent = self.stats.octets_sent.wrapping_add(len as u64);
        let octets = self.tx.framing.seal(room, header + len);
        Some((octets, &mut out[octets..]))
    }

    fn count_short(&mut self, messages: u64) {
        if messages > 0 {
            self.tx.sent_short();
            self.stats.fpdus_sent = self.stats.fpdus_sent.wrapping_add(messages);
            self.stats.messages_sent = self.stats.messages_sent.wrapping_add(messages);
        }
    }
}

/// Octets of the DDP header, for the operations of the fast path.
fn header_len(op: SendOp) -> Option<usize> {
    match op {
        SendOp::Write { .. } => Some(TaggedRepr::LEN),
        SendOp::Send { .. } => Some(UntaggedRepr::LEN),
        _ => None,
    }
}

/// A header after the length field.
fn put<const N: usize>(fpdu: &mut [u8], header: &[u8; N]) {
    fpdu[LENGTH_LEN..LENGTH_LEN + N].copy_from_slice(header);
}

fn write_header(stag: Stag, to: u64) -> [u8; TaggedRepr::LEN] {
    let (control, ulp) = (Control::new(true, true), rdmap::Control::new(Opcode::Write).0);
    TaggedRepr { control, ulp, stag, to }.emit()
}

fn send_header(solicited: bool, invalidate: Option<Stag>, msn: u32) -> [u8; UntaggedRepr::LEN] {
    let ulp = rdmap::Control::new(send_opcode(solicited, invalidate)).0;
    // RFC 5040 4.1 [RDMAP-03]
    let ulp_word = invalidate.map_or(0, |stag| stag.0);
    let control = Control::new(false, true);
    UntaggedRepr { control, ulp, ulp_word, qn: qn::SEND, msn, mo: 0 }.emit()
}
