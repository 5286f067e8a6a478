//! Asynchronous events, and handlers.

use crate::{CqId, QpId, SrqId};

/// Decoded Terminate (RFC 5040 section 4.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terminate {
    /// True if this end sent it.
    pub sent: bool,
    /// 0 RDMAP, 1 DDP, 2 LLP (MPA).
    pub layer: u8,
    /// Error type within the layer.
    pub etype: u8,
    /// Error code within the type.
    pub code: u8,
}

/// What an event is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum EventSource {
    Qp(QpId),
    Cq(CqId),
    Srq(SrqId),
    Rnic,
    /// Index into the ports, as [`crate::Rnic::ports`] lists them now; of one that vanished, as it
    /// did before.
    Port(u32),
}

/// Asynchronous event (RDMAC 8.3.3, shortened to what differs for the consumer).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// Both directions of the stream are usable (first valid FPDU, or RTR sent).
    Established,
    /// Graceful close finished; the QP is Idle.
    CloseComplete,
    /// The peer sent a Terminate; the QP goes to Error.
    TerminateReceived(Terminate),
    /// This end found an error and terminates; the QP goes to Error.
    TerminateSent(Terminate),
    /// The stream was reset by the peer.
    ConnectionReset,
    /// The stream timed out: the peer or the path is gone.
    ConnectionLost,
    /// The peer closed in the middle of work, or our close found work pending.
    BadClose,
    /// CQ overrun: completions were lost; every QP on it terminates.
    CqOverrun,
    /// Fewer receives than the limit remain; one shot.
    SrqLimit,
    /// More receives taken, and their completions not polled, than the QP's limit; one shot.
    RecvLimit,
    /// The port became usable, stopped being it, or is usable under other addresses.
    PortState {
        /// Usable now.
        online: bool,
    },
    /// The RNIC is unusable.
    Catastrophic,
}

/// Receiver of asynchronous events: called from any thread, without locks held; must not block and
/// must not call privileged verbs.
pub trait AsyncHandler: Send + Sync {
    /// One event.
    fn on_event(&self, source: EventSource, event: AsyncEvent);
}

/// Receiver of CQ notifications; same rules as [`AsyncHandler`].
pub trait CqHandler: Send + Sync {
    /// The armed notification fired.
    fn on_completion(&self, cq: CqId);
}
