//! The host interface: what the protocol core requires of the owner of memory and queues.
//!
//! Calls are made only from inside `Qp::handle_*` and `Qp::poll_transmit`, on the caller's thread.
//! A host never sees an octet of an FPDU that has not passed MPA validation (RFC 5044 section 6).

use crate::types::{Completion, Slot, Stag};

/// Why an access to registered memory was refused. The core maps it to the Terminate that the
/// operation calls for (RFC 5040 section 7.2, RFC 5041 section 7.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessError {
    /// No such STag, wrong key, invalid state, or STag 0 from a peer.
    InvalidStag,
    /// Outside the region or window.
    Bounds,
    /// The right is missing.
    Access,
    /// Another protection domain or another QP's window.
    NotAssociated,
    /// TO + length exceeds 2^64 - 1.
    Wrap,
    /// Atomic target not aligned to 8 octets (RFC 7306 section 8.2).
    Unaligned,
    /// The STag exists but a peer may not invalidate it (shared, window bound to it, no remote right).
    CannotInvalidate,
}

/// Why a local work request cannot be executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalFault {
    /// A local STag was refused.
    Access(AccessError),
    /// Sum of the scatter/gather list above 2^32 - 1 or the provider's limit.
    Length,
    /// Operation needs a privileged QP.
    NotPrivileged,
    /// Bind or fast-register on an STag that is not in the Invalid state.
    NotInvalid,
    /// A window could not be bound (wrong PD, rights, zero-based region).
    Bind,
    /// Anything else wrong with the WQE.
    Wqe,
}

/// The operation of an inbound tagged segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaggedUse {
    /// RDMA Write from the peer: needs the remote-write right.
    Write,
    /// RDMA Read Response into a sink that we named: local write suffices.
    ReadResponse,
}

/// Atomic operation on 64 bits of memory in host byte order (RFC 7306 section 5.1) [EXT-09].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum AtomicOp {
    FetchAdd { add: u64, mask: u64 },
    CmpSwap { compare: u64, compare_mask: u64, swap: u64, swap_mask: u64 },
}

impl AtomicOp {
    /// The value to store, given the value found; `None` leaves memory as it is.
    pub fn apply(self, old: u64) -> Option<u64> {
        match self {
            // RFC 7306 5.1.1: a set mask bit is the top bit of a field; its carry is dropped.
            Self::FetchAdd { add, mask } => {
                let sum = (old & !mask).wrapping_add(add & !mask);
                Some(sum ^ ((old ^ add) & mask))
            }
            Self::CmpSwap { compare, compare_mask, swap, swap_mask } => {
                ((compare ^ old) & compare_mask == 0)
                    .then_some((old & !swap_mask) | (swap & swap_mask))
            }
        }
    }
}

/// A message that consumed a receive buffer, complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receive {
    /// Payload octets placed in the buffer; with [`Immediate::Alone`], by the Write directly before.
    pub octets: u32,
    /// The peer asked for a solicited event.
    pub solicited: bool,
    /// STag that the peer asked to invalidate; already invalidated.
    pub invalidated: Option<Stag>,
    /// Immediate data, with the payload or instead of it.
    pub immediate: Option<Immediate>,
}

/// Immediate data of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Immediate {
    /// RFC 7306 Immediate Data: instead of a payload.
    Alone(u64),
    /// Of a Send with Immediate.
    OfSend(u32),
}

/// The owner of memory and queues; the core calls it.
pub trait Host {
    // ---- inbound untagged -------------------------------------------------------------------
    /// Takes the next receive buffer (RQ or SRQ) for a new Send-type message and returns its
    /// capacity in octets; `None` if none is posted.
    fn begin_receive(&mut self) -> Option<u32>;
    /// Copies `octets` to `offset` of the buffer taken last. Within its capacity.
    fn place_receive(&mut self, offset: u32, octets: &[u8]) -> Result<(), AccessError>;
    /// Completes the buffer taken last.
    fn complete_receive(&mut self, receive: Receive);
    /// The message is longer than the buffer taken last: a Terminate follows, and the buffer is
    /// flushed with this as its status (RDMAC 8.3.2 "Base and bounds").
    fn overflow_receive(&mut self) {}

    // ---- inbound tagged ---------------------------------------------------------------------
    /// Checks one tagged segment of `len > 0` octets and remembers it for `place_tagged`. Called
    /// for every segment (RFC 5041 section 7.1).
    fn check_tagged(
        &mut self,
        use_: TaggedUse,
        stag: Stag,
        to: u64,
        len: u32,
    ) -> Result<(), AccessError>;
    /// Copies `octets` to `offset` within the segment checked last.
    fn place_tagged(&mut self, offset: u32, octets: &[u8]) -> Result<(), AccessError>;
    /// Checks the source of an inbound Read Request with `len > 0`.
    fn check_read_source(&mut self, stag: Stag, to: u64, len: u32) -> Result<(), AccessError>;
    /// Executes an inbound atomic and returns the original value.
    fn execute_atomic(&mut self, stag: Stag, to: u64, op: AtomicOp) -> Result<u64, AccessError>;
    /// Invalidates on behalf of the peer (Send with Invalidate), after its payload was placed.
    fn invalidate_remote(&mut self, stag: Stag) -> Result<(), AccessError>;

    // ---- send queue -------------------------------------------------------------------------
    /// The WQE is next: checks its local buffers and returns the operation's length
    /// (for a Read, the sink's length; for an Atomic, 8).
    fn begin_send(&mut self, slot: Slot) -> Result<u32, LocalFault>;
    /// The WQE of a Send or RDMA Write is next, and its message fits into one FPDU if its payload
    /// fits into `room`: copies the payload to the front of `room` and returns its length. `None`: it
    /// does not fit or cannot be read (the content of `room` is then undefined); `begin_send` follows.
    fn copy_send(&mut self, _slot: Slot, _room: &mut [u8]) -> Option<usize> {
        None
    }
    /// Executes a [`crate::SendOp::Local`] work request.
    fn execute_local(&mut self, slot: Slot) -> Result<(), LocalFault>;
    /// An RDMA Read with Invalidate Local STag finished: invalidate its sink.
    fn invalidate_sink(&mut self, slot: Slot) -> Result<(), LocalFault>;
    /// Stores an Atomic's original value (host byte order) into the WQE's local buffer.
    fn place_atomic_result(&mut self, slot: Slot, original: u64) -> Result<(), AccessError>;
    /// A send-queue WQE is done. Called in posting order for every WQE, signalled or not.
    fn complete_send(&mut self, completion: Completion);

    // ---- teardown ---------------------------------------------------------------------------
    /// The QP left RTS and will not return: completes every posted receive of the QP's own RQ (never an
    /// SRQ's) as Flushed, a partly filled one first.
    fn flush_receives(&mut self);
}
