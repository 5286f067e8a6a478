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

/// A message that was written without being posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtOnce {
    /// Octets of its FPDU.
    pub octets: usize,
    /// Octets of its payload.
    pub payload: u32,
    /// As [`crate::Fpdu::sequence`].
    pub sequence: u64,
}

impl Qp {
    /// Whether the next message may be one for [`Self::transmit_short`].
    pub fn has_short(&self) -> bool {
        self.is_plain() && self.sq.waits()
    }

    /// Writes the message of an operation that is not posted to `out`, as one FPDU that the LLP will certainly accept;
    /// report that by [`Self::handle_sent`]. The operation is then complete. `copy` copies its payload to the front of
    /// a slice and returns the octets, or `None` if they do not fit.
    ///
    /// `None`, and nothing has changed: post it. The SQ is not empty or the LLP has not accepted all FPDUs, so an order
    /// would be lost; or the SQ has no memory yet, and the first request takes it, so that later ones are not refused for
    /// the lack of it; or the message cannot take the fast path or `out` is too short.
    #[inline]
    pub fn send_at_once(
        &mut self,
        op: SendOp,
        copy: impl FnOnce(&mut [u8]) -> Option<usize>,
        out: &mut [u8],
    ) -> Option<AtOnce> {
        if !self.sq.is_idle() || !self.tx.drained() || !self.is_plain() {
            return None;
        }
        let (payload, header) = match op {
            SendOp::Write { stag, to } => {
                let payload = self.copy_behind::<{ TaggedRepr::LEN }>(copy, out)?;
                put(out, &write_header(stag, to));
                (payload, TaggedRepr::LEN)
            }
            SendOp::Send { solicited, invalidate } => {
                let payload = self.copy_behind::<{ UntaggedRepr::LEN }>(copy, out)?;
                put(out, &send_header(solicited, invalidate, self.tx.next_msn(qn::SEND)));
                (payload, UntaggedRepr::LEN)
            }
            _ => return None,
        };
        self.tx.yielded += 1;
        self.stats.octets_sent = self.stats.octets_sent.wrapping_add(payload as u64);
        self.count_short(1);
        let octets = self.tx.framing.seal(out, header + payload);
        Some(AtOnce { octets, payload: payload as u32, sequence: self.tx.yielded })
    }

    /// Has the payload copied behind the header; `None`: it does not fit.
    #[inline]
    fn copy_behind<const HEADER: usize>(
        &self,
        copy: impl FnOnce(&mut [u8]) -> Option<usize>,
        out: &mut [u8],
    ) -> Option<usize> {
        let behind = LENGTH_LEN + HEADER;
        let room = out.len().checked_sub(behind + MAX_PAD + CRC_LEN)?;
        copy(&mut out[behind..behind + room.min(usize::from(self.tx.mulpdu) - HEADER)])
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
    #[inline]
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
