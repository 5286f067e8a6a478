//! RDMA Reads and Atomics: outstanding ones of ours (limit ORD) and of the peer (limit IRD).
//!
//! Owner: the QP; both queues are allocated when it is created. When the peer dies they are
//! cleared; the WQEs after ours are flushed by the send queue.

use crate::error::ProtocolError;
use crate::host::AtomicOp;
use crate::ring::Ring;
use crate::types::{Slot, Stag};
use crate::wire::rdmap::{AtomicRequestRepr, ReadRequestRepr, atomic};

/// The kind of response that must come next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaited {
    /// RDMA Read Response into the sink we named; `last`: of its WQE.
    Read { sink_stag: Stag, sink_to: u64, len: u32, last: bool },
    /// Atomic Response with our identifier.
    Atomic { request_id: u32 },
}

/// A request of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    /// Its WQE; `None`: an RTR or a probe, which has no completion [CONN-30].
    pub(crate) slot: Option<Slot>,
    pub(crate) awaited: Awaited,
}

impl Request {
    /// It is the last one of its WQE.
    fn is_last(&self) -> bool {
        self.slot.is_some() && !matches!(self.awaited, Awaited::Read { last: false, .. })
    }
}

/// Our started Reads and Atomics, and their requests without a complete response, oldest first.
#[derive(Debug)]
pub(crate) struct Requester {
    ring: Ring<Request>,
    /// Reads that have Requests left to send.
    unasked: Ring<Slot>,
    /// Octets requested so far of the oldest of them.
    asked: u32,
    /// ORD of the stream.
    pub(crate) limit: u16,
    /// Octets received of the oldest Read's response.
    received: u32,
    /// WQEs that started and are not done.
    open: u32,
    /// Entries without a WQE.
    hidden: u32,
    /// Identifier of the next Atomic Request.
    pub(crate) next_id: u32,
}

impl Requester {
    /// Room for `max_ord` requests; one even if that is 0, for a Read RTR.
    pub(crate) fn new(max_ord: u16) -> Self {
        let (ring, unasked) = (Ring::new(u32::from(max_ord)), Ring::new(u32::from(max_ord)));
        Self { ring, unasked, asked: 0, limit: 0, received: 0, open: 0, hidden: 0, next_id: 1 }
    }
    pub(crate) fn clear(&mut self) {
        self.ring.clear();
        self.unasked.clear();
        (self.asked, self.received, self.open, self.hidden) = (0, 0, 0, 0);
    }
    /// Has the memory for its entries; false if there is none.
    pub(crate) fn make_room(&mut self) -> bool {
        self.ring.make_room() && self.unasked.make_room()
    }
    /// Reads and Atomics of the consumer.
    pub(crate) fn visible(&self) -> u32 {
        self.open
    }
    /// Requests without a completion: RTR, probe.
    pub(crate) fn hidden(&self) -> u32 {
        self.hidden
    }
    /// Whether ORD permits another request now (RFC 5040 section 6.1) [RDMAP-11].
    pub(crate) fn has_room(&self) -> bool {
        self.ring.len() < self.most()
    }
    /// Whether ORD permits another Read to start (RDMAC 6.5) [VERBS-15].
    pub(crate) fn may_begin(&self) -> bool {
        self.open + self.hidden < self.most()
    }
    fn most(&self) -> u32 {
        u32::from(self.limit).min(self.ring.capacity())
    }

    /// A Read whose Requests are to follow.
    pub(crate) fn begin(&mut self, slot: Slot) {
        self.unasked.push(slot);
        self.open += 1;
    }
    /// The Read of the next Request, and its octets requested so far.
    pub(crate) fn unasked(&self) -> Option<(Slot, u32)> {
        self.unasked.front().map(|&slot| (slot, self.asked))
    }
    /// Whether a started Read may send a Request. An ORD that was lowered since does not stop it (RDMAC
    /// 9.2.5.2), even at 0.
    pub(crate) fn may_ask(&self) -> bool {
        self.ring.is_empty() || self.has_room()
    }
    /// A Request for so many octets goes out.
    pub(crate) fn asked(&mut self, octets: u32, last: bool) {
        self.asked += octets;
        if last {
            self.unasked.pop();
            self.asked = 0;
        }
    }
    /// An Atomic: one request, out at once.
    pub(crate) fn push_atomic(&mut self, slot: Slot, request_id: u32) {
        self.open += 1;
        self.push(Request { slot: Some(slot), awaited: Awaited::Atomic { request_id } });
    }
    pub(crate) fn push(&mut self, request: Request) {
        if self.ring.push(request).is_some() {
            self.hidden += u32::from(request.slot.is_none());
        }
    }
    pub(crate) fn front(&self) -> Option<Request> {
        self.ring.front().copied()
    }
    pub(crate) fn awaits_atomic(&self) -> bool {
        self.ring.iter().any(|r| matches!(r.awaited, Awaited::Atomic { .. }))
    }
    /// Takes the oldest out: its response is complete.
    pub(crate) fn pop(&mut self) {
        if let Some(request) = self.ring.pop() {
            self.hidden -= u32::from(request.slot.is_none());
            self.open -= u32::from(request.is_last());
        }
        self.received = 0;
    }
    /// Counts octets of the oldest Read's response.
    pub(crate) fn count(&mut self, octets: u32) {
        self.received += octets;
    }

    /// Checks a segment of an RDMA Read Response against the oldest request [RDMAP-10, ERR-24].
    pub(crate) fn check_response(
        &self,
        stag: Stag,
        to: u64,
        len: u32,
        last: bool,
    ) -> Result<(), ProtocolError> {
        let Some(Awaited::Read { sink_stag, sink_to, len: size, .. }) =
            self.ring.front().map(|r| r.awaited)
        else {
            return Err(ProtocolError::UnsolicitedReadResponse);
        };
        let end = u64::from(self.received) + u64::from(len);
        if len > 0 {
            // RFC 5041 5.2 [DDP-10]: neither is checked in an empty segment
            if stag != sink_stag {
                return Err(ProtocolError::TaggedStag);
            }
            if to != sink_to.wrapping_add(u64::from(self.received)) {
                return Err(ProtocolError::TaggedBounds);
            }
        }
        // RFC 5040 5.2.2 [RDMAP-05]: exactly as many octets as requested
        if end > u64::from(size) || (last && end < u64::from(size)) {
            return Err(ProtocolError::TaggedBounds);
        }
        Ok(())
    }
}

/// A request of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owed {
    Read {
        request: ReadRequestRepr,
        msn: u32,
    },
    Atomic {
        request_id: u32,
        stag: Stag,
        to: u64,
        op: AtomicOp,
        msn: u32,
    },
    /// An Atomic that was executed on arrival; only its response is due.
    Executed {
        request_id: u32,
        original: u64,
    },
}

/// The peer's requests without a complete response, oldest first [RDMAP-09].
#[derive(Debug)]
pub(crate) struct Responder {
    ring: Ring<Owed>,
    /// IRD of the stream.
    pub(crate) limit: u16,
}

impl Responder {
    /// Room for `max_ird` requests; one even if that is 0, for a Read RTR.
    pub(crate) fn new(max_ird: u16) -> Self {
        Self { ring: Ring::new(u32::from(max_ird)), limit: 0 }
    }
    pub(crate) fn clear(&mut self) {
        self.ring.clear();
    }
    /// Whether there is more than zero-length Reads, which are the peer's probes.
    pub(crate) fn owes_data(&self) -> bool {
        self.ring
            .iter()
            .any(|owed| !matches!(owed, Owed::Read { request, .. } if request.size == 0))
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }
    pub(crate) fn front(&self) -> Option<Owed> {
        self.ring.front().copied()
    }
    pub(crate) fn pop(&mut self) {
        self.ring.pop();
    }
    /// Whether another request may come in (RFC 5040 section 6.1) [ERR-19, ERR-20, RDMAP-11,
    /// SEC-10].
    pub(crate) fn check_room(&mut self) -> Result<(), ProtocolError> {
        if self.limit == 0 {
            return Err(ProtocolError::ReadDisabled);
        }
        if self.ring.len() >= u32::from(self.limit).min(self.ring.capacity()) {
            return Err(ProtocolError::ReadQueueOverflow);
        }
        if !self.ring.make_room() {
            return Err(ProtocolError::StreamCatastrophic);
        }
        Ok(())
    }
    pub(crate) fn push(&mut self, owed: Owed) {
        self.ring.push(owed);
    }
}

/// The operation that an Atomic Request asks for (RFC 7306 section 5.2.1) [EXT-05].
pub(crate) fn atomic_op(request: &AtomicRequestRepr) -> Result<AtomicOp, ProtocolError> {
    match request.operation {
        // RFC 7306 5.1.1 [EXT-06]: compare fields are ignored
        atomic::FETCH_ADD => Ok(AtomicOp::FetchAdd { add: request.data, mask: request.mask }),
        // RFC 7306 5.1.2 [EXT-07]
        atomic::CMP_SWAP => Ok(AtomicOp::CmpSwap {
            compare: request.compare,
            compare_mask: request.compare_mask,
            swap: request.data,
            swap_mask: request.mask,
        }),
        _ => Err(ProtocolError::AtomicOpcode),
    }
}

/// What a Terminated Read header says after `done` octets were returned: both offsets advanced, the
/// size reduced (RFC 5040 section 4.8) [RDMAP-23].
pub(crate) fn rest_of(request: ReadRequestRepr, done: u32) -> ReadRequestRepr {
    ReadRequestRepr {
        sink_to: request.sink_to.wrapping_add(u64::from(done)),
        source_to: request.source_to.wrapping_add(u64::from(done)),
        size: request.size - done,
        ..request
    }
}
