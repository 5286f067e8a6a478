//! Fast path of receiving: Sends and RDMA Writes of one segment, whole, without markers.
//!
//! Two octets of the header show at once what `rx.rs` and `deliver.rs` find out step by step. Every
//! check is made here, too, but without an error: what does not pass takes the slow path, which fails
//! in the same check and returns the error.
//!
//! Owner: the QP; touched only by the thread that drives it. Nothing here outlives a message.

use crate::ddp::untagged::Partial;
use crate::host::{Host, Receive, TaggedUse};
use crate::qp::Qp;
use crate::qp::rx::Reception;
use crate::wire::ddp::{Control, TaggedRepr, UntaggedRepr};
use crate::wire::mpa::{LENGTH_LEN, MAX_ULPDU, fpdu_len};
use crate::wire::rdmap::{self, Opcode, qn};

/// First octets of a header: the last segment of a Write; of a Send, which may ask for an event.
const WRITE: [u8; 2] = front(true, Opcode::Write);
const SEND: [u8; 2] = front(false, Opcode::Send);
const SEND_SOLICITED: [u8; 2] = front(false, Opcode::SendSolicited);

const fn front(tagged: bool, opcode: Opcode) -> [u8; 2] {
    [Control::new(tagged, true).0, rdmap::Control::new(opcode).0]
}

impl Reception {
    /// No message is incomplete or waits, and FPDUs are contiguous.
    pub(super) fn is_plain(&self) -> bool {
        let waits = self.in_message() || !self.hold.is_empty();
        !waits && !self.expect_empty_send && !self.framing.marks()
    }
}

impl Qp {
    /// Handles as many as it can of the messages at the front of `octets`; returns their octets. In RTS,
    /// with a [`Reception`] that is plain.
    pub(super) fn take_fast<H: Host>(&mut self, octets: &[u8], host: &mut H) -> usize {
        let mut taken = 0;
        while let Some(fpdu) = self.take_one(&octets[taken..], host) {
            taken += fpdu;
        }
        taken
    }

    #[inline]
    fn take_one<H: Host>(&mut self, octets: &[u8], host: &mut H) -> Option<usize> {
        let &[hi, lo, a, b] = octets.first_chunk()?;
        let (ulpdu_len, front) = (u16::from_be_bytes([hi, lo]), [a, b]);
        if front != WRITE && front != SEND && front != SEND_SOLICITED {
            return None;
        }
        let wire = octets.get(..fpdu_len(ulpdu_len))?;
        let ulpdu = wire.get(LENGTH_LEN..LENGTH_LEN + usize::from(ulpdu_len))?;
        // RFC 5044 4.4 [MPA-04]
        if ulpdu_len > MAX_ULPDU || !self.rx.framing.is_intact(wire) {
            return None;
        }
        if front == WRITE {
            self.take_write(ulpdu, host)?;
        } else {
            self.take_send(ulpdu, front == SEND_SOLICITED, host)?;
        }
        self.on_valid_fpdu();
        self.stats.messages_received = self.stats.messages_received.wrapping_add(1);
        Some(wire.len())
    }

    /// RFC 5041 section 7.1 [DDP-15, DDP-21].
    #[inline]
    fn take_write<H: Host>(&mut self, ulpdu: &[u8], host: &mut H) -> Option<()> {
        let TaggedRepr { stag, to, .. } = TaggedRepr::parse(ulpdu).ok()?;
        let payload = &ulpdu[TaggedRepr::LEN..];
        if !payload.is_empty() {
            host.check_tagged(TaggedUse::Write, stag, to, payload.len() as u32).ok()?;
            host.place_tagged(0, payload).ok()?;
        }
        self.rx.wrote(payload.len() as u32);
        self.count_octets(payload);
        Some(())
    }

    /// RFC 5041 section 7.1, RFC 5040 section 5.3 [DDP-12, DDP-14, RDMAP-12, RDMAP-16].
    #[inline]
    fn take_send<H: Host>(&mut self, ulpdu: &[u8], solicited: bool, host: &mut H) -> Option<()> {
        let header = UntaggedRepr::parse(ulpdu).ok()?;
        let expected = self.rx.msn[qn::SEND as usize];
        if header.qn != qn::SEND || header.msn != expected || header.mo != 0 {
            return None;
        }
        let payload = &ulpdu[UntaggedRepr::LEN..];
        let octets = payload.len() as u32;
        let capacity = host.begin_receive()?;
        let fits =
            octets <= capacity && (payload.is_empty() || host.place_receive(0, payload).is_ok());
        if !fits {
            // The slow path continues with the buffer that was taken.
            self.rx.partial = Some(Partial { capacity, received: 0 });
            return None;
        }
        self.rx.msn[qn::SEND as usize] = expected.wrapping_add(1);
        self.count_octets(payload);
        host.complete_receive(Receive { octets, solicited, invalidated: None, immediate: None });
        Some(())
    }

    fn count_octets(&mut self, payload: &[u8]) {
        let octets = payload.len() as u64;
        self.stats.octets_received = self.stats.octets_received.wrapping_add(octets);
    }
}
