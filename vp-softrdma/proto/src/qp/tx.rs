//! Transmit half of a QP: chooses the next message, and makes its next segment an FPDU.
//!
//! Owner: the QP; touched only by the thread that drives it. When the peer dies nothing more is
//! yielded; the WQEs are flushed by `close.rs`.

use crate::ddp::segment::{Segment, Segmenter, Target};
use crate::host::{AccessError, Host, LocalFault};
use crate::mpa;
use crate::qp::fpdu::{Fpdu, Head, Payload};
use crate::qp::sq::Phase;
use crate::qp::{LastTerminate, Qp, RefusedHeaders, State};
use crate::rdmap::access;
use crate::rdmap::reads::{Owed, rest_of};
use crate::types::{RtrKind, SendOp, Slot, Stag, Status};
use crate::wire::ddp::{Control, Header, UntaggedRepr};
use crate::wire::rdmap::{
    self, AtomicRequestRepr, AtomicResponseRepr, Opcode, ReadRequestRepr, qn,
};
use crate::wire::terminate::TerminateRepr;

/// STag of zero-length kicks and probes: some hardware refuses 0 [IOP-07].
const HIDDEN_STAG: Stag = Stag(1);

/// Owner of the message that is being segmented.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    Wqe(Slot),
    Response { request: ReadRequestRepr, msn: u32 },
}

/// The message that is being sent; the next one starts when this one ended [DDP-11].
#[derive(Clone, Copy, Debug)]
struct Current {
    source: Source,
    segmenter: Segmenter,
}

/// What the send queue waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stall {
    Fence,
    Ord,
}

/// What `handle_source_fault` undoes.
#[derive(Clone, Copy, Debug)]
struct Undo {
    framing: mpa::Tx,
    source: Source,
    offset: u32,
}

/// State of the transmit half.
#[derive(Debug)]
pub(crate) struct Transmit {
    pub(super) framing: mpa::Tx,
    /// Largest ULPDU to build from now on [MPA-21].
    pub(crate) mulpdu: u16,
    /// The FPDU yielded last.
    pub(crate) yielded: u64,
    /// The last FPDU that the LLP accepted.
    pub(crate) accepted: u64,
    /// Next MSN by queue number.
    pub(crate) msn: [u32; 4],
    current: Option<Current>,
    /// The WQE whose Write is out and whose Immediate Data is next.
    immediate: Option<Slot>,
    undo: Option<Undo>,
    /// What the next WQE waits for.
    pub(super) stall: Option<Stall>,
    /// The peer's Reads go before the SQ's next message.
    pub(super) responses_first: bool,
    /// RFC 5044 7.1.2(4): a responder sends nothing before a valid FPDU arrived [CONN-11].
    pub(crate) allowed: bool,
    /// RTR to send before anything else [CONN-29].
    pub(crate) rtr: Option<RtrKind>,
    pub(crate) kick: bool,
    pub(crate) probe: bool,
    /// To send as the last FPDU of the stream.
    pub(crate) terminate: bool,
}

impl Transmit {
    pub(crate) fn new(framing: mpa::Tx, mulpdu: u16, msn: [u32; 4]) -> Self {
        Self {
            framing,
            mulpdu: mpa::clamp_mulpdu(mulpdu),
            yielded: 0,
            accepted: 0,
            msn,
            current: None,
            immediate: None,
            undo: None,
            stall: None,
            responses_first: false,
            allowed: true,
            rtr: None,
            kick: false,
            probe: false,
            terminate: false,
        }
    }
    /// Everything yielded was accepted by the LLP, and nothing more will be yielded.
    pub(crate) fn drained(&self) -> bool {
        !self.terminate && self.accepted == self.yielded
    }
    /// Only the next message of the SQ is due, and it needs no markers.
    pub(super) fn is_plain(&self) -> bool {
        let due = self.rtr.is_some()
            || self.current.is_some()
            || self.immediate.is_some()
            || self.kick
            || self.probe;
        self.allowed && !due && !self.framing.marks()
    }
    /// Messages of the SQ were written whole.
    pub(super) fn sent_short(&mut self) {
        self.undo = None;
        self.responses_first = true;
    }
    pub(super) fn next_msn(&mut self, queue: u32) -> u32 {
        let Some(next) = self.msn.get_mut(queue as usize) else { return 0 };
        let msn = *next;
        // RFC 5041 4.3 [DDP-06]: FFFFFFFF is followed by 0
        *next = msn.wrapping_add(1);
        msn
    }
    /// Lays out an FPDU.
    fn frame(&mut self, mut head: Head, payload: Payload) -> Fpdu {
        let plan = self.framing.plan(head.ulpdu_part() + payload.len() as u16);
        head.set_length(plan.length_field());
        self.yielded += 1;
        self.undo = None;
        Fpdu { payload, sequence: self.yielded, plan, head }
    }
    /// A message of one segment whose payload is part of the head.
    pub(super) fn frame_inline(
        &mut self,
        opcode: Opcode,
        queue: u32,
        msn: u32,
        octets: &[u8],
    ) -> Fpdu {
        let header = UntaggedRepr {
            control: Control::new(false, true),
            ulp: rdmap::Control::new(opcode).0,
            ulp_word: 0,
            qn: queue,
            msn,
            mo: 0,
        };
        let mut head = Head::new(&header.emit());
        head.put(octets);
        self.frame(head, Payload::None)
    }
    fn frame_segment(&mut self, segment: &Segment, payload: Payload) -> Fpdu {
        let head = match segment.header {
            Header::Tagged(header) => Head::new(&header.emit()),
            Header::Untagged(header) => Head::new(&header.emit()),
        };
        self.frame(head, payload)
    }
    /// A message of length 0 that belongs to no WQE.
    fn frame_empty(&mut self, opcode: Opcode, target: Target) -> Fpdu {
        let segment = Segmenter::new(opcode, target, 0).next(self.mulpdu);
        self.frame_segment(&segment, Payload::None)
    }
}

impl Qp {
    /// The next FPDU to send, or `None` if there is nothing to send now. Alternates fairly, message
    /// by message, between the SQ and inbound Reads. Everything it yields is RDMAP [RDMAP-30].
    pub fn poll_transmit<H: Host>(&mut self, host: &mut H) -> Option<Fpdu> {
        // RDMAC 6.2.3, 6.4(1) [VERBS-10, VERBS-12]: outside RTS no further segment goes out
        let fpdu = match self.state {
            State::Rts if self.tx.allowed => self.next_fpdu(host),
            _ => None,
        };
        // After a fault in this call the Terminate follows at once [RDMAP-28]
        let fpdu = match fpdu {
            None if self.state == State::Terminate => self.terminate_fpdu(),
            fpdu => fpdu,
        }?;
        self.stats.fpdus_sent = self.stats.fpdus_sent.wrapping_add(1);
        self.stats.octets_sent = self.stats.octets_sent.wrapping_add(u64::from(fpdu.payload.len()));
        Some(fpdu)
    }

    fn next_fpdu<H: Host>(&mut self, host: &mut H) -> Option<Fpdu> {
        // RFC 6581 9.2 [CONN-29]
        if let Some(kind) = self.tx.rtr.take() {
            return Some(self.rtr_fpdu(kind));
        }
        if let Some(fpdu) = self.next_segment() {
            return Some(fpdu);
        }
        if let Some(slot) = self.tx.immediate.take() {
            return self.immediate_half(slot);
        }
        if let Some(fpdu) = self.continue_reads() {
            return Some(fpdu);
        }
        if core::mem::take(&mut self.tx.kick) {
            return Some(self.empty_write());
        }
        if self.tx.probe && self.requester.has_room() && self.requester.make_room() {
            self.tx.probe = false;
            return Some(self.empty_read());
        }
        // One message of each in turn: neither side can starve the other [IOP-13]
        if self.tx.responses_first {
            self.next_response(host).or_else(|| self.next_work(host))
        } else {
            self.next_work(host).or_else(|| self.next_response(host))
        }
    }

    /// RFC 5040 section 4.8: the last FPDU of the stream [RDMAP-20, RDMAP-24].
    fn terminate_fpdu(&mut self) -> Option<Fpdu> {
        let due = core::mem::take(&mut self.tx.terminate);
        let LastTerminate { message, .. } =
            self.last_terminate.filter(|last| due && last.is_sent())?;
        let mut octets = [0; TerminateRepr::MAX_LEN];
        let len = message.emit(&mut octets).ok()?;
        let msn = self.tx.next_msn(qn::TERMINATE);
        Some(self.tx.frame_inline(Opcode::Terminate, qn::TERMINATE, msn, &octets[..len]))
    }

    fn rtr_fpdu(&mut self, kind: RtrKind) -> Fpdu {
        // RFC 6581 9.2 [CONN-30]: they use sequence space like any message
        match kind {
            RtrKind::Send => {
                let msn = self.tx.next_msn(qn::SEND);
                let target = Target::Untagged { ulp_word: 0, qn: qn::SEND, msn };
                self.tx.frame_empty(Opcode::Send, target)
            }
            RtrKind::Write => self.empty_write(),
            RtrKind::Read => self.empty_read(),
        }
    }
    fn empty_write(&mut self) -> Fpdu {
        self.tx.frame_empty(Opcode::Write, Target::Tagged { stag: HIDDEN_STAG, to: 0 })
    }
    fn empty_read(&mut self) -> Fpdu {
        let request = ReadRequestRepr {
            sink_stag: HIDDEN_STAG,
            sink_to: 0,
            size: 0,
            source_stag: HIDDEN_STAG,
            source_to: 0,
        };
        self.request_fpdu(None, &request, true)
    }

    // ---- the message in progress ------------------------------------------------------------

    pub(super) fn begin(&mut self, source: Source, segmenter: Segmenter) -> Option<Fpdu> {
        Some(self.cut(Current { source, segmenter }))
    }

    fn next_segment(&mut self) -> Option<Fpdu> {
        let current = self.tx.current.take()?;
        Some(self.cut(current))
    }

    /// The next segment of a message, which stays the current one until its last.
    fn cut(&mut self, mut current: Current) -> Fpdu {
        let framing = self.tx.framing;
        let segment = current.segmenter.next(self.tx.mulpdu);
        let (source, len, offset) = (current.source, segment.len, segment.offset);
        let payload = match source {
            _ if len == 0 => Payload::None,
            Source::Wqe(slot) => Payload::Local { slot, offset, len },
            Source::Response { request, .. } => {
                let to = request.source_to.wrapping_add(u64::from(offset));
                Payload::Source { stag: request.source_stag, to, len }
            }
        };
        let fpdu = self.tx.frame_segment(&segment, payload);
        self.tx.undo = Some(Undo { framing, source, offset });
        if segment.last {
            self.message_ended(source, fpdu.sequence);
        } else {
            self.tx.current = Some(current);
        }
        fpdu
    }

    fn message_ended(&mut self, source: Source, sequence: u64) {
        match source {
            Source::Response { .. } => self.response_ended(),
            Source::Wqe(slot) => {
                let Some(entry) = self.sq.entry(slot) else { return };
                // The Immediate Data of a WriteImmediate follows its Write
                if matches!(entry.wqe.op, SendOp::WriteImmediate { .. }) {
                    self.tx.immediate = Some(slot);
                    return;
                }
                self.work_ended(slot, Phase::Yielded(sequence));
            }
        }
    }

    fn response_ended(&mut self) {
        self.responder.pop();
        self.tx.responses_first = false;
        self.stats.responses_sent = self.stats.responses_sent.wrapping_add(1);
    }

    pub(super) fn work_ended(&mut self, slot: Slot, phase: Phase) {
        self.sq.set_phase(slot, phase);
        self.tx.responses_first = true;
        self.stats.messages_sent = self.stats.messages_sent.wrapping_add(1);
    }

    // ---- the peer's Reads and Atomics -------------------------------------------------------

    fn next_response<H: Host>(&mut self, host: &mut H) -> Option<Fpdu> {
        let owed = self.responder.front().filter(|_| self.state == State::Rts)?;
        match owed {
            // RFC 5040 5.2.2 [RDMAP-05]: the sink's STag and TO are copied, not interpreted
            Owed::Read { request, msn } => {
                let target = Target::Tagged { stag: request.sink_stag, to: request.sink_to };
                let segmenter = Segmenter::new(Opcode::ReadResponse, target, request.size);
                self.begin(Source::Response { request, msn }, segmenter)
            }
            Owed::Executed { request_id, original } => {
                Some(self.atomic_response(request_id, original))
            }
            // RFC 7306 5.4 [EXT-11, EXT-13]: executed when its response is due, so
            // never before the response to an earlier Read or Atomic
            Owed::Atomic { request_id, stag, to, op, msn } => {
                match host.execute_atomic(stag, to, op) {
                    Ok(original) => Some(self.atomic_response(request_id, original)),
                    Err(error) => {
                        let mut refused = refused_request(Opcode::AtomicRequest, msn, None);
                        refused.atomic = Some((stag, to));
                        self.refuse(access::atomic(error), Some(refused), host);
                        None
                    }
                }
            }
        }
    }

    fn atomic_response(&mut self, request_id: u32, original: u64) -> Fpdu {
        self.response_ended();
        let msn = self.tx.next_msn(qn::ATOMIC_RESPONSE);
        let octets = AtomicResponseRepr { request_id, original }.emit();
        self.tx.frame_inline(Opcode::AtomicResponse, qn::ATOMIC_RESPONSE, msn, &octets)
    }

    /// The payload of the FPDU yielded last could not be read; none of it was sent.
    pub fn handle_source_fault<H: Host>(&mut self, fault: AccessError, host: &mut H) {
        let Some(undo) = self.tx.undo.take() else { return };
        if self.state != State::Rts || self.tx.accepted == self.tx.yielded {
            return;
        }
        self.tx.framing = undo.framing;
        self.tx.yielded -= 1;
        match undo.source {
            Source::Wqe(slot) => {
                self.fail_work(slot, Status::Local(LocalFault::Access(fault)), host);
            }
            Source::Response { request, msn } => {
                // RFC 5040 4.8 [RDMAP-23]
                let rest = rest_of(request, undo.offset);
                let refused = refused_request(Opcode::ReadRequest, msn, Some(rest));
                self.refuse(access::read_source(fault), Some(refused), host);
            }
        }
    }
}

/// The segment of a peer's request, rebuilt (reserved bits excepted).
fn refused_request(
    opcode: Opcode,
    msn: u32,
    read_request: Option<ReadRequestRepr>,
) -> RefusedHeaders {
    let payload = match opcode {
        Opcode::ReadRequest => ReadRequestRepr::LEN,
        _ => AtomicRequestRepr::LEN,
    };
    RefusedHeaders {
        header: Header::Untagged(UntaggedRepr {
            control: Control::new(false, true),
            ulp: rdmap::Control::new(opcode).0,
            ulp_word: 0,
            qn: qn::REQUEST,
            msn,
            mo: 0,
        }),
        ulpdu_len: (UntaggedRepr::LEN + payload) as u16,
        read_request,
        atomic: None,
    }
}
