//! Send-type messages that wait for a receive, buffered until one is posted.
//!
//! Without [`QpConfig::hold`](crate::QpConfig) such a message ends the stream. With it the message, and
//! those after it on its queue, wait here in the order of their MSNs, while the rest of the stream
//! goes on: the consumer may wait for a Read Response after them before it posts. The driver bounds
//! the time that a message waits ([`Qp::handle_hold_timeout`]).
//!
//! Owner: the receive half of a QP. Allocates when it buffers a message, at most 96 octets more than it counts, and has
//! no memory when there is none. When the stream ends, or the peer dies, buffered messages are dropped.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::ddp::untagged::Partial;
use crate::error::ProtocolError as Error;
use crate::host::Host;
use crate::qp::rx::{Last, Segment, refused_segment};
use crate::qp::{Qp, State};
use crate::wire::ddp::UntaggedRepr;
use crate::wire::mpa::fpdu_len;

/// One message, or those segments of it that have arrived.
#[derive(Debug)]
struct Message {
    first: Segment,
    msn: u32,
    /// The end of the message, from its last segment.
    last: Option<Last>,
    /// Payload; none of Immediate Data.
    octets: Vec<u8>,
    /// Octets of its FPDUs.
    wire: u32,
}

/// Buffered messages, the oldest first. Only the youngest may be incomplete.
#[derive(Debug, Default)]
pub(crate) struct HeldMessages {
    messages: VecDeque<Message>,
    /// Octets of their FPDUs.
    wire: u32,
}

impl HeldMessages {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
    /// A message has begun that the peer has not finished.
    pub(crate) fn is_open(&self) -> bool {
        self.messages.back().is_some_and(|message| message.last.is_none())
    }
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Checks a segment and allocates room for its payload. The caller has checked its MSN.
    pub(crate) fn admit(&mut self, segment: &Segment, header: &UntaggedRepr) -> Result<(), Error> {
        let open = self.messages.back().filter(|message| message.last.is_none());
        let received = open.map_or(0, |message| message.octets.len() as u32);
        let len = segment.payload_len();
        // Its receive buffer is not known yet.
        Partial { capacity: u32::MAX, received }.check(header.mo, len)?;
        if open.is_none() {
            self.begin(segment, header)?;
        }
        let wire = fpdu_len(segment.ulpdu_len) as u32;
        if let Some(message) = self.messages.back_mut() {
            // There is no memory: our fault, not the peer's [ERR-27]
            message.octets.try_reserve(len as usize).map_err(|_| Error::StreamCatastrophic)?;
            message.wire = message.wire.saturating_add(wire);
            self.wire = self.wire.saturating_add(wire);
        }
        Ok(())
    }
    fn begin(&mut self, segment: &Segment, header: &UntaggedRepr) -> Result<(), Error> {
        self.messages.try_reserve(1).map_err(|_| Error::StreamCatastrophic)?;
        let (first, msn) = (*segment, header.msn);
        self.messages.push_back(Message { first, msn, last: None, octets: Vec::new(), wire: 0 });
        Ok(())
    }
    /// Payload of the segment admitted last, in order: there is room for it.
    pub(crate) fn append(&mut self, octets: &[u8]) {
        if let Some(message) = self.messages.back_mut() {
            message.octets.extend_from_slice(octets);
        }
    }
    /// The message is complete.
    pub(crate) fn complete(&mut self, last: Last) {
        if let Some(message) = self.messages.back_mut().filter(|message| message.last.is_none()) {
            message.last = Some(last);
        }
    }
    fn take(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.wire = self.wire.saturating_sub(message.wire);
        if self.messages.is_empty() {
            self.clear();
        }
        Some(message)
    }
}

impl Qp {
    /// Receives were posted: the buffered messages take them, in order. Call it after receives were
    /// posted while [`Qp::waiting`] returns an MSN.
    pub fn handle_receives<H: Host>(&mut self, host: &mut H) {
        while self.state == State::Rts && !self.rx.hold.is_empty() {
            let Some(capacity) = host.begin_receive() else { return };
            let Some(message) = self.rx.hold.take() else { return };
            if let Err(error) = self.hand_over(&message, capacity, host) {
                self.refuse(error, Some(refused_segment(&message.first, &[])), host);
            }
        }
        // The FIN was after them.
        if self.peer_finished && self.state == State::Rts {
            self.handle_fin(0, host);
        }
    }

    /// The oldest message has waited too long: the stream ends as it does without a hold, for want of
    /// a buffer [ERR-09].
    pub fn handle_hold_timeout<H: Host>(&mut self, host: &mut H) {
        if let Some(oldest) = self.rx.hold.messages.front() {
            let refused = refused_segment(&oldest.first, &[]);
            self.refuse(Error::NoBuffer, Some(refused), host);
        }
    }

    /// MSN of the oldest message that waits for a receive.
    pub fn waiting(&self) -> Option<u32> {
        self.rx.hold.messages.front().map(|message| message.msn)
    }

    /// While a message waits: octets of the stream that may still be read, so that no more than
    /// [`QpConfig::hold`](crate::QpConfig) are buffered. Octets that were read are always accepted, so a
    /// driver calls this before it reads.
    pub fn hold_room(&self) -> Option<u32> {
        let HeldMessages { messages, wire } = &self.rx.hold;
        (!messages.is_empty()).then(|| self.config.hold.saturating_sub(*wire))
    }

    /// A buffered message gets its receive buffer. Later segments of it go there directly.
    fn hand_over<H: Host>(
        &mut self,
        message: &Message,
        capacity: u32,
        host: &mut H,
    ) -> Result<(), Error> {
        let octets = message.octets.len() as u32;
        let (received, expected) = match message.last {
            Some(_) => (octets, octets.into()),
            None => self.rx.redirect(octets),
        };
        // [ERR-12]
        if expected > u64::from(capacity) {
            host.overflow_receive();
            return Err(Error::MessageTooLong);
        }
        if !message.octets.is_empty() {
            host.place_receive(0, &message.octets).map_err(|_| Error::LocalCatastrophic)?;
        }
        match message.last {
            Some(last) => last.complete(received, host),
            None => {
                self.rx.partial = Some(Partial { capacity, received });
                Ok(())
            }
        }
    }
}
