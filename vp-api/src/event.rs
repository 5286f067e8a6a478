//! Asynchronous events, and handlers.

use std::fmt;

use crate::{CqId, QpId, SrqId, Terminate};

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
    /// A listener cannot accept connections: the process or the machine is out of descriptors or
    /// memory. It goes on when there are some. From the access layer; no provider says it.
    ListenShortage,
}

/// What happened to the object.
impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Established => "its stream can be used",
            Self::CloseComplete => "its stream was closed in order",
            Self::TerminateReceived(terminate) => {
                return write!(f, "the peer terminated its stream: {terminate}");
            }
            Self::TerminateSent(terminate) => {
                return write!(f, "this end terminated its stream: {terminate}");
            }
            Self::ConnectionReset => "the peer reset its stream",
            Self::ConnectionLost => "nothing came back from the peer in time",
            Self::BadClose => "its stream was closed with work outstanding",
            Self::CqOverrun => "a queue of completions or events had no room, and some were lost",
            Self::SrqLimit => "fewer receives are left than the low watermark says",
            Self::RecvLimit => "more receives are in use than the high watermark says",
            Self::PortState { online: true } => "it can be used, or has new addresses",
            Self::PortState { online: false } => "it cannot be used any more",
            Self::Catastrophic => "the device failed; see the log",
            Self::ListenShortage => {
                "a listener cannot accept connections: the process has no descriptors (`ulimit -n`) or no \
                 memory left"
            }
        })
    }
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
