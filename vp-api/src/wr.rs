//! Work requests, which a consumer posts.

use bitflags::bitflags;

use crate::{Access, Addressing, MemRange, MwId, Stag, WcOpcode};

/// Local scatter/gather element: `len` octets at `to` of region `stag`. If `len` is 0, nothing is checked
/// (RDMAC 8.1.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Sge {
    /// The STag of the region, or STag 0 on a privileged QP.
    pub stag: Stag,
    /// Octets.
    pub len: u32,
    /// Tagged offset of the first octet: an address or zero-based, as chosen at registration.
    pub to: u64,
}

/// Memory of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// The peer's STag.
    pub stag: Stag,
    /// Tagged offset in the region or window of that STag.
    pub to: u64,
}

bitflags! {
    /// Flags of a send-queue work request.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct SendFlags: u32 {
        /// Signalled: a completion is wanted on success, too. Errors always complete (RDMAC 8.1.3.1).
        const SIGNALED = 1;
        /// Waits for all earlier RDMA Reads of this QP.
        const READ_FENCE = 2;
        /// Waits for all earlier work requests of this QP.
        const LOCAL_FENCE = 4;
        /// A hint: more requests follow at once, so this one may be deferred until then. Does not cross the C
        /// interface.
        const COALESCE = 64;
    }
}

/// Payload of a send-queue work request.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Registered memory, in order. For an RDMA Read and atomics: exactly one element, the sink.
    Sgl(&'a [Sge]),
    /// Octets that are copied during the post; afterwards the caller may reuse the buffer.
    Inline(&'a [u8]),
}

/// Atomic operation of RFC 7306; masks 0 (FetchAdd) and all ones (CmpSwap) are the plain forms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum AtomicOp {
    FetchAdd { add: u64, mask: u64 },
    CmpSwap { compare: u64, compare_mask: u64, swap: u64, swap_mask: u64 },
}

/// Bind Memory Window (RDMAC 7.10). A bind of length 0 unbinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindMw {
    /// The window.
    pub window: MwId,
    /// Key octet of the STag that the window gets.
    pub key: u8,
    /// The region to bind to.
    pub region: Stag,
    /// First octet, as a TO of the region.
    pub to: u64,
    /// Octets.
    pub len: u64,
    /// How peers address it.
    pub addressing: Addressing,
    /// Remote rights.
    pub access: Access,
}

/// Fast registration of an allocated, invalid STag (RDMAC 7.3.2.3); privileged QPs.
#[derive(Clone, Debug)]
pub struct FastRegister {
    /// The STag: the allocated index, with the new key.
    pub stag: Stag,
    /// The memory.
    pub range: MemRange,
    /// How the octets are addressed.
    pub addressing: Addressing,
    /// Rights.
    pub access: Access,
}

/// Operation of a send-queue work request.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // field names are the verbs' own
pub enum SendOp {
    /// Send, with Solicited Event, with Invalidate.
    Send { solicited: bool, invalidate: Option<Stag> },
    /// Send with 32 bits of Immediate Data in addition to the payload. At the peer it completes a receive
    /// ([`WcOpcode::Recv`]) with [`crate::WorkCompletion::immediate`]. Needs
    /// [`crate::Capabilities::SEND_IMMEDIATE`], and a stream whose ends agreed on it; otherwise it is refused as
    /// Unsupported. A request posted in Idle, before the agreement is known, ends the stream when it would be
    /// transmitted without the agreement.
    SendImmediate { data: u32, solicited: bool },
    /// RDMA Write.
    Write { remote: Remote },
    /// RDMA Write, then Immediate Data: one work request, one completion at this end, one receive at the peer.
    WriteImmediate { remote: Remote, data: u64, solicited: bool },
    /// Immediate Data alone (RFC 7306).
    Immediate { data: u64, solicited: bool },
    /// RDMA Read into the one SGE; optionally invalidates the SGE's STag afterwards.
    Read { remote: Remote, invalidate_sink: bool },
    /// Atomic; the original value is stored in the one SGE (8 octets, host order). The built-in providers refuse one whose
    /// address is no multiple of 8 ([`crate::VpStatus::InvalidWr`]).
    Atomic { remote: Remote, op: AtomicOp },
    /// Bind a window.
    BindMw(BindMw),
    /// Register through the queue. Boxed, so that the other operations stay small.
    FastRegister(Box<FastRegister>),
    /// Invalidate Local STag.
    InvalidateLocal { stag: Stag },
}

impl SendOp {
    /// The opcode of its completion.
    pub const fn completion(&self) -> WcOpcode {
        match self {
            Self::Send { .. } | Self::SendImmediate { .. } => WcOpcode::Send,
            Self::Write { .. } => WcOpcode::Write,
            Self::WriteImmediate { .. } => WcOpcode::WriteImmediate,
            Self::Immediate { .. } => WcOpcode::Immediate,
            Self::Read { .. } => WcOpcode::Read,
            Self::Atomic { .. } => WcOpcode::Atomic,
            Self::BindMw(_) => WcOpcode::BindMw,
            Self::FastRegister(_) => WcOpcode::FastRegister,
            Self::InvalidateLocal { .. } => WcOpcode::InvalidateLocal,
        }
    }
}

/// Send-queue work request.
#[derive(Clone, Debug)]
pub struct SendWr<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// Payload or sink; empty for operations that have none.
    pub data: Data<'a>,
    /// Flags.
    pub flags: SendFlags,
}

/// Receive work request.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Where the message is stored.
    pub sgl: &'a [Sge],
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every post copies it: 8 octets more cost 2 to 3 % of a post.
    #[test]
    fn an_operation_is_small() {
        assert!(size_of::<SendOp>() <= 56, "{} octets", size_of::<SendOp>());
    }
}
