//! The QP: MPA, DDP and RDMAP composed into one state machine.

use crate::error::{ProtocolError, TerminateCode};
use crate::host::{AccessError, Host};
use crate::types::{Crc32c, Role, RtrKind, SendWqe, Slot, Stag};

/// The five states of RDMAC Verbs 6.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum State {
    Idle,
    Rts,
    Closing,
    Terminate,
    Error,
}

/// What is fixed when a QP is created.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Send-queue WQEs.
    pub sq_depth: u32,
    /// Inbound Read/Atomic requests that may wait: allocated once, the negotiated IRD may be lower.
    pub max_ird: u16,
    /// Outstanding Reads/Atomics: allocated once, the negotiated ORD may be lower.
    pub max_ord: u16,
    /// RFC 7306 (atomics, immediate data) accepted and offered.
    pub extensions: bool,
    /// The CRC kernel.
    pub crc32c: Crc32c,
}

/// What MPA start-up settled; needed to enter RTS.
#[derive(Clone, Copy, Debug)]
pub struct StreamConfig {
    /// Our role in the start-up.
    pub role: Role,
    /// CRC in force, both directions (RFC 5044 section 7.1.1).
    pub crc: bool,
    /// The peer demanded markers: we insert them.
    pub markers_tx: bool,
    /// We demanded markers: the peer inserts them.
    pub markers_rx: bool,
    /// Largest ULPDU to build, see [`crate::mpa::mulpdu`].
    pub mulpdu: u16,
    /// Inbound Read/Atomic limit of this connection.
    pub ird: u16,
    /// Outbound Read/Atomic limit of this connection.
    pub ord: u16,
    /// Peer-to-peer RTR agreed upon (RFC 6581 section 9.2): sent by the initiator, expected and
    /// swallowed by the responder.
    pub rtr: Option<RtrKind>,
}

/// What to do with the LLP stream. Obtained from [`Qp::poll_action`], in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// All FPDUs that `poll_transmit` still yields go out first, then shut down the sending half
    /// (FIN), drain inbound octets, and arm the close timer: call `handle_close_timeout` if the
    /// peer's FIN has not come within the provider's bound.
    CloseGracefully,
    /// Reset the stream (RST) at once; nothing more is sent.
    Reset,
    /// The stream is over for this QP: release it. The QP is Idle or in Error.
    Detach,
    /// Tell the consumer.
    Event(QpEvent),
}

/// What the consumer of a QP learns about it (RDMAC asynchronous events).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpEvent {
    /// First valid FPDU arrived (or, as initiator, the RTR left): both directions usable.
    Established,
    /// Closed gracefully; the QP is Idle.
    CloseComplete,
    /// The peer sent a Terminate (already decoded; bits may be nonsense from some peers).
    TerminateReceived(TerminateCode),
    /// We found the error and sent (or could not send) this Terminate.
    TerminateSent(ProtocolError),
    /// The stream was reset, timed out or ended in the middle of something.
    ConnectionLost(LlpFault),
    /// Graceful close turned abortive: work was pending or data arrived (RDMAC "Bad Close").
    BadClose,
}

/// How the LLP stream failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum LlpFault {
    Reset,
    TimedOut,
    /// FIN in the middle of an FPDU or with work pending.
    UnexpectedFin,
    /// The close timer ran out.
    CloseTimeout,
}

/// Why a post was refused; nothing was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// `sq_depth` WQEs are outstanding.
    QueueFull,
    /// The QP is in Terminate, Closing or Error (RDMAC 6.2.4): the caller completes it as Flushed.
    BadState,
    /// Needs RFC 7306, which this QP does not have.
    Unsupported,
}

/// Result of [`Qp::handle_input`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Input {
    /// Octets of the argument that are done with; present the rest again, with more behind it.
    pub consumed: usize,
    /// What the QP needs next.
    pub want: Want,
}

/// What the receive path should do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// An FPDU is incomplete: so many octets (counted from the unconsumed rest's first) must be
    /// contiguous before the QP can go on. At most 64 KiB and a few hundred octets.
    Octets(usize),
    /// CRC and markers are off and the rest of `consumed` is empty: the next `remaining` octets of
    /// the stream are payload of the segment last checked with the host, to land at `offset` of
    /// it. The provider may read the stream straight to the destination and report it with
    /// [`Qp::handle_direct`], or go on with `handle_input` as usual.
    Direct {
        /// Payload octets still to come.
        remaining: u32,
        /// Where the next one goes: octets of this segment already placed.
        offset: u32,
    },
    /// The stream is over: read and drop.
    Nothing,
}

/// One FPDU to send, see [`Qp::poll_transmit`].
#[derive(Clone, Debug)]
pub struct Fpdu {
    /// Where its payload comes from.
    pub payload: Payload,
    /// Number of this FPDU, counting up; give it to [`Qp::handle_sent`] when all its octets have
    /// been accepted by the LLP.
    pub sequence: u64,
    // header octets, length, pad, marker layout: private
}

/// Source of an FPDU's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Payload {
    /// None outside the head.
    None,
    /// `len` octets at `offset` of the WQE's scatter/gather list.
    Local { slot: Slot, offset: u32, len: u32 },
    /// RDMA Read Response: `len` octets of registered memory. Resolve (and check) again.
    Source { stag: Stag, to: u64, len: u32 },
}

impl Fpdu {
    /// Octets on the wire, markers included.
    pub fn wire_len(&self) -> usize {
        todo!()
    }
    /// Writes the whole FPDU (head, payload, pad, CRC, markers) into `out`, which must be
    /// `wire_len()` long. `copy(offset, dst)` fills `dst` with payload octets from `offset`; called
    /// once per contiguous piece, in order. If it fails nothing may be sent: call
    /// [`Qp::handle_source_fault`].
    pub fn encode<E>(&self, _out: &mut [u8], _copy: impl FnMut(u32, &mut [u8]) -> Result<(), E>) -> Result<(), E> {
        todo!()
    }
    /// For gathering without a copy: length field, DDP and RDMAP headers. `None` if CRC or markers
    /// are on; then use `encode`.
    pub fn head(&self) -> Option<&[u8]> {
        todo!()
    }
    /// For gathering: pad and (zero) CRC field, 4 to 7 octets.
    pub fn trailer(&self) -> &[u8] {
        todo!()
    }
}

/// One end of an iWARP stream, with its send queue's order.
pub struct Qp;

#[allow(unused_variables)]
impl Qp {
    /// A QP in Idle. All rings are allocated here; nothing later allocates.
    pub fn new(config: QpConfig) -> Self { todo!() }
    /// State now.
    pub fn state(&self) -> State { todo!() }
    /// Queues a work request, in Idle (processed after `start`) or RTS. Answers its slot: the
    /// provider stores its half of the WQE there *before* the next `poll_transmit`.
    pub fn post_send(&mut self, wqe: SendWqe) -> Result<Slot, PostError> { todo!() }
    /// Work requests posted and not completed.
    pub fn outstanding_sends(&self) -> u32 { todo!() }

    /// Idle -> RTS.
    pub fn start(&mut self, stream: StreamConfig) -> Result<(), State> { todo!() }
    /// RTS -> Closing (RDMAC 6.2.2.2): graceful, or Bad Close if work is pending.
    pub fn close<H: Host>(&mut self, host: &mut H) -> Result<(), State> { todo!() }
    /// RTS -> Terminate with 0/0/0 (RDMAC 6.2.2.3).
    pub fn terminate<H: Host>(&mut self, host: &mut H) -> Result<(), State> { todo!() }
    /// RTS or Idle -> Error: reset, flush (RDMAC 6.2.2.4, 6.2.1.3). No effect in Error; in
    /// Closing and Terminate it cuts the graceful close short (Destroy QP).
    pub fn abort<H: Host>(&mut self, host: &mut H) { todo!() }
    /// Error -> Idle once everything is flushed.
    pub fn reset(&mut self) -> Result<(), State> { todo!() }
    /// The EMSS changed: FPDUs built from now on use this MULPDU.
    pub fn set_mulpdu(&mut self, mulpdu: u16) { todo!() }

    /// Octets from the stream, in order, `octets` beginning with what was not consumed before.
    pub fn handle_input<H: Host>(&mut self, octets: &[u8], host: &mut H) -> Input { todo!() }
    /// `octets` were placed directly after [`Want::Direct`]. Answers as `handle_input`.
    pub fn handle_direct<H: Host>(&mut self, octets: u32, host: &mut H) -> Input { todo!() }
    /// The destination of a [`Want::Direct`] is gone (deregistered).
    pub fn handle_direct_fault<H: Host>(&mut self, error: AccessError, host: &mut H) { todo!() }
    /// The peer's FIN: `buffered` octets of an incomplete FPDU were still waiting.
    pub fn handle_fin<H: Host>(&mut self, buffered: usize, host: &mut H) { todo!() }
    /// The stream failed.
    pub fn handle_llp_fault<H: Host>(&mut self, fault: LlpFault, host: &mut H) { todo!() }
    /// The close timer ran out.
    pub fn handle_close_timeout<H: Host>(&mut self, host: &mut H) { todo!() }
    /// All FPDUs up to and including `sequence` were accepted by the LLP: completes sends.
    pub fn handle_sent<H: Host>(&mut self, sequence: u64, host: &mut H) { todo!() }
    /// The payload of the FPDU yielded last could not be read; none of it was sent.
    pub fn handle_source_fault<H: Host>(&mut self, fault: AccessError, host: &mut H) { todo!() }
    /// A local catastrophe outside the core (CQ overrun 0/2/7, RNIC failure 0/2/8): Terminate.
    pub fn handle_local_error<H: Host>(&mut self, error: ProtocolError, host: &mut H) { todo!() }

    /// The next FPDU to send, or `None` if there is nothing to send now. Alternates fairly, message
    /// by message, between the SQ and inbound Reads.
    pub fn poll_transmit<H: Host>(&mut self, host: &mut H) -> Option<Fpdu> { todo!() }
    /// What to do with the stream, see [`Action`].
    pub fn poll_action(&mut self) -> Option<Action> { todo!() }

    /// Queues a zero-length RDMA Write that nobody sees: wakes peers that left our first FPDU
    /// unread behind their MPA Reply (see the peer profile `siw`). No-op unless in RTS.
    pub fn nudge(&mut self) { todo!() }
    /// Queues a zero-length RDMA Read that nobody sees, to learn whether the peer is alive (RFC
    /// 5044 has no keep-alive of its own). False if ORD or state do not allow it, or one is out.
    pub fn probe(&mut self) -> bool { todo!() }
    /// A probe has not been answered yet.
    pub fn probe_outstanding(&self) -> bool { todo!() }
    /// FPDUs received and valid so far; changes mean that the peer is alive.
    pub fn fpdus_received(&self) -> u64 { todo!() }
    /// Reads and atomics of ours that are waiting for their response.
    pub fn outstanding_reads(&self) -> u32 { todo!() }
    /// The Terminate sent or received, kept for Query QP (RDMAC 6.2.3): true if we sent it.
    pub fn last_terminate(&self) -> Option<(bool, TerminateCode)> { todo!() }
}
