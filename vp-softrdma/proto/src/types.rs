//! Values in the crate's interface: STags, work queue elements, completions.

/// Steering tag: 24-bit index (chosen by the provider) and 8-bit key (low octet, chosen by the
/// consumer). RDMAC Verbs 7.2 [VERBS-22].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stag(pub u32);

impl Stag {
    /// Composes an STag from a 24-bit index and a key octet.
    pub const fn new(index: u32, key: u8) -> Self {
        Self((index << 8) | key as u32)
    }
    /// The provider's 24-bit index.
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }
    /// The consumer's key octet.
    pub const fn key(self) -> u8 {
        self.0 as u8
    }
}

/// CRC32c over `octets`, continuing from `crc` (0 to begin), already inverted in and out as in
/// RFC 5044 section 4.4: `crc32c(0, b"123456789") == 0xE306_9283`.
pub type Crc32c = fn(crc: u32, octets: &[u8]) -> u32;

/// Which side of the MPA start-up this end played (RFC 5044 section 7.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Sent the MPA Request; sends the first FPDU.
    Initiator,
    /// Sent the MPA Reply; may send only after the first valid FPDU has arrived.
    Responder,
}

/// Ready-to-receive indication of the peer-to-peer model (RFC 6581 section 9.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RtrKind {
    /// Zero-length Send (flag B).
    Send,
    /// Zero-length RDMA Write (flag C).
    Write,
    /// Zero-length RDMA Read Request (flag D).
    Read,
}

/// Place of a work request in the send queue's ring: `0..sq_depth`. The provider keeps its own
/// half of the WQE (scatter/gather list, work request id) in an array with the same index.
pub type Slot = u32;

/// The protocol's half of a send-queue WQE. Lengths come from [`crate::Host::begin_send`] when the
/// WQE is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendWqe {
    /// What to do.
    pub op: SendOp,
    /// Wait for all earlier RDMA Reads and Atomics of this SQ (RDMAC "Read Fence").
    pub read_fence: bool,
    /// Wait for all earlier work requests of this SQ (RDMAC "Local Fence").
    pub local_fence: bool,
}

/// Operation of a send-queue work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // field names are the RFCs' own
pub enum SendOp {
    /// Send and its three variants (RFC 5040 section 5.3).
    Send { solicited: bool, invalidate: Option<Stag> },
    /// Send with 32 bits of immediate data; refused unless [`crate::StreamConfig::send_immediates`].
    SendImmediate { immediate: u32, solicited: bool },
    /// RDMA Write (RFC 5040 section 5.1).
    Write { stag: Stag, to: u64 },
    /// RDMA Write followed by Immediate Data as one work request: one completion, for both.
    WriteImmediate { stag: Stag, to: u64, data: u64, solicited: bool },
    /// RDMA Read (RFC 5040 section 5.2). `sink` is the local buffer, as it goes on the wire; its
    /// length is what [`crate::Host::begin_send`] returns. `invalidate_sink`: RDMA Read with
    /// Invalidate Local STag.
    Read { sink_stag: Stag, sink_to: u64, source_stag: Stag, source_to: u64, invalidate_sink: bool },
    /// Immediate Data (RFC 7306 section 6).
    Immediate { data: u64, solicited: bool },
    /// FetchAdd (RFC 7306 section 5.1.1). The original value is given to
    /// [`crate::Host::place_atomic_result`].
    FetchAdd { stag: Stag, to: u64, add: u64, mask: u64 },
    /// CmpSwap (RFC 7306 section 5.1.2).
    CmpSwap { stag: Stag, to: u64, compare: u64, compare_mask: u64, swap: u64, swap_mask: u64 },
    /// Bind Memory Window, Fast-Register, Invalidate Local STag: executed by
    /// [`crate::Host::execute_local`] when it is the next one; nothing on the wire.
    Local,
}

/// How a work request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Done.
    Success,
    /// The QP left RTS before it ran or finished.
    Flushed,
    /// The local buffer or operation was refused; see [`crate::LocalFault`].
    Local(crate::LocalFault),
    /// The peer's Terminate names this work request.
    RemoteTermination(crate::TerminateCode),
    /// An RDMA Read or Atomic was posted although the connection has ORD 0 (RDMAC 6.5).
    ZeroReadResources,
    /// The message exceeds what one DDP message may carry, or the provider's limit.
    BadLength,
}

/// Completion of a send-queue WQE, in posting order (RDMAC 8.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The WQE.
    pub slot: Slot,
    /// How it ended.
    pub status: Status,
    /// Payload octets of the operation.
    pub octets: u32,
}
