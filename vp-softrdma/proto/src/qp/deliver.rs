//! Checks of each kind of inbound segment, and the completion of messages.
//!
//! Owner: the QP; touched only by the thread that drives it. Nothing here outlives the stream.

use crate::ddp::untagged::{Partial, check_msn, check_request};
use crate::error::ProtocolError as Error;
use crate::host::{Host, LocalFault, TaggedUse};
use crate::qp::Qp;
use crate::qp::rx::{Landing, Last, Segment};
use crate::qp::sq::Phase;
use crate::rdmap::access;
use crate::rdmap::reads::{Awaited, Owed, atomic_op};
use crate::types::{Slot, Status};
use crate::wire::ddp::{Header, TaggedRepr, UntaggedRepr};
use crate::wire::rdmap::{
    AtomicRequestRepr, AtomicResponseRepr, ImmediateRepr, Opcode, ReadRequestRepr, qn,
};
use crate::wire::terminate::TerminateRepr;

const SEND: usize = qn::SEND as usize;
const REQUEST: usize = qn::REQUEST as usize;
const ATOMIC_RESPONSE: usize = qn::ATOMIC_RESPONSE as usize;

impl Qp {
    /// All checks before the first octet of a Write, Read Response or Send-type segment is placed.
    #[inline]
    pub(super) fn admit<H: Host>(
        &mut self,
        segment: &Segment,
        host: &mut H,
    ) -> Result<Landing, Error> {
        match segment.header {
            Header::Tagged(header) => self.admit_tagged(segment, &header, host),
            Header::Untagged(header) => self.admit_send(segment, &header, host),
        }
    }
    /// The segment is placed: counts, and completes the message if this was its last one.
    #[inline]
    pub(super) fn deliver<H: Host>(
        &mut self,
        segment: &Segment,
        host: &mut H,
    ) -> Result<(), Error> {
        let octets = segment.payload_len();
        self.stats.octets_received = self.stats.octets_received.wrapping_add(u64::from(octets));
        self.stats.messages_received =
            self.stats.messages_received.wrapping_add(u64::from(segment.last()));
        match (segment.opcode, segment.header) {
            // RFC 5040 5.1 [RDMAP-15]: never reported to the ULP
            (Opcode::Write, _) => {
                self.rx.count_write(octets, segment.last());
                Ok(())
            }
            (Opcode::ReadResponse, _) => {
                self.requester.count(octets);
                if segment.last() {
                    self.finish_read(host);
                }
                Ok(())
            }
            (_, Header::Untagged(header)) => self.deliver_send(segment, &header, host),
            (_, Header::Tagged(_)) => Ok(()),
        }
    }

    // ---- tagged -----------------------------------------------------------------------------

    /// RFC 5041 section 7.1, RFC 5040 section 5.2.2 [DDP-15, DDP-21, SEC-03, SEC-05]: the host
    /// checks every segment, so that a revoked STag stops a message in the middle.
    fn admit_tagged<H: Host>(
        &mut self,
        segment: &Segment,
        header: &TaggedRepr,
        host: &mut H,
    ) -> Result<Landing, Error> {
        let (stag, to, len) = (header.stag, header.to, segment.payload_len());
        let use_ = if segment.opcode == Opcode::ReadResponse {
            self.requester.check_response(stag, to, len, segment.last())?;
            TaggedUse::ReadResponse
        } else {
            TaggedUse::Write
        };
        // RFC 5041 5.2 [DDP-10]
        if len == 0 {
            return Ok(Landing::Empty);
        }
        host.check_tagged(use_, stag, to, len).map_err(access::tagged)?;
        Ok(Landing::Tagged)
    }

    pub(super) fn finish_request<H: Host>(&mut self, slot: Slot, host: &mut H) {
        self.sq.set_phase(slot, Phase::Done);
        self.sq.retire(self.tx.accepted, host);
    }

    // ---- queue 0 ----------------------------------------------------------------------------

    /// RFC 5041 section 7.1 [DDP-14, RDMAP-12]: a message takes exactly one buffer, also at length
    /// 0, and the first segment takes it.
    fn admit_send<H: Host>(
        &mut self,
        segment: &Segment,
        header: &UntaggedRepr,
        host: &mut H,
    ) -> Result<Landing, Error> {
        let len = segment.payload_len();
        check_msn(header, self.rx.msn[SEND])?;
        if self.is_empty_send(segment) {
            return Ok(Landing::Empty);
        }
        let partial = match self.rx.partial {
            Some(partial) => partial,
            None => match self.find_buffer(host)? {
                Some(capacity) => Partial { capacity, received: 0 },
                None => return self.rx.hold.admit(segment, header).map(|()| Landing::Hold),
            },
        };
        self.rx.partial = Some(partial);
        partial.check(header.mo, len).inspect_err(|&error| {
            if error == Error::MessageTooLong {
                host.overflow_receive();
            }
        })?;
        Ok(if len == 0 { Landing::Empty } else { Landing::Buffer(header.mo) })
    }
    /// Capacity of the next receive buffer for a new message. `None`, and the message waits: none is
    /// posted, or earlier messages wait for one.
    fn find_buffer<H: Host>(&mut self, host: &mut H) -> Result<Option<u32>, Error> {
        if !self.rx.hold.is_empty() {
            return Ok(None);
        }
        match host.begin_receive() {
            // [ERR-09]
            None if self.config.hold == 0 => Err(Error::NoBuffer),
            capacity => Ok(capacity),
        }
    }
    /// The RTR of flag B (RFC 6581 9.2): counts as MSN 1 but takes no buffer [CONN-30].
    fn is_empty_send(&self, segment: &Segment) -> bool {
        self.rx.expect_empty_send
            && self.rx.partial.is_none()
            && segment.opcode == Opcode::Send
            && segment.last()
            && segment.payload_len() == 0
    }

    /// RFC 5041 section 5.4, RFC 5040 section 5.3 [DDP-12, DDP-13, RDMAP-16].
    fn deliver_send<H: Host>(
        &mut self,
        segment: &Segment,
        header: &UntaggedRepr,
        host: &mut H,
    ) -> Result<(), Error> {
        let Some(partial) = self.rx.partial.as_mut() else {
            if segment.last() {
                self.rx.hold.complete(Last::new(segment, header));
                self.next_send();
            }
            return Ok(());
        };
        partial.received += segment.payload_len();
        let octets = partial.received;
        if !segment.last() {
            return Ok(());
        }
        self.next_send();
        Last::new(segment, header).complete(octets, host)
    }
    fn next_send(&mut self) {
        self.rx.partial = None;
        self.rx.msn[SEND] = self.rx.msn[SEND].wrapping_add(1);
    }

    /// RFC 7306 section 6.3 [EXT-02, EXT-03].
    fn handle_immediate<H: Host>(
        &mut self,
        segment: &Segment,
        header: &UntaggedRepr,
        inline: &[u8],
        host: &mut H,
    ) -> Result<(), Error> {
        check_msn(header, self.rx.msn[SEND])?;
        if header.mo != 0 || self.rx.partial.is_some() || self.rx.hold.is_open() {
            return Err(Error::MessageOffset);
        }
        if !segment.last() {
            return Err(Error::NotLast);
        }
        if segment.payload_len() as usize != ImmediateRepr::LEN {
            return Err(Error::ImmediateLength);
        }
        let ImmediateRepr(data) =
            ImmediateRepr::parse(inline).map_err(|_| Error::ImmediateLength)?;
        let last = Last::alone(segment, data, self.rx.written_before());
        let kept = self.find_buffer(host)?.is_none();
        if kept {
            self.rx.hold.admit(segment, header)?;
            self.rx.hold.complete(last);
        }
        self.next_send();
        if kept { Ok(()) } else { last.complete(0, host) }
    }

    // ---- queues 1, 2, 3 ---------------------------------------------------------------------

    /// Messages that the core itself understands.
    pub(super) fn handle_control<H: Host>(
        &mut self,
        segment: &Segment,
        inline: &[u8],
        host: &mut H,
    ) -> Result<(), Error> {
        let Header::Untagged(header) = segment.header else { return Err(Error::Opcode) };
        self.stats.messages_received = self.stats.messages_received.wrapping_add(1);
        match segment.opcode {
            Opcode::ReadRequest => self.handle_read_request(segment, &header, inline, host),
            Opcode::AtomicRequest => self.handle_atomic_request(segment, &header, inline, host),
            Opcode::AtomicResponse => self.handle_atomic_response(segment, &header, inline, host),
            Opcode::Immediate | Opcode::ImmediateSolicited => {
                self.handle_immediate(segment, &header, inline, host)
            }
            Opcode::Terminate => self.handle_terminate(&header, inline, host),
            _ => Err(Error::Opcode),
        }
    }

    /// RFC 5040 section 5.2.1 [RDMAP-04, RDMAP-06, RDMAP-07, RDMAP-08]: over an in-order stream all
    /// that came earlier is placed by now.
    fn handle_read_request<H: Host>(
        &mut self,
        segment: &Segment,
        header: &UntaggedRepr,
        inline: &[u8],
        host: &mut H,
    ) -> Result<(), Error> {
        self.responder.check_room()?;
        check_request(header, segment.payload_len(), ReadRequestRepr::LEN)?;
        check_msn(header, self.rx.msn[REQUEST])?;
        let request = ReadRequestRepr::parse(inline).map_err(|_| Error::RequestShort)?;
        // An empty Read needs no right [SEC-14]
        if request.size > 0 {
            host.check_read_source(request.source_stag, request.source_to, request.size)
                .map_err(access::read_source)?;
        }
        self.rx.msn[REQUEST] = header.msn.wrapping_add(1);
        self.responder.push(Owed::Read { request, msn: header.msn });
        Ok(())
    }

    /// RFC 7306 section 5.2.1 [EXT-04, EXT-05, EXT-11].
    fn handle_atomic_request<H: Host>(
        &mut self,
        segment: &Segment,
        header: &UntaggedRepr,
        inline: &[u8],
        host: &mut H,
    ) -> Result<(), Error> {
        self.responder.check_room()?;
        check_request(header, segment.payload_len(), AtomicRequestRepr::LEN)?;
        check_msn(header, self.rx.msn[REQUEST])?;
        let request = AtomicRequestRepr::parse(inline).map_err(|_| Error::RequestShort)?;
        let op = atomic_op(&request)?;
        let AtomicRequestRepr { request_id, stag, to, .. } = request;
        self.rx.msn[REQUEST] = header.msn.wrapping_add(1);
        // RFC 7306 5.4 [EXT-13]: never before the response to an earlier Read or Atomic; if there is
        // none, at once, so that its error comes before any error after it [RDMAP-25]
        self.responder.push(if self.responder.front().is_some() {
            Owed::Atomic { request_id, stag, to, op, msn: header.msn }
        } else {
            let original = host.execute_atomic(stag, to, op).map_err(access::atomic)?;
            Owed::Executed { request_id, original }
        });
        Ok(())
    }

    /// RFC 7306 section 5.2.2 [EXT-10, EXT-11, EXT-13].
    fn handle_atomic_response<H: Host>(
        &mut self,
        segment: &Segment,
        header: &UntaggedRepr,
        inline: &[u8],
        host: &mut H,
    ) -> Result<(), Error> {
        if !self.requester.awaits_atomic() {
            return Err(Error::NoBuffer);
        }
        if header.mo != 0 {
            return Err(Error::MessageOffset);
        }
        check_msn(header, self.rx.msn[ATOMIC_RESPONSE])?;
        if !segment.last() {
            return Err(Error::NotLast);
        }
        if segment.payload_len() as usize != AtomicResponseRepr::LEN {
            return Err(Error::AtomicResponse);
        }
        let response = AtomicResponseRepr::parse(inline).map_err(|_| Error::AtomicResponse)?;
        let oldest = self.requester.front();
        let Some((Some(slot), Awaited::Atomic { request_id })) =
            oldest.map(|request| (request.slot, request.awaited))
        else {
            return Err(Error::AtomicResponse);
        };
        if response.request_id != request_id {
            return Err(Error::AtomicResponse);
        }
        self.rx.msn[ATOMIC_RESPONSE] = header.msn.wrapping_add(1);
        self.requester.pop();
        match host.place_atomic_result(slot, response.original) {
            Ok(()) => self.finish_request(slot, host),
            Err(error) => {
                self.fail_work(slot, Status::Local(LocalFault::Access(error)), host);
            }
        }
        Ok(())
    }

    /// RFC 5040 section 5.4 [RDMAP-26, RDMAP-32, RDMAP-33, ERR-26].
    fn handle_terminate<H: Host>(
        &mut self,
        header: &UntaggedRepr,
        inline: &[u8],
        host: &mut H,
    ) -> Result<(), Error> {
        check_msn(header, self.rx.msn[qn::TERMINATE as usize])?;
        if header.mo != 0 {
            return Err(Error::MessageOffset);
        }
        let terminate = TerminateRepr::parse(inline).map_err(|_| Error::MalformedTerminate)?;
        self.terminated(&terminate, host);
        Ok(())
    }
}
