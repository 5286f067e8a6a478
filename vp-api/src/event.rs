//! Asynchronous events of verbs objects, and the handlers that receive them.

use std::fmt;
use std::net::SocketAddr;

use crate::{CqId, QpId, SrqId, Terminate};

/// The object that an event is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum EventSource {
    Qp(QpId),
    Cq(CqId),
    Srq(SrqId),
    Rnic,
    /// Index into the ports as [`crate::Rnic::ports`] lists them now. A port that disappeared keeps its index.
    Port(u32),
}

/// Asynchronous event (RDMAC 8.3.3, reduced to what makes a difference to the consumer).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// Both directions of the stream are usable (first valid FPDU, or RTR sent).
    Established,
    /// An orderly close has finished; the QP is Idle.
    CloseComplete,
    /// The peer sent a Terminate; the QP goes to Error.
    TerminateReceived(Terminate),
    /// This end found an error and terminates; the QP goes to Error.
    TerminateSent(Terminate),
    /// The stream was reset by the peer.
    ConnectionReset,
    /// The stream timed out: the peer or the path is gone.
    ConnectionLost,
    /// The peer closed while work was outstanding, or this end closed with work outstanding.
    BadClose,
    /// CQ overrun: completions were lost; every QP on it terminates.
    CqOverrun,
    /// Fewer receives than the limit remain; one shot.
    SrqLimit,
    /// More receives than the QP's limit were taken and their completions not polled; one shot.
    RecvLimit,
    /// The port became usable, became unusable, or is usable under other addresses.
    PortState {
        /// Whether it is usable now.
        online: bool,
    },
    /// The RNIC is unusable.
    Catastrophic,
    /// A listener cannot accept connections. It resumes when the resource is available. Reported by the access
    /// layer, never by a provider.
    ListenShortage {
        /// The address that it listens on.
        listener: SocketAddr,
        /// The resource that is exhausted.
        lacks: Shortage,
    },
}

/// A resource that a process or the machine has exhausted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Shortage {
    /// Descriptors of the process.
    Descriptors,
    /// Descriptors of the machine.
    MachineDescriptors,
    /// Memory.
    Memory,
    /// Descriptors that the kernel watches for the user (epoll).
    Watches,
}

/// Says what is exhausted, and what to do.
impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Descriptors => {
                "the process has no descriptors left; close connections, or raise the limit (`ulimit -n`)"
            }
            Self::MachineDescriptors => {
                "the machine has no descriptors left; close some, or raise the limit (`sysctl fs.file-max`)"
            }
            Self::Memory => {
                "there is no memory left; close connections, or raise the limit (`ulimit -v`, cgroup)"
            }
            Self::Watches => {
                "the kernel watches no more descriptors of this user; close connections, or raise the limit \
                 (`sysctl fs.epoll.max_user_watches`)"
            }
        })
    }
}

/// What happened to the object.
impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Established => "its stream can be used",
            Self::CloseComplete => "its stream was closed in an orderly way",
            Self::TerminateReceived(terminate) => {
                return write!(f, "the peer terminated its stream: {terminate}");
            }
            Self::TerminateSent(terminate) => {
                return write!(f, "this end terminated its stream: {terminate}");
            }
            Self::ConnectionReset => "the peer reset its stream",
            Self::ConnectionLost => "the peer sent nothing in time",
            Self::BadClose => "its stream was closed with work outstanding",
            Self::CqOverrun => "a queue of completions or events had no room, and some were lost",
            Self::SrqLimit => "fewer receives are left than the low watermark",
            Self::RecvLimit => "more receives are in use than the high watermark",
            Self::PortState { online: true } => "it can be used, or has new addresses",
            Self::PortState { online: false } => "it cannot be used any more",
            Self::Catastrophic => "the device failed; see the log",
            Self::ListenShortage { listener, lacks } => {
                let on = "it resumes by itself";
                return write!(
                    f,
                    "the listener of {listener} cannot accept connections: {lacks}; {on}"
                );
            }
        })
    }
}

/// Receiver of asynchronous events: called from any thread, with no lock held; must not block and must not call
/// privileged verbs.
pub trait AsyncHandler: Send + Sync {
    /// One event.
    fn on_event(&self, source: EventSource, event: AsyncEvent);
}

/// Receiver of CQ notifications; same rules as [`AsyncHandler`].
pub trait CqHandler: Send + Sync {
    /// The armed notification fired.
    fn on_completion(&self, cq: CqId);
}
