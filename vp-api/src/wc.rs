//! Work completions, which a consumer polls.

use crate::{QpId, Stag};

/// The operation that completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum WcOpcode {
    Send = 1,
    Write = 5,
    Read = 6,
    BindMw = 8,
    FastRegister = 9,
    InvalidateLocal = 10,
    Recv = 11,
    Atomic = 16,
    Immediate = 17,
    WriteImmediate = 18,
    /// A receive that was consumed by Immediate Data.
    RecvImmediate = 19,
}

/// How a work request ended (RDMAC completion status). The numbers are stable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum WcStatus {
    /// It succeeded.
    Success = 0,
    /// Local STag refused.
    InvalidStag = 27,
    /// The QP left RTS first; see Query QP for the reason.
    Flushed = 38,
    /// Malformed work request.
    InvalidWqe = 39,
    /// The QP broke while processing it.
    LocalCatastrophic = 40,
    /// The peer sent a Terminate because of it; see Query QP.
    RemoteTermination = 41,
    /// Outside a local region, or a message longer than its receive buffer.
    Bounds = 42,
    /// A local right is missing.
    AccessViolation = 43,
    /// A local region of another PD, or a window of another QP.
    InvalidPd = 44,
    /// TO + length overflow.
    Wrap = 45,
    /// The peer tried to invalidate an STag that it may not invalidate.
    CannotInvalidate = 46,
    /// RDMA Read or atomic with ORD 0.
    ZeroReadResources = 47,
    /// Needs a privileged QP.
    NotPrivileged = 48,
    /// Bind or fast-register on an STag that is not invalid.
    StagNotInvalid = 49,
    /// The bind was refused: region, window or rights.
    InvalidWindow = 59,
    /// The message is longer than the provider can send.
    InvalidLength = 60,
}

/// Work completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkCompletion {
    /// The id of the work request, as posted.
    pub wr_id: u64,
    /// The QP that it belongs to.
    pub qp: QpId,
    /// The operation that completed.
    pub opcode: WcOpcode,
    /// The status with which it completed.
    pub status: WcStatus,
    /// Whether it was received with a solicited event.
    pub solicited: bool,
    /// Payload octets; of [`WcOpcode::RecvImmediate`] those that the Write with it, or directly before it on the same
    /// QP, has written.
    pub octets: u32,
    /// STag invalidated by the peer's Send with Invalidate (receives only).
    pub invalidated: Option<Stag>,
    /// Immediate data (receives only).
    pub immediate: Option<u64>,
}

impl WorkCompletion {
    /// A blank completion, which [`crate::Cq::poll`] overwrites.
    pub const BLANK: Self = Self {
        wr_id: 0,
        qp: QpId(0),
        opcode: WcOpcode::Send,
        status: WcStatus::Success,
        solicited: false,
        octets: 0,
        invalidated: None,
        immediate: None,
    };
}
